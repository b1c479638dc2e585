// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/admission.h"

#include "dataplane/service/forward/upstream.h"

namespace sluice::forward {

Admission::Admission(Upstream& upstream, std::uint32_t numbers, std::uint32_t clients)
    : upstream_(upstream),
      numbers_(equal_shares(numbers, clients)),
      queues_(std::make_unique<Queue[]>(clients)) {
  for (std::uint32_t i = 0; i < clients; ++i) queues_[i].owner = this;
}

Admission::Lack Admission::enter(ForwardedCall& forwarded) noexcept {
  Queue& queue = queue_of(forwarded);
  queue.calls.push_back(forwarded);
  ++waiting_;
  if (queue.calls.first() == &forwarded) serve(queue);
  return forwarded.state == ForwardedCall::State::AwaitingXid ? queue.lack : Lack::Nothing;
}

/// Lets in the first of the queue, if it may; those behind it come when it is the client's turn again.
void Admission::serve(Queue& queue) noexcept {
  ForwardedCall& first = *queue.calls.first();
  UpstreamConnection* const connection = upstream_.connection_for(first);
  queue.lack = connection == nullptr          ? Lack::Connection
               : numbers_.take(queue.numbers) ? Lack::Nothing
                                              : Lack::Number;
  if (queue.lack == Lack::Nothing) {
    queue.calls.remove(first);
    --waiting_;
    upstream_.start(first, *connection);
  }
  if (!queue.calls.empty()) await(queue);
}

void Admission::await(Queue& queue) noexcept {
  if (queue.lack != Lack::Connection)
    numbers_.await(queue.numbers, queue);
  else if (!queue.link.linked())
    without_connection_.push_back(queue);
}

void Admission::leave(ForwardedCall& forwarded) noexcept {
  Queue& queue = queue_of(forwarded);
  queue.calls.remove(forwarded);
  --waiting_;
  if (!queue.calls.empty()) return;
  numbers_.forget(queue.numbers, queue);
  IntrusiveQueue<Queue, &Queue::link>::unlink(queue);
}

void Admission::finished(const ForwardedCall& forwarded) noexcept {
  numbers_.give_back(queue_of(forwarded).numbers);
}

void Admission::serve_waiting() noexcept {
  if (numbers_.waiters() > 0) numbers_.resume(kAdmittedInOneTurn);
}

void Admission::serve_without_connection() noexcept {
  while (upstream_.has_free_connections()) {
    Queue* const queue = without_connection_.pop_front();
    if (queue == nullptr) return;
    serve(*queue);
  }
}

}  // namespace sluice::forward
