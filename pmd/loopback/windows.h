// SPDX-License-Identifier: Apache-2.0
//
// Memory windows at both ends: the windows that a queue pair has bound on its side of the link, and access to
// the memory of the peer's windows. Only the reactor of the queue pair calls. The keys of steering tags are
// seq_cst where the initiator's hazard word must be ordered with them (LoopbackQueuePair::copy_remote()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/loopback/fabric.h"
#include "pmd/memory.h"

namespace sluice::rdma::loopback {

class LoopbackQueuePair;

constexpr std::uint32_t window_number(Rkey rkey) noexcept {
  return static_cast<std::uint32_t>(rkey) & (kMaxWindows - 1);
}

/// Windows that one queue pair has bound.
class BoundWindows {
 public:
  /// `owners` has the queue pair that has bound each window of the device, or null.
  BoundWindows(const LoopbackQueuePair& qp, std::vector<const LoopbackQueuePair*>& owners) noexcept
      : qp_(qp), owners_(owners) {}

  bool none() const noexcept { return count_ == 0; }
  bool has(std::uint32_t number) const noexcept { return number < owners_.size() && owners_[number] == &qp_; }
  /// Returns true if the device has the window and no queue pair has bound it.
  bool is_free(std::uint32_t number) const noexcept {
    return number < owners_.size() && owners_[number] == nullptr;
  }
  /// Binds a free window and publishes its steering tag. `arena_offset` is the offset of `bytes` in the
  /// arena.
  void bind(Side& own, std::uint32_t number, Rkey rkey, std::span<std::byte> bytes,
            std::uint64_t arena_offset, AccessFlags access) noexcept {
    SLUICE_INVARIANT_DEBUG(is_free(number) && count_ < owners_.size(), table_index);
    SLUICE_INVARIANT_DEBUG(window_number(rkey) == number, table_index);
    WindowEntry& tag = own.windows[number];
    tag.access.store(access, std::memory_order_relaxed);
    tag.address.store(reinterpret_cast<std::uintptr_t>(bytes.data()), std::memory_order_relaxed);
    tag.bytes.store(bytes.size(), std::memory_order_relaxed);
    tag.arena_offset.store(arena_offset, std::memory_order_relaxed);
    // Pairs with LoopbackQueuePair::copy_remote(): the address, the size and the access of the window.
    tag.key.store(static_cast<std::uint32_t>(rkey), std::memory_order_release);
    owners_[number] = &qp_;
    ++count_;
  }
  /// Frees a window whose steering tag has been cleared and that the peer no longer uses.
  void unbind(std::uint32_t number) noexcept {
    SLUICE_INVARIANT_DEBUG(count_ > 0 && has(number), table_index);
    owners_[number] = nullptr;
    --count_;
  }
  /// Revokes remote access to all windows, which stay bound.
  void clear_tags(Side& own) noexcept {
    for (std::uint32_t number = 0; count_ > 0 && number < owners_.size(); ++number)
      if (has(number)) own.windows[number].key.store(0, std::memory_order_seq_cst);
  }
  void unbind_all(Side& own) noexcept {
    static_cast<void>(SLUICE_INVARIANT(count_ <= owners_.size(), table_index));
    clear_tags(own);
    for (std::uint32_t number = 0; count_ > 0 && number < owners_.size(); ++number)
      if (has(number)) unbind(number);
  }

 private:
  const LoopbackQueuePair& qp_;
  std::vector<const LoopbackQueuePair*>& owners_;
  std::uint32_t count_ = 0;
};

/// Checks an access against the published window of `peer`, reading each word once. Returns null if the
/// access is refused.
inline std::byte* remote_memory(Fabric& fabric, const Side& peer, const WindowEntry& window,
                                std::uint64_t address, std::uint32_t bytes, AccessFlags needed) noexcept {
  const std::uint64_t base = window.address.load(std::memory_order_relaxed);
  const std::uint64_t room = window.bytes.load(std::memory_order_relaxed);
  if ((window.access.load(std::memory_order_relaxed) & needed) != needed) return nullptr;
  if (address < base || address - base > room || bytes > room - (address - base)) return nullptr;
  if (!fabric.across_processes()) return reinterpret_cast<std::byte*>(address);
  const std::uint64_t offset = window.arena_offset.load(std::memory_order_relaxed);
  const std::uint32_t arena = peer.arena.load(std::memory_order_relaxed);
  const std::uint64_t within = address - base;
  if (arena >= kMaxDevices || offset > fabric.arena_bytes() || within > fabric.arena_bytes() - offset ||
      bytes > fabric.arena_bytes() - offset - within)
    return nullptr;
  return fabric.arena(arena) + offset + within;
}

/// Copies the next bytes of a transfer of which `copied` bytes are done, at most `most`, between the pieces
/// and the peer's memory. Returns the number of bytes.
inline std::uint32_t copy_slice(std::span<const Sge> pieces, std::byte* remote, std::uint32_t copied,
                                std::uint32_t most, bool reading) noexcept {
  const std::uint32_t end = copied + most;
  std::uint32_t at = copied;
  std::uint32_t piece_start = 0;
  for (const Sge& piece : pieces) {
    const std::uint32_t piece_end = piece_start + piece.length;
    if (at == end) break;
    if (at < piece_end) {
      SLUICE_INVARIANT_DEBUG(at >= piece_start && at < end, buffer_bounds);
      const std::uint32_t bytes = smaller_of(piece_end, end) - at;
      std::byte* const local = piece.address + (at - piece_start);
      if (reading)
        std::memcpy(local, remote + at, bytes);
      else
        std::memcpy(remote + at, local, bytes);
      at += bytes;
    }
    piece_start = piece_end;
  }
  SLUICE_INVARIANT_DEBUG(at <= end, buffer_bounds);
  return at - copied;
}

}  // namespace sluice::rdma::loopback
