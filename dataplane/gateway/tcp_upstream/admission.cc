// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/admission.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::tcp_upstream {

Admission::Admission(rdma::Device& device, std::uint32_t numbers, const ReplyBuffers& buffers,
                     std::uint32_t clients)
    : memory_(device, buffers, clients), numbers_(equal_shares(numbers, clients)), shares_(clients) {
  for (std::uint32_t i = 0; i < clients; ++i)
    for (std::size_t need = 0; need < kReplyNeeds; ++need) {
      Queue& queue = shares_[i].queues[need];
      queue.owner = this;
      queue.client = &shares_[i];
      queue.need = static_cast<ReplyNeed>(need);
    }
}

Admission::Lack Admission::await(Queue& queue, Lack lack) noexcept {
  SLUICE_INVARIANT_DEBUG(!queue.calls.empty() && !queue.link.linked(), list_membership);
  queue.lack = lack;
  switch (lack) {
    case Lack::Nothing:
    case Lack::Number:
      numbers_.await(queue.client->numbers, queue);
      break;
    case Lack::Memory:
      memory_.of(queue.need).ledger().await(queue.client->memory(queue.need), queue);
      break;
    case Lack::Connection:
      without_connection_.push_back(queue);
      break;
    case Lack::EarlierCall:
      behind_earlier_.push_back(queue);
      ++behind_earlier_count_;
  }
  return lack;
}

void Admission::remove(ForwardedCall& forwarded) noexcept {
  Queue& queue = queue_of(forwarded);
  queue.calls.remove(forwarded);
  if (SLUICE_INVARIANT(waiting_ > 0, pool_balance)) --waiting_;
  if (!queue.calls.empty()) return;
  numbers_.forget(queue.client->numbers, queue);
  memory_.of(queue.need).ledger().forget(queue.client->memory(queue.need), queue);
  behind_earlier_count_ -= behind_earlier_.contains(queue);
  Queues::unlink(queue);
}

std::uint32_t Admission::calls_of(std::uint32_t client) const noexcept {
  std::uint32_t calls = numbers_of(client);
  for (const Queue& queue : shares_[client].queues) calls += queue.calls.size();
  return calls;
}

bool Admission::lacks_numbers(std::uint32_t client) const noexcept {
  return has_match(shares_[client].queues,
                   [](const Queue& queue) { return !queue.calls.empty() && queue.lack == Lack::Number; });
}

std::uint64_t Admission::held_bytes(std::uint32_t client) const noexcept {
  const ClientShare& share = shares_[client];
  return std::uint64_t{share.items.held()} * kItemBytes +
         std::uint64_t{share.records.held()} * memory_.of(ReplyNeed::Record).buffer_bytes();
}

void Admission::add_waiting(std::uint32_t client, Waiting& waiting) const noexcept {
  for (const Queue& queue : shares_[client].queues)
    if (queue.lack != Lack::Connection && queue.lack != Lack::EarlierCall)
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

Admission::Queue* Admission::next_with_share(ReplyNeed pool) noexcept {
  SLUICE_INVARIANT_DEBUG(with_share_ == nullptr, list_membership);
  if (ledger(pool).resume(1) == 0) return nullptr;
  return std::exchange(with_share_, nullptr);
}

Admission::Queue* Admission::next_behind_earlier() noexcept {
  Queue* const queue = behind_earlier_.pop_front();
  static_cast<void>(SLUICE_INVARIANT((queue != nullptr) == (behind_earlier_count_ > 0), list_membership));
  behind_earlier_count_ -= queue != nullptr;
  return queue;
}

}  // namespace sluice::tcp_upstream
