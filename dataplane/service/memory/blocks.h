// SPDX-License-Identifier: Apache-2.0
//
// Blocks of registered memory for file data: large ones of 64 KiB, and small ones of 4 KiB carved from a
// large one.
//
// An allocated block is zeroed. A freed block is dirty until it is scrubbed, in the background or on demand,
// so that no file ever shows another's data. A pinned block (an RDMA Read or Write is in flight on it) that
// is freed becomes dirty on the last unpin(). All operations are O(1); scrubbing is O(block size).
//
// Only the owning reactor may call; the constructor is setup. The caller owns the blocks that it allocated,
// the device owns the memory, which outlives the pool. Errors: allocation returns no block (zero).
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/service/memory/lazy_array.h"
#include "pmd/memory.h"

namespace sluice::service::memory {

inline constexpr std::uint32_t kSmallBytes = 4096;
inline constexpr std::uint32_t kLargeBytes = 65536;
inline constexpr std::uint32_t kSmallPerLarge = kLargeBytes / kSmallBytes;

/// Index of the block's first 4 KiB page, plus one. Zero means no block.
using Block = std::uint32_t;

class BlockPool {
 public:
  /// Creates a pool of the region, which must be zeroed like memory from Device::allocate_memory().
  explicit BlockPool(rdma::MemoryRegion region);

  /// Allocates a large block. Returns zero (no block) when memory is exhausted.
  Block allocate_large() noexcept;
  Block allocate_small() noexcept;
  void free_large(Block block) noexcept { give_back(block, false); }
  void free_small(Block block) noexcept { give_back(block, true); }

  void pin(Block block) noexcept { ++pages_[block].pins; }
  void unpin(Block block) noexcept;
  std::uint32_t pins(Block block) const noexcept { return pages_[block].pins; }

  /// Marks a block: the bytes after the end of its file have to be cleared once it is no longer pinned.
  /// Freeing the block clears the mark.
  void mark_tail(Block block) noexcept { pages_[block].tail = 1; }
  void clear_tail_mark(Block block) noexcept { pages_[block].tail = 0; }
  bool tail_marked(Block block) const noexcept { return pages_[block].tail != 0; }

  std::byte* data(Block block) const noexcept {
    return region_.bytes.data() + std::size_t{block - 1} * kSmallBytes;
  }
  rdma::Lkey lkey() const noexcept { return region_.lkey; }
  std::uint64_t capacity_bytes() const noexcept { return std::uint64_t{large_count_} * kLargeBytes; }
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }

  /// Zeroes one dirty block. Returns false if there was none.
  bool scrub_one() noexcept;

 private:
  struct Page {
    std::uint32_t next = 0;
    std::uint32_t previous = 0;
    std::uint32_t pins = 0;
    std::uint8_t doomed = 0;      ///< freed while pinned
    std::uint8_t small = 0;       ///< a small block starts here
    std::uint8_t free_small = 0;  ///< first page of a divided large block: number of free small blocks
    std::uint8_t clean = 0;       ///< free small block: in clean_small_, else in dirty_small_
    std::uint8_t tail = 0;        ///< set by mark_tail()
  };
  struct List {
    std::uint32_t head = 0;
  };
  void push(List& list, Block block) noexcept;
  Block pop(List& list) noexcept;
  void remove(List& list, Block block) noexcept;
  void give_back(Block block, bool small) noexcept;
  void make_dirty(Block block) noexcept;
  void join_small(Block parent) noexcept;
  Block parent_of(Block small) const noexcept { return (small - 1) / kSmallPerLarge * kSmallPerLarge + 1; }
  bool divide_large() noexcept;

  rdma::MemoryRegion region_;
  std::uint32_t large_count_;
  std::uint32_t never_used_ = 0;  ///< large blocks from this index on were never allocated
  std::uint64_t free_bytes_;
  LazyArray<Page> pages_;  ///< indexed by Block
  List clean_large_;
  List dirty_large_;
  List clean_small_;
  List dirty_small_;
};

}  // namespace sluice::service::memory
