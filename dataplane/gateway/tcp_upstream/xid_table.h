// SPDX-License-Identifier: Apache-2.0
//
// The XIDs of the calls that are outstanding at one upstream. XIDs are assigned in order, so that an XID is
// reused only after all 2^32 values. An upstream may treat a call with a recent XID as a retransmission and
// answer it with an old reply (RFC 5531, section 9). Only the owning reactor may call; only the constructor
// allocates.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"

namespace sluice::tcp_upstream {

class XidTable {
 public:
  /// Setup. `calls` is the maximum number of calls in the table, and `first` is an arbitrary XID.
  XidTable(std::uint32_t calls, std::uint32_t first) : slots_(std::bit_ceil(2 * calls)), next_(first) {}

  /// Returns the next XID that no call in the table has. Skips the XIDs of used slots. At most half of the
  /// slots are used, and each is skipped once per pass over the table.
  std::uint32_t next() noexcept {
    while (slot(next_) != nullptr) ++next_;
    return next_++;
  }
  /// Adds a call whose XID is from next(), or replaces the call that has the same XID.
  void add(ForwardedCall& forwarded) noexcept {
    ForwardedCall*& entry = slot(forwarded.xid);
    static_cast<void>(SLUICE_INVARIANT(entry == nullptr || entry->xid == forwarded.xid, xid_table));
    entry = &forwarded;
  }
  /// Removes a call that add() has added. Never removes the entry of another call.
  void remove(const ForwardedCall& forwarded) noexcept {
    ForwardedCall*& entry = slot(forwarded.xid);
    if (SLUICE_INVARIANT(entry == &forwarded, xid_table)) entry = nullptr;
  }
  /// Returns the call with this XID, or null.
  ForwardedCall* find(std::uint32_t xid) noexcept {
    ForwardedCall* const forwarded = slot(xid);
    return forwarded != nullptr && forwarded->xid == xid ? forwarded : nullptr;
  }

 private:
  ForwardedCall*& slot(std::uint32_t xid) noexcept { return slots_[xid & (slots_.size() - 1)]; }

  std::vector<ForwardedCall*> slots_;  ///< indexed by the low bits of the XID
  std::uint32_t next_;
};

}  // namespace sluice::tcp_upstream
