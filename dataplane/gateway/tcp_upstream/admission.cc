// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/admission.h"

#include <algorithm>
#include <utility>

#include "dataplane/gateway/tcp_upstream/upstream.h"

namespace sluice::tcp_upstream {

Admission::Admission(Upstream& upstream, rdma::Device& device, std::uint32_t numbers,
                     const ReplyBuffers& buffers, std::uint32_t clients)
    : upstream_(upstream),
      memory_(device, buffers, clients),
      numbers_(equal_shares(numbers, clients)),
      shares_(std::make_unique<ClientShare[]>(clients)) {
  for (std::uint32_t i = 0; i < clients; ++i)
    for (std::size_t need = 0; need < kReplyNeeds; ++need) {
      Queue& queue = shares_[i].queues[need];
      queue.owner = this;
      queue.client = &shares_[i];
      queue.need = static_cast<ReplyNeed>(need);
    }
}

Admission::Lack Admission::enter(ForwardedCall& forwarded) noexcept {
  Queue& queue = queue_of(forwarded);
  queue.calls.push_back(forwarded);
  ++waiting_;
  if (queue.calls.first() == &forwarded) serve(queue);
  return forwarded.awaits_admission() ? queue.lack : Lack::Nothing;
}

/// All or nothing: who waits for one thing keeps no other from anybody.
Admission::Lack Admission::take_what_it_needs(ForwardedCall& first, Queue& queue) noexcept {
  ClientShare& client = *queue.client;
  if (!numbers_.may_take(client.numbers)) return Lack::Number;
  if (queue.need != ReplyNeed::None) {
    first.memory = memory_.of(queue.need).acquire(client.memory(queue.need));
    if (first.memory == nullptr) return Lack::Memory;
  }
  static_cast<void>(numbers_.take(client.numbers));
  return Lack::Nothing;
}

/// Lets in the first of the queue, if it may; those behind it come when it is the client's turn again.
void Admission::serve(Queue& queue) noexcept {
  ForwardedCall& first = *queue.calls.first();
  UpstreamConnection* connection = nullptr;
  if (upstream_.must_wait(first))
    queue.lack = Lack::Turn;
  else if ((connection = upstream_.connection_for(first)) == nullptr)
    queue.lack = Lack::Connection;
  else
    queue.lack = take_what_it_needs(first, queue);
  if (queue.lack == Lack::Nothing) {
    queue.calls.remove(first);
    --waiting_;
    upstream_.start(first, *connection);
  }
  if (!queue.calls.empty()) await(queue);
}

void Admission::await(Queue& queue) noexcept {
  switch (queue.lack) {
    case Lack::Nothing:
    case Lack::Number:
      return numbers_.await(queue.client->numbers, queue);
    case Lack::Memory:
      return memory_.of(queue.need).ledger().await(queue.client->memory(queue.need), queue);
    case Lack::Connection:
      return without_connection_.push_back(queue);
    case Lack::Turn:
      behind_earlier_.push_back(queue);
      ++behind_earlier_count_;
  }
}

void Admission::leave(ForwardedCall& forwarded) noexcept {
  Queue& queue = queue_of(forwarded);
  queue.calls.remove(forwarded);
  --waiting_;
  if (!queue.calls.empty()) return;
  numbers_.forget(queue.client->numbers, queue);
  memory_.of(queue.need).ledger().forget(queue.client->memory(queue.need), queue);
  behind_earlier_count_ -= behind_earlier_.contains(queue);
  Queues::unlink(queue);
}

void Admission::finished(const ForwardedCall& forwarded) noexcept {
  numbers_.give_back(share_of(forwarded).numbers);
}

void Admission::release(ForwardedCall& forwarded) noexcept {
  if (std::byte* const memory = std::exchange(forwarded.memory, nullptr))
    memory_.of(forwarded.need).release(memory);
}

std::uint32_t Admission::calls_of(std::uint32_t client) const noexcept {
  std::uint32_t calls = numbers_of(client);
  for (const Queue& queue : shares_[client].queues) calls += queue.calls.size();
  return calls;
}

bool Admission::lacks_numbers(std::uint32_t client) const noexcept {
  const auto& queues = shares_[client].queues;
  return std::any_of(queues.begin(), queues.end(),
                     [](const Queue& queue) { return !queue.calls.empty() && queue.lack == Lack::Number; });
}

std::uint64_t Admission::held_bytes(std::uint32_t client) const noexcept {
  const ClientShare& share = shares_[client];
  return std::uint64_t{share.items.held()} * kItemBytes +
         std::uint64_t{share.records.held()} * tcp::kMaxRecordBytes;
}

void Admission::add_waiting(std::uint32_t client, Waiting& waiting) const noexcept {
  for (const Queue& queue : shares_[client].queues)
    if (queue.lack != Lack::Connection && queue.lack != Lack::Turn)
      waiting[queue.lack == Lack::Memory ? static_cast<std::size_t>(queue.need) : 0] += queue.calls.size();
}

void Admission::publish(const Waiting& waiting,
                        std::span<segment::PoolUse, segment::kUpstreamPools.size()> to) const noexcept {
  to[0].publish(numbers_.limits().elements, numbers_.limits().elements - numbers_.free(), waiting[0]);
  for (const ReplyNeed need : {ReplyNeed::Item, ReplyNeed::Record}) {
    const rdma::SharedUse use = memory_.of(need).use();
    const auto pool = static_cast<std::size_t>(need);
    to[pool].publish(use.buffers, use.held, waiting[pool]);
  }
}

void Admission::serve_waiting() noexcept {
  if (waiting_ == 0) return;
  numbers_.resume(kAdmittedInOneTurn);
  memory_.items().ledger().resume(kAdmittedInOneTurn);
  memory_.records().ledger().resume(kAdmittedInOneTurn);
}

void Admission::serve_without_connection() noexcept {
  while (upstream_.has_free_connections()) {
    Queue* const queue = without_connection_.pop_front();
    if (queue == nullptr) return;
    serve(*queue);
  }
}

/// Who has to wait on is put behind.
void Admission::serve_behind_earlier(std::uint64_t now_ns) noexcept {
  for (std::uint32_t due = behind_earlier_round_.due(now_ns, behind_earlier_count_); due > 0; --due) {
    --behind_earlier_count_;
    serve(*behind_earlier_.pop_front());
  }
}

}  // namespace sluice::tcp_upstream
