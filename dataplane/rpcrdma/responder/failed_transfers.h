// SPDX-License-Identifier: Apache-2.0
//
// Calls whose RDMA Reads or Writes ended a connection with a remote access error. One reactor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::rpcrdma {

/// Their retransmission is answered with ERR_CHUNK instead of ending the next connection as well (RFC 8166,
/// section 4.5.3; V1-039). An XID is all that tells a retransmission from another call, and everybody on a
/// host may connect from its address: so a host has few entries, of which the oldest makes room, and none
/// lasts.
class FailedTransfers {
 public:
  static constexpr std::size_t kEntries = 64;
  /// A connection fails with one call. Linux has one connection per mount, or up to 16 with nconnect.
  static constexpr std::size_t kEntriesPerHost = 16;
  /// Time for a client to connect again: Linux waits up to 30 s between attempts.
  static constexpr std::uint64_t kLifetimeNs = 120'000'000'000;

  void add(const PeerAddress& peer, rpc::Xid xid, std::uint64_t now_ns) noexcept {
    room_for(peer) = {peer, xid, now_ns + kLifetimeNs};
    newest_until_ns_ = now_ns + kLifetimeNs;
  }
  /// Forgets the entry that it finds: the XID may come again for another call.
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

  /// The oldest entry of a host that has as many as it may, else the oldest of all: one that is free or over,
  /// if there is one.
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
