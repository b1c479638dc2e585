// SPDX-License-Identifier: Apache-2.0
//
// Blocks of registered memory for file data: large ones of 64 KiB, and small ones of 4 KiB that share a large
// one.
//
// A block handed out is zero. One that is given back is dirty until it has been scrubbed, in the background
// or when it is needed, so that no file ever shows another's data. A pinned block (an RDMA Read or Write is
// under way in it) that is given back becomes dirty when the last pin goes. All operations are O(1),
// scrubbing is O(block).
#pragma once

#include <cstdint>

#include "dataplane/service/memory/lazy_array.h"
#include "pmd/device.h"

namespace sluice::service::memory {

inline constexpr std::uint32_t kSmallBytes = 4096;
inline constexpr std::uint32_t kLargeBytes = 65536;
inline constexpr std::uint32_t kSmallPerLarge = kLargeBytes / kSmallBytes;

/// Number of the block's first 4 KiB page, plus one; zero is no block.
using Block = std::uint32_t;

class BlockPool {
 public:
  /// The region's bytes are zero (Device::allocate_memory()).
  explicit BlockPool(rdma::MemoryRegion region);

  /// No block (zero) when memory is used up.
  Block allocate_large() noexcept;
  Block allocate_small() noexcept;
  void free_large(Block block) noexcept { give_back(block, false); }
  void free_small(Block block) noexcept { give_back(block, true); }

  void pin(Block block) noexcept { ++pages_[block].pins; }
  void unpin(Block block) noexcept;
  std::uint32_t pins(Block block) const noexcept { return pages_[block].pins; }

  /// For the owner of the block: what is behind the end of its file has to be cleared once the pins are gone.
  /// Forgotten when the block is given back.
  void mark_tail(Block block) noexcept { pages_[block].tail = 1; }
  void clear_tail_mark(Block block) noexcept { pages_[block].tail = 0; }
  bool tail_marked(Block block) const noexcept { return pages_[block].tail != 0; }

  std::byte* data(Block block) const noexcept {
    return region_.bytes.data() + std::size_t{block - 1} * kSmallBytes;
  }
  rdma::Lkey lkey() const noexcept { return region_.lkey; }
  std::uint64_t capacity_bytes() const noexcept { return std::uint64_t{large_count_} * kLargeBytes; }
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }

  /// Zeroes one dirty block; false when there was none.
  bool scrub_one() noexcept;

 private:
  struct Page {
    std::uint32_t next = 0;
    std::uint32_t previous = 0;
    std::uint32_t pins = 0;
    std::uint8_t doomed = 0;      ///< given back while pinned
    std::uint8_t small = 0;       ///< of the block that starts here
    std::uint8_t free_small = 0;  ///< in the first page of a large block that is divided: how many are free
    std::uint8_t clean = 0;       ///< free small block: which list it is in
    std::uint8_t tail = 0;        ///< mark_tail()
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
  std::uint32_t never_used_ = 0;  ///< large blocks from here on have not been touched
  std::uint64_t free_bytes_;
  LazyArray<Page> pages_;  ///< by Block
  List clean_large_;
  List dirty_large_;
  List clean_small_;
  List dirty_small_;
};

}  // namespace sluice::service::memory
