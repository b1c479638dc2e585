// SPDX-License-Identifier: Apache-2.0
//
// Duplicate detection for the calls at one upstream on one reactor. Decides whether a call waits for an
// earlier call of its client or gets the cached reply of its first transmission, and keeps the calls at the
// upstream whose clients are disconnected. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/tcp_upstream/duplicate_request_cache.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"
#include "dataplane/segment/gateways.h"

namespace sluice::tcp_upstream {

/// Calls at an upstream whose clients are disconnected. An orphan replaces such a call until the upstream has
/// executed the call or can no longer execute it.
class Orphans {
 public:
  /// Setup. `most` is the maximum number of orphans.
  explicit Orphans(std::uint32_t most) : calls_(most) {
    free_.reserve(most);
    for (ForwardedCall& call : calls_) free_.push_back(&call);
  }

  bool full() const noexcept { return free_.empty(); }
  bool none() const noexcept { return free_.size() == calls_.size(); }
  /// Returns a free orphan. Requires that full() is false.
  ForwardedCall& take() noexcept {
    SLUICE_INVARIANT_DEBUG(!full(), pool_balance);
    ForwardedCall& call = *free_.back();
    free_.pop_back();
    return call;
  }
  /// Frees an orphan that is on no connection.
  void give_back(ForwardedCall& call) noexcept {
    if (SLUICE_INVARIANT(call.connection == nullptr && !none(), pool_balance)) free_.push_back(&call);
  }
  /// Returns the maximum number of orphans.
  std::uint32_t places() const noexcept { return static_cast<std::uint32_t>(calls_.size()); }
  /// Visits the orphans among the next `places` places, round-robin.
  template <typename Visit>
  void visit_next(std::uint32_t places, Visit&& visit) noexcept {
    for (; places > 0; --places) {
      ForwardedCall& call = calls_[next_];
      SLUICE_INVARIANT_DEBUG(call.connection == nullptr || call.call == nullptr, gateway_state);
      next_ = next_ + 1 < calls_.size() ? next_ + 1 : 0;
      if (call.connection != nullptr) visit(call);
    }
  }

 private:
  std::vector<ForwardedCall> calls_;
  std::vector<ForwardedCall*> free_;
  std::size_t next_ = 0;
};

/// Maximum number of suspects. A new suspect replaces the oldest one, which is recognised again only after
/// further failures.
inline constexpr std::size_t kMaxPoisonCalls = 16;

/// Calls after each of whose transmissions the connection was lost. A client's retransmission of such a call
/// is sent on the client's dedicated connection, where it does not affect the calls of other clients.
class PoisonCalls {
 public:
  bool none() const noexcept { return added_ == 0; }
  /// Adds a call, identified by the checksum of its message.
  void add(std::uint64_t call) noexcept { calls_[added_++ % kMaxPoisonCalls] = call; }
  bool contains(std::uint64_t call) const noexcept {
    return has_element(std::span(calls_).first(smaller_of<std::uint64_t>(added_, kMaxPoisonCalls)), call);
  }

 private:
  std::array<std::uint64_t, kMaxPoisonCalls> calls_{};
  std::uint64_t added_ = 0;
};

class DuplicateRequests {
 public:
  /// Setup. `shared` outlives this object, and its configuration has a request cache.
  explicit DuplicateRequests(UpstreamShared& shared);

  enum class Decision : std::uint8_t {
    Now,     ///< proceeds; its retransmissions are recognised from now on
    Replay,  ///< gets reply_to() as its reply
    Later,   ///< waits until earlier calls of its client have ended
  };
  /// Decides whether a call that awaits its admission proceeds, is answered from the cache, or waits.
  Decision decide(ForwardedCall& forwarded) noexcept {
    if (forwarded.entry != nullptr) return Decision::Now;
    SLUICE_INVARIANT_DEBUG(forwarded.call->client()->number() < hosts_.size(), table_index);
    RequestHost*& host = hosts_[forwarded.call->client()->number()];
    if (host == nullptr) host = cache_->enter(forwarded.call->peer());
    // Pairs with no_longer_earlier(): the cache has the results of all earlier calls.
    if (host == nullptr || host->earlier.load(std::memory_order_acquire) > 0) return Decision::Later;
    forwarded.host = host;
    // The retransmission of a signed call has another signature, so only the upstream can recognise it.
    if (forwarded.repetition == service::Repetition::Harmless || forwarded.keeps_xid) return Decision::Now;
    return look_up(forwarded);
  }
  /// Returns the cached reply of a call for which decide() has returned Replay.
  std::span<const std::byte> reply_to(const ForwardedCall& forwarded) const noexcept {
    SLUICE_INVARIANT_DEBUG(forwarded.entry != nullptr, pool_balance);
    return cache_->reply_of(*forwarded.entry);
  }
  /// Removes the cache entry from a replayed call and returns it. The caller passes it to let_go().
  static DuplicateRequestCache::Entry* take_reply(ForwardedCall& forwarded) noexcept {
    return std::exchange(forwarded.entry, nullptr);
  }
  /// Releases a cache entry that take_reply() has returned.
  void let_go(DuplicateRequestCache::Entry* replayed) noexcept;
  /// Caches a successful reply for retransmissions of the call, if the call must not be executed twice.
  void answered(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept {
    if (forwarded.entry != nullptr && forwarded.repetition == service::Repetition::OnlyOnce)
      keep_reply(forwarded, record);
  }
  /// Releases the cache entry of a call that is no longer at the upstream, and reverts note_earlier().
  void finished(ForwardedCall& forwarded) noexcept {
    if (forwarded.entry != nullptr) release_entry(forwarded);
    if (forwarded.earlier) no_longer_earlier(forwarded);
  }

  /// Makes later calls of the client wait for a call that the upstream may still execute after the client's
  /// connection has ended. Has no effect on a call that may be executed twice.
  void note_earlier(ForwardedCall& forwarded) noexcept;
  /// Reverts note_earlier(), if it had an effect.
  void no_longer_earlier(ForwardedCall& forwarded) noexcept;
  /// Moves the state of a call at the upstream to an orphan, and returns the orphan. Returns null if none is
  /// free.
  ForwardedCall* adopt(ForwardedCall& forwarded) noexcept;
  void give_back(ForwardedCall& orphan) noexcept { orphans_.give_back(orphan); }
  Orphans& orphans() noexcept { return orphans_; }
  const Orphans& orphans() const noexcept { return orphans_; }
  /// Returns whether the client has retransmitted the call of an orphan since the last query. Requires that
  /// the message of the orphan was kept.
  bool take_asked_again(ForwardedCall& orphan) noexcept { return cache_->take_asked_again(*orphan.entry); }
  /// Returns the checksum of a message without its XID.
  std::uint64_t checksum(std::span<const std::byte> message) const noexcept {
    return cache_->checksum(message);
  }
  void client_gone(std::uint16_t client) noexcept;

 private:
  Decision look_up(ForwardedCall& forwarded) noexcept;
  void keep_reply(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept;
  void release_entry(ForwardedCall& forwarded) noexcept;

  UpstreamShared& shared_;
  DuplicateRequestCache* const cache_;
  std::vector<RequestHost*> hosts_;  ///< indexed by client number; null until the client's first call
  Orphans orphans_;
};

}  // namespace sluice::tcp_upstream
