// SPDX-License-Identifier: Apache-2.0
//
// Calls that come again, at one upstream on one reactor: who waits for an earlier one of the same client, who
// gets its reply, and what is known of calls whose client has gone. Only the owning reactor may call; only the
// constructor allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/request_cache.h"
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"
#include "dataplane/segment/upstreams.h"

namespace sluice::tcp_upstream {

/// Calls at an upstream whose clients are disconnected. An orphan takes the place of such a call until the upstream
/// has executed the call or will not execute it.
class Orphans {
 public:
  /// Setup.
  explicit Orphans(std::uint32_t most) : calls_(most) {
    free_.reserve(most);
    for (ForwardedCall& call : calls_) free_.push_back(&call);
  }

  bool full() const noexcept { return free_.empty(); }
  bool none() const noexcept { return free_.size() == calls_.size(); }
  /// Not while full().
  ForwardedCall& take() noexcept {
    ForwardedCall& call = *free_.back();
    free_.pop_back();
    return call;
  }
  /// Frees an orphan that is on no connection.
  void give_back(ForwardedCall& call) noexcept {
    if (SLUICE_INVARIANT(call.connection == nullptr && !none(), pool_balance)) free_.push_back(&call);
  }
  /// Returns how many orphans there can be.
  std::uint32_t places() const noexcept { return static_cast<std::uint32_t>(calls_.size()); }
  /// Visits the orphans in the next `places`, round-robin.
  template <typename Visit>
  void visit_next(std::uint32_t places, Visit&& visit) noexcept {
    for (; places > 0; --places) {
      ForwardedCall& call = calls_[next_];
      next_ = next_ + 1 < calls_.size() ? next_ + 1 : 0;
      if (call.connection != nullptr) visit(call);
    }
  }

 private:
  std::vector<ForwardedCall> calls_;
  std::vector<ForwardedCall*> free_;
  std::size_t next_ = 0;
};

/// The oldest is forgotten, and has to earn its strikes again.
inline constexpr std::size_t kMaxSuspects = 16;

/// Calls that ended every connection they were sent on. A client's retransmission of such a call is sent on the client's
/// dedicated connection, where it ends no other client's calls.
class Suspects {
 public:
  bool none() const noexcept { return added_ == 0; }
  /// Adds a call, which the checksum of its message identifies.
  void add(std::uint64_t call) noexcept { calls_[added_++ % kMaxSuspects] = call; }
  bool contains(std::uint64_t call) const noexcept {
    return has_element(std::span(calls_).first(smaller_of<std::uint64_t>(added_, kMaxSuspects)), call);
  }

 private:
  std::array<std::uint64_t, kMaxSuspects> calls_{};
  std::uint64_t added_ = 0;
};

class Repeats {
 public:
  /// Setup. `shared` outlives the object. Without a configured cache, it allocates one, which is enough for
  /// a single reactor.
  explicit Repeats(UpstreamShared& shared);

  enum class Turn : std::uint8_t {
    Now,     ///< the call is recognised from now on
    Replay,  ///< reply_to() is its reply
    Later,   ///< calls that its client has made before have to end first
  };
  /// Decides about a call that awaits its admission.
  Turn turn_of(ForwardedCall& forwarded) noexcept;
  /// Of a call that is replayed.
  std::span<const std::byte> reply_to(const ForwardedCall& forwarded) const noexcept {
    return cache_->reply_of(*forwarded.entry);
  }
  /// Takes it out of the call; for let_go().
  static RequestCache::Entry* take_reply(ForwardedCall& forwarded) noexcept {
    return std::exchange(forwarded.entry, nullptr);
  }
  void let_go(RequestCache::Entry* replayed) noexcept;
  /// The upstream has answered: for the call that comes again.
  void answered(ForwardedCall& forwarded, std::span<const std::byte> record) noexcept;
  /// The call is not at the upstream any more.
  void finished(ForwardedCall& forwarded) noexcept;

  /// The client has gone while the upstream may execute its call.
  void note_earlier(ForwardedCall& forwarded) noexcept;
  void no_longer_earlier(ForwardedCall& forwarded) noexcept;
  /// What stands for such a call from now on. Null: there are too many.
  ForwardedCall* adopt(ForwardedCall& forwarded) noexcept;
  void give_back(ForwardedCall& orphan) noexcept { orphans_.give_back(orphan); }
  Orphans& orphans() noexcept { return orphans_; }
  const Orphans& orphans() const noexcept { return orphans_; }
  /// Of an orphan that was kept: its client has repeated it since this was asked.
  bool take_asked_again(ForwardedCall& orphan) noexcept { return cache_->take_asked_again(*orphan.entry); }
  /// Of a message, but for its XID.
  std::uint64_t checksum(std::span<const std::byte> message) const noexcept {
    return cache_->checksum(message);
  }
  void client_gone(std::uint16_t client) noexcept;

 private:
  UpstreamShared& shared_;
  RequestCache* const cache_;
  std::vector<RequestHost*> hosts_;  ///< of clients by number; null until their first call
  Orphans orphans_;
};

}  // namespace sluice::tcp_upstream
