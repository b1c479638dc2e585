// SPDX-License-Identifier: Apache-2.0
//
// The XIDs of the calls that are outstanding at one upstream. They are given out in order, so that none comes
// again before all 2^32 have had their turn: the upstream takes a call with a known XID for a repetition, and
// may answer it with an old reply (RFC 5531, section 9). Only the owning reactor may call; only the
// constructor allocates.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"

namespace sluice::tcp_upstream {

class XidTable {
 public:
  /// For at most `calls` at once; `first` is any XID.
  XidTable(std::uint32_t calls, std::uint32_t first) : slots_(std::bit_ceil(2 * calls)), next_(first) {}

  /// Not of a call in the table. Steps over those whose slot is taken: at most half of all slots are, and each
  /// is stepped over once while the others have their turn.
  std::uint32_t next() noexcept {
    while (slot(next_) != nullptr) ++next_;
    return next_++;
  }
  /// Adds a call with an XID of next(), or replaces the call that has the same XID.
  void add(ForwardedCall& forwarded) noexcept {
    ForwardedCall*& entry = slot(forwarded.xid);
    static_cast<void>(SLUICE_INVARIANT(entry == nullptr || entry->xid == forwarded.xid, xid_table));
    entry = &forwarded;
  }
  /// Removes a call that add() has added; another call's entry stays.
  void remove(const ForwardedCall& forwarded) noexcept {
    ForwardedCall*& entry = slot(forwarded.xid);
    if (SLUICE_INVARIANT(entry == &forwarded, xid_table)) entry = nullptr;
  }
  /// Null: there is none.
  ForwardedCall* find(std::uint32_t xid) noexcept {
    ForwardedCall* const forwarded = slot(xid);
    return forwarded != nullptr && forwarded->xid == xid ? forwarded : nullptr;
  }

 private:
  ForwardedCall*& slot(std::uint32_t xid) noexcept { return slots_[xid & (slots_.size() - 1)]; }

  std::vector<ForwardedCall*> slots_;  ///< by the low bits of the XID
  std::uint32_t next_;
};

}  // namespace sluice::tcp_upstream
