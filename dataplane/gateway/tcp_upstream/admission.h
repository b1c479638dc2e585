// SPDX-License-Identifier: Apache-2.0
//
// Which calls may be outstanding at an upstream. A call is sent when there is a number for it, and the memory
// that its reply may need: so a reply that has come never waits for another client. Of both each client has
// its share, and queues of its own; clients that wait are served in turn. Only the owning reactor may call;
// only the constructor allocates.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/paced_round.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/reply_memory.h"
#include "dataplane/segment/upstreams.h"

namespace sluice::tcp_upstream {

/// Period of reconnecting, of recycling connections, and of looking whether earlier calls have ended.
inline constexpr std::uint64_t kTickNs = 20'000'000;
/// Calls that are let in in one turn after they have waited for the same thing.
inline constexpr std::uint32_t kAdmittedInOneTurn = 64;

class Admission {
  struct ClientShare;

 public:
  enum class Lack : std::uint8_t { Nothing, Number, Memory, Connection, Turn };

  /// Setup. `clients` are the connections of the reactor; of `numbers` each of them is guaranteed one where
  /// there are least_for_equal_shares().
  Admission(rdma::Device& device, std::uint32_t numbers, const ReplyBuffers& buffers, std::uint32_t clients);

  /// The calls of one client that wait and need the same, in order of arrival.
  struct Queue final : ShareWaiter {
    void on_share() noexcept override { owner->with_share_ = this; }

    Admission* owner = nullptr;
    ClientShare* client = nullptr;
    ReplyNeed need = ReplyNeed::None;
    Lack lack = Lack::Nothing;  ///< of the first
    ForwardedCallList calls;
    QueueLink<Queue> link;  ///< in without_connection_ or behind_earlier_
  };

  /// Adds a call that awaits its admission to its queue. The caller serves the queue if the call is its first.
  Queue& enter(ForwardedCall& forwarded) noexcept;
  /// Takes what the first call of the queue needs and removes it; those behind it wait for their client's turn. Returns
  /// what the call lacks: then it waits, and has nothing.
  Lack let_in(Queue& queue) noexcept;
  /// The first call of the queue waits for what it lacks. Returns `lack`.
  Lack await(Queue& queue, Lack lack) noexcept;
  /// The call waits and is given up.
  void leave(ForwardedCall& forwarded) noexcept;
  /// The call, which had been started, is no longer outstanding.
  void finished(const ForwardedCall& forwarded) noexcept;
  /// The call needs its memory no more.
  void release(ForwardedCall& forwarded) noexcept;
  ReplyMemory& memory() noexcept { return memory_; }

  // Each of the next three returns a queue that has calls, for its first to be let in or to wait again, or null.

  /// Waits for a number (ReplyNeed::None) or memory and may take it now.
  Queue* next_with_share(ReplyNeed pool) noexcept;
  /// Waits for a connection to be dedicated.
  Queue* next_without_connection() noexcept { return without_connection_.pop_front(); }
  /// Waits for an earlier call of its client, and looks in its turn whether that has ended.
  Queue* next_behind_earlier() noexcept;
  /// Returns how many of them have their turn now.
  std::uint32_t due_behind_earlier(std::uint64_t now_ns) noexcept {
    return behind_earlier_round_.due(now_ns, behind_earlier_count_);
  }

  /// Of memory, for calls of this client.
  std::uint64_t held_bytes(std::uint32_t client) const noexcept;
  /// Calls that wait for each pool.
  using Waiting = std::array<std::uint32_t, segment::kUpstreamPools.size()>;
  void add_waiting(std::uint32_t client, Waiting& waiting) const noexcept;
  void publish(const Waiting& waiting,
               std::span<segment::PoolUse, segment::kUpstreamPools.size()> to) const noexcept;

  std::uint32_t clients() const noexcept { return numbers_.limits().accounts; }
  /// Calls that wait, of all clients.
  std::uint32_t waiting() const noexcept { return waiting_; }
  ForwardedCallList& waiting_of(std::uint32_t client, std::size_t need) noexcept {
    return shares_[client].queues[need].calls;
  }
  /// Calls that are outstanding, or about to be sent, of all clients.
  std::uint32_t outstanding() const noexcept { return numbers_.limits().elements - numbers_.free(); }
  /// Of one client.
  std::uint32_t numbers_of(std::uint32_t client) const noexcept { return shares_[client].numbers.held(); }
  /// Calls of the client that wait or are outstanding.
  std::uint32_t calls_of(std::uint32_t client) const noexcept;
  /// The client has more calls than its share of the numbers.
  bool lacks_numbers(std::uint32_t client) const noexcept;

 private:
  struct ClientShare {
    ShareAccount numbers;
    ShareAccount items;
    ShareAccount records;
    std::array<Queue, kReplyNeeds> queues;  ///< by what their calls need

    ShareAccount& memory(ReplyNeed need) noexcept { return need == ReplyNeed::Record ? records : items; }
  };

  ClientShare& share_of(const ForwardedCall& forwarded) noexcept {
    return shares_[forwarded.call->client()->number()];
  }
  Queue& queue_of(const ForwardedCall& forwarded) noexcept {
    return share_of(forwarded).queues[static_cast<std::size_t>(forwarded.need)];
  }
  ShareLedger& ledger(ReplyNeed pool) noexcept {
    return pool == ReplyNeed::None ? numbers_ : memory_.of(pool).ledger();
  }

  ReplyMemory memory_;
  ShareLedger numbers_;
  FixedArray<ClientShare> shares_;  ///< by number of the client
  using Queues = IntrusiveQueue<Queue, &Queue::link>;
  Queues without_connection_;
  Queues behind_earlier_;
  std::uint32_t behind_earlier_count_ = 0;
  PacedRound behind_earlier_round_{kTickNs};
  std::uint32_t waiting_ = 0;
  Queue* with_share_ = nullptr;  ///< of next_with_share()
};

}  // namespace sluice::tcp_upstream
