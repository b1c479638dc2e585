// SPDX-License-Identifier: Apache-2.0
//
// Calls whose RDMA Reads or Writes ended a connection with a remote access error. One reactor.
#pragma once

#include <array>
#include <cstddef>

#include "dataplane/base/net_address.h"
#include "dataplane/rpc/message.h"

namespace sluice::rpcrdma {

/// Their retransmission is answered with ERR_CHUNK instead of ending the next connection as well (RFC 8166,
/// section 4.5.3; V1-039). The newest kEntries are remembered.
class FailedTransfers {
 public:
  static constexpr std::size_t kEntries = 64;

  void add(const PeerAddress& peer, rpc::Xid xid) noexcept {
    Entry& entry = entries_[next_++ % kEntries];
    live_ += entry.live ? 0 : 1;
    entry = {peer, xid, true};
  }
  /// Forgets the entry that it finds: the XID may come again for another call.
  bool take(const PeerAddress& peer, rpc::Xid xid) noexcept {
    if (live_ == 0) return false;
    for (Entry& entry : entries_) {
      if (!entry.live || entry.xid != xid || entry.peer != peer) continue;
      entry.live = false;
      --live_;
      return true;
    }
    return false;
  }

 private:
  struct Entry {
    PeerAddress peer;
    rpc::Xid xid{};
    bool live = false;
  };
  std::array<Entry, kEntries> entries_{};
  std::size_t next_ = 0;
  std::size_t live_ = 0;
};

}  // namespace sluice::rpcrdma
