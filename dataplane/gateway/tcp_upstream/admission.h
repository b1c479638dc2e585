// SPDX-License-Identifier: Apache-2.0
//
// Admission control for the calls that may be outstanding at an upstream. A call is sent once it holds a
// number, of which there are UpstreamConfig::numbers(), and the memory that its reply may need, so a received
// reply never waits for another client. Each client has a share of the numbers and of the memory, and its own
// queues. Waiting clients are served round-robin. Only the owning reactor may call; only the constructor
// allocates.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "dataplane/base/clock.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"
#include "dataplane/segment/gateways.h"

namespace sluice::tcp_upstream {

/// Period in nanoseconds of reconnecting, of recycling connections, and of checking whether earlier calls
/// have ended.
inline constexpr std::uint64_t kTickNs = 20'000'000;
/// Maximum number of waiting calls admitted per resource in one loop iteration.
inline constexpr std::uint32_t kAdmittedInOneTurn = 64;

class Admission {
  struct ClientShare;

 public:
  /// Resource that a call waits for. EarlierCall: an earlier call of the same client has to end first.
  enum class Lack : std::uint8_t { Nothing, Number, Memory, Connection, EarlierCall };

  /// Setup. `clients` is the number of connections of the reactor. Each client is guaranteed one number if
  /// `numbers` is at least least_for_equal_shares().
  Admission(rdma::Device& device, std::uint32_t numbers, const ReplyBuffers& buffers, std::uint32_t clients);

  /// Waiting calls of one client with the same ReplyNeed, in order of arrival.
  struct Queue final : ShareWaiter {
    void on_share() noexcept override { owner->with_share_ = this; }

    Admission* owner = nullptr;
    ClientShare* client = nullptr;
    ReplyNeed need = ReplyNeed::None;
    Lack lack = Lack::Nothing;  ///< what the first call waits for
    ForwardedCallList calls;
    QueueLink<Queue> link;  ///< link in without_connection_ or behind_earlier_
  };

  /// Adds a call that awaits admission to its queue. If the call is the first, the caller admits it or calls
  /// await().
  Queue& enter(ForwardedCall& forwarded) noexcept {
    SLUICE_INVARIANT_DEBUG(forwarded.awaits_admission(), gateway_state);
    Queue& queue = queue_of(forwarded);
    queue.calls.push_back(forwarded);
    ++waiting_;
    return queue;
  }
  /// Acquires the number and memory of the queue's first call, and removes the call from the queue. The
  /// remaining calls wait for the client's next round. Returns what the call lacks; unless that is Nothing,
  /// the call waits and holds neither.
  Lack let_in(Queue& queue) noexcept {
    SLUICE_INVARIANT_DEBUG(!queue.calls.empty() && queue.owner == this, list_membership);
    ForwardedCall& first = *queue.calls.first();
    ClientShare& client = *queue.client;
    if (!numbers_.may_take(client.numbers)) return await(queue, Lack::Number);
    if (queue.need != ReplyNeed::None) {
      static_cast<void>(SLUICE_INVARIANT(first.memory == nullptr, pool_balance));
      first.memory = memory_.of(queue.need).acquire(client.memory(queue.need));
      if (first.memory == nullptr) return await(queue, Lack::Memory);
    }
    const bool taken = numbers_.take(client.numbers);
    SLUICE_INVARIANT_DEBUG(taken, pool_balance);
    queue.calls.remove(first);
    if (SLUICE_INVARIANT(waiting_ > 0, pool_balance)) --waiting_;
    queue.lack = Lack::Nothing;
    if (!queue.calls.empty()) numbers_.await(client.numbers, queue);
    return Lack::Nothing;
  }
  /// Makes the first call of the queue wait for `lack`. Returns `lack`.
  Lack await(Queue& queue, Lack lack) noexcept;
  /// Removes a waiting call from its queue, because the call is given up.
  void remove(ForwardedCall& forwarded) noexcept;
  /// Gives back the number of a started call, which is no longer outstanding.
  void finished(const ForwardedCall& forwarded) noexcept {
    SLUICE_INVARIANT_DEBUG(share_of(forwarded).numbers.held() > 0, pool_balance);
    numbers_.give_back(share_of(forwarded).numbers);
  }
  /// Releases the memory of the call.
  void release(ForwardedCall& forwarded) noexcept {
    if (std::byte* const memory = std::exchange(forwarded.memory, nullptr))
      memory_.of(forwarded.need).release(memory);
  }
  ReplyMemory& memory() noexcept { return memory_; }

  // The next three functions return null or a queue that has calls. The caller admits the first call of the
  // queue or makes it wait again.

  /// Returns a queue that waited for a number (ReplyNeed::None) or for memory, and may acquire it now.
  Queue* next_with_share(ReplyNeed pool) noexcept;
  /// Returns a queue that waits for a dedicated connection.
  Queue* next_without_connection() noexcept { return without_connection_.pop_front(); }
  /// Returns a queue that waits for an earlier call of its client. The caller checks whether that call has
  /// ended.
  Queue* next_behind_earlier() noexcept;
  /// Returns how many queues next_behind_earlier() should return in this loop iteration.
  std::uint32_t due_behind_earlier(std::uint64_t now_ns) noexcept {
    return behind_earlier_round_.due(now_ns, behind_earlier_count_);
  }

  /// Returns the bytes of reply memory that the calls of a client hold.
  std::uint64_t held_bytes(std::uint32_t client) const noexcept;
  /// Number of calls that wait for each pool.
  using Waiting = std::array<std::uint32_t, segment::kUpstreamPools.size()>;
  /// Adds the client's calls that wait for a pool to `waiting`.
  void add_waiting(std::uint32_t client, Waiting& waiting) const noexcept;
  void publish(const Waiting& waiting,
               std::span<segment::PoolUse, segment::kUpstreamPools.size()> to) const noexcept;

  std::uint32_t clients() const noexcept { return numbers_.limits().accounts; }
  /// Returns the number of waiting calls of all clients.
  std::uint32_t waiting() const noexcept { return waiting_; }
  ForwardedCallList& waiting_of(std::uint32_t client, std::size_t need) noexcept {
    return shares_[client].queues[need].calls;
  }
  /// Returns the number of calls of all clients that are outstanding or about to be sent.
  std::uint32_t outstanding() const noexcept { return numbers_.limits().elements - numbers_.free(); }
  /// Returns how many numbers a client holds, one per call that is outstanding or about to be sent.
  std::uint32_t numbers_of(std::uint32_t client) const noexcept { return shares_[client].numbers.held(); }
  /// Returns the number of the client's calls that wait or are outstanding.
  std::uint32_t calls_of(std::uint32_t client) const noexcept;
  /// Returns true if the client has more calls than its share of the numbers.
  bool lacks_numbers(std::uint32_t client) const noexcept;

 private:
  struct ClientShare {
    ShareAccount numbers;
    ShareAccount items;
    ShareAccount records;
    std::array<Queue, kReplyNeeds> queues;  ///< indexed by ReplyNeed

    ShareAccount& memory(ReplyNeed need) noexcept { return need == ReplyNeed::Record ? records : items; }
  };

  ClientShare& share_of(const ForwardedCall& forwarded) noexcept {
    SLUICE_INVARIANT_DEBUG(forwarded.call->client()->number() < shares_.size(), table_index);
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
  FixedArray<ClientShare> shares_;  ///< indexed by client number
  using Queues = IntrusiveQueue<Queue, &Queue::link>;
  Queues without_connection_;
  Queues behind_earlier_;
  std::uint32_t behind_earlier_count_ = 0;
  PacedRound behind_earlier_round_{kTickNs};
  std::uint32_t waiting_ = 0;
  Queue* with_share_ = nullptr;  ///< set by Queue::on_share() for next_with_share()
};

}  // namespace sluice::tcp_upstream
