// SPDX-License-Identifier: Apache-2.0
//
// Calls whose RDMA Reads or Writes ended a connection with a remote access error. Confined to one reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::rpcrdma {

/// Remembers such calls, so that their retransmission is answered with ERR_CHUNK instead of ending the next
/// connection as well (RFC 8166, section 4.5.3; V1-039). Only the XID identifies a retransmission, and any
/// process on a host may connect from its address. Entries per host are therefore limited, the oldest is
/// replaced, and all of them expire.
class FailedTransfers {
 public:
  static constexpr std::size_t kEntries = 64;
  /// Maximum entries per host. A connection fails with one call. Linux has one connection per mount, or up to
  /// 16 with nconnect.
  static constexpr std::size_t kEntriesPerHost = 16;
  /// Lifetime of an entry, long enough for a client to reconnect: Linux waits up to 30 s between attempts.
  static constexpr std::uint64_t kLifetimeNs = 120'000'000'000;

  void add(const PeerAddress& peer, rpc::Xid xid, std::uint64_t now_ns) noexcept {
    room_for(peer) = {peer, xid, now_ns + kLifetimeNs};
    newest_until_ns_ = now_ns + kLifetimeNs;
  }
  /// Returns true if the call is remembered, and forgets it, because another call may use its XID later.
  bool take(const PeerAddress& peer, rpc::Xid xid, std::uint64_t now_ns) noexcept {
    if (now_ns >= newest_until_ns_) return false;
    for (Entry& entry : entries_) {
      if (entry.until_ns <= now_ns || entry.xid != xid || entry.peer != peer) continue;
      entry.until_ns = 0;
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    PeerAddress peer;
    rpc::Xid xid{};
    std::uint64_t until_ns = 0;  ///< zero: free
  };

  /// Returns the oldest entry of a host that has reached its limit. Otherwise returns the oldest entry of
  /// all, which is free or expired if any is.
  Entry& room_for(const PeerAddress& peer) noexcept {
    Entry* oldest = &entries_[0];
    Entry* oldest_of_peer = nullptr;
    std::size_t of_peer = 0;
    for (Entry& entry : entries_) {
      if (entry.until_ns < oldest->until_ns) oldest = &entry;
      if (entry.until_ns == 0 || entry.peer != peer) continue;
      ++of_peer;
      if (oldest_of_peer == nullptr || entry.until_ns < oldest_of_peer->until_ns) oldest_of_peer = &entry;
    }
    return of_peer < kEntriesPerHost ? *oldest : *oldest_of_peer;
  }

  std::array<Entry, kEntries> entries_{};
  std::uint64_t newest_until_ns_ = 0;
};

}  // namespace sluice::rpcrdma
