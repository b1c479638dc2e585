// SPDX-License-Identifier: Apache-2.0
//
// Which calls may be outstanding at an upstream. Each client has its share of the numbers there are, and a
// queue of its own; clients that wait are served in turn. So a client whose calls hang keeps others from
// nothing but what it was lent. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <cstdint>
#include <memory>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/service/forward/forwarded_call.h"

namespace sluice::forward {

/// Calls that are let in in one turn after they have waited.
inline constexpr std::uint32_t kAdmittedInOneTurn = 64;

class Admission {
 public:
  enum class Lack : std::uint8_t { Nothing, Number, Connection };

  /// Setup. `clients` are the connections of the reactor; of `numbers` each of them is guaranteed one where
  /// there are least_for_equal_shares(). The upstream outlives it.
  Admission(Upstream& upstream, std::uint32_t numbers, std::uint32_t clients);

  /// A call in State::AwaitingXid. Upstream::start() takes it, now or when it is its client's turn. Returns
  /// what it waits for.
  Lack enter(ForwardedCall& forwarded) noexcept;
  /// The call waits and is given up.
  void leave(ForwardedCall& forwarded) noexcept;
  /// The call, which had been started, is no longer outstanding.
  void finished(const ForwardedCall& forwarded) noexcept;

  /// Once in a turn: lets in those for whom there is a number now.
  void serve_waiting() noexcept;
  /// Connections can be dedicated again.
  void serve_without_connection() noexcept;

  /// Calls that wait, of all clients.
  std::uint32_t waiting() const noexcept { return waiting_; }
  ForwardedCallList& waiting_of(std::uint32_t client) noexcept { return queues_[client].calls; }
  /// The client has more calls than its share of the numbers.
  bool lacks_numbers(std::uint32_t client) const noexcept {
    return !queues_[client].calls.empty() && queues_[client].lack == Lack::Number;
  }
  std::uint32_t clients() const noexcept { return numbers_.limits().accounts; }

 private:
  /// The calls of one client that wait, in order of arrival.
  struct Queue final : ShareWaiter {
    void on_share() noexcept override { owner->serve(*this); }

    Admission* owner = nullptr;
    ShareAccount numbers;
    ForwardedCallList calls;
    Lack lack = Lack::Nothing;  ///< of the first
    QueueLink<Queue> link;      ///< in without_connection_
  };

  Queue& queue_of(const ForwardedCall& forwarded) noexcept {
    return queues_[forwarded.call->client()->number()];
  }
  void serve(Queue& queue) noexcept;
  void await(Queue& queue) noexcept;

  Upstream& upstream_;
  ShareLedger numbers_;
  std::unique_ptr<Queue[]> queues_;  ///< by number of the client
  IntrusiveQueue<Queue, &Queue::link> without_connection_;
  std::uint32_t waiting_ = 0;
};

}  // namespace sluice::forward
