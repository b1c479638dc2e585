// SPDX-License-Identifier: Apache-2.0
//
// Calls that come again, at one upstream on one reactor: who waits for an earlier one of the same client, who
// gets its reply, and what is known of calls whose client has gone. Only the owning reactor may call; only the
// constructor allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/orphans.h"
#include "dataplane/gateway/tcp_upstream/request_cache.h"
#include "dataplane/segment/upstreams.h"

namespace sluice::tcp_upstream {

class Repeats {
 public:
  /// Setup. `orphans` may be at the upstream at once. The upstream outlives it. Without a cache it has one of
  /// its own, which is enough for a single reactor.
  Repeats(Upstream& upstream, std::shared_ptr<RequestCache> cache, std::uint32_t clients,
          std::uint32_t orphans);

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
  Upstream& upstream_;
  const std::shared_ptr<RequestCache> cache_;
  std::vector<RequestHost*> hosts_;  ///< of clients by number; null until their first call
  Orphans orphans_;
};

}  // namespace sluice::tcp_upstream
