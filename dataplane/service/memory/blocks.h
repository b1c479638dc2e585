// SPDX-License-Identifier: Apache-2.0
//
// Pools of the file system of the memory exports: blocks of registered memory for file data, and the shares
// of exports in a pool.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/service/memory/block_readers.h"
#include "dataplane/service/memory/lazy_array.h"
#include "pmd/memory.h"

namespace sluice::service::memory {

inline constexpr std::uint32_t kSmallBytes = 4096;
inline constexpr std::uint32_t kLargeBytes = 65536;
inline constexpr std::uint32_t kSmallPerLarge = kLargeBytes / kSmallBytes;
/// Maximum number of freed blocks that one pass of BlockPool::settle() examines.
inline constexpr std::uint32_t kSettledPerPass = 64;

/// Blocks of registered memory for file data: large ones of 64 KiB, and small ones of 4 KiB carved from a
/// large one.
///
/// An allocated block is zeroed. A freed block is dirty until it is scrubbed, in the background or on demand,
/// so that no file ever shows another's data. A pinned block (an RDMA Read or Write is in flight on it) that
/// is freed becomes dirty on the last unpin(). If other reactors read the blocks, a freed block becomes dirty
/// in settle(), after a grace period and without pins. All operations are O(1), or linear in the readers;
/// scrubbing is O(block size).
///
/// Only the owning reactor may call; the constructor is setup. The caller owns the blocks that it allocated,
/// the device owns the memory, which outlives the pool. Errors: allocation returns no block (zero).
class BlockPool {
 public:
  /// Creates a pool of the region, which must be zeroed like memory from Device::allocate_memory().
  explicit BlockPool(rdma::MemoryRegion region);

  /// Allocates a large block. Returns zero (no block) when memory is exhausted.
  Block allocate_large() noexcept;
  Block allocate_small() noexcept;
  void free_large(Block block) noexcept { give_back(block, false); }
  void free_small(Block block) noexcept { give_back(block, true); }

  void pin(Block block) noexcept {
    SLUICE_INVARIANT_DEBUG(block != 0 && pages_[block].doomed == 0, file_storage);
    ++pages_[block].pins;
  }
  /// Frees a block that was freed while it was pinned, if this was the last pin.
  void unpin(Block block) noexcept {
    Page& page = pages_[block];
    SLUICE_INVARIANT_DEBUG(page.pins > 0, file_storage);
    if (--page.pins > 0 || page.doomed == 0 || !readers_.none()) return;
    page.doomed = 0;
    make_dirty(block);
  }
  std::uint32_t pins(Block block) const noexcept { return pages_[block].pins; }

  /// Marks a block: the bytes after the end of its file have to be cleared once it is no longer pinned.
  /// Freeing the block clears the mark.
  void mark_tail(Block block) noexcept { pages_[block].tail = 1; }
  void clear_tail_mark(Block block) noexcept { pages_[block].tail = 0; }
  bool tail_marked(Block block) const noexcept { return pages_[block].tail != 0; }

  std::byte* data(Block block) const noexcept {
    SLUICE_INVARIANT_DEBUG(block != 0 && block < pages_.size(), table_index);
    return region_.bytes.data() + std::size_t{block - 1} * kSmallBytes;
  }
  rdma::Lkey lkey() const noexcept { return region_.lkey; }
  /// Returns the bytes of all blocks, without those reserved for truncation.
  std::uint64_t capacity_bytes() const noexcept {
    return std::uint64_t{large_count_} * kLargeBytes - reserved_bytes_;
  }
  std::uint64_t free_bytes() const noexcept { return free_bytes_; }
  /// Returns the bytes of freed blocks that settle() has not made available yet.
  std::uint64_t settling_bytes() const noexcept { return settling_bytes_; }
  std::size_t numbers() const noexcept { return pages_.size(); }

  /// Lets another reactor read the blocks, and reserves a block of each size. Called at setup.
  void add_reader(ReaderPins& reader);
  const BlockReaders& readers() const noexcept { return readers_; }
  /// Returns the reserved block of a size, or zero while it is in use. A truncation that needs a new block
  /// takes it if no other is free, and the block that it replaces becomes the reserved one. So a full pool
  /// can always be truncated.
  Block take_reserved(bool small) noexcept;
  /// Makes freed blocks available, at most kSettledPerPass, if no reader uses them, and starts the next grace
  /// period. Returns true if there was a block.
  bool settle() noexcept;

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
  /// Freed blocks in order, linked by Page::next.
  struct Queue {
    Block head = 0;
    Block tail = 0;
  };
  void push(List& list, Block block) noexcept;
  Block pop(List& list) noexcept;
  void remove(List& list, Block block) noexcept;
  void give_back(Block block, bool small) noexcept;
  void make_dirty(Block block) noexcept;
  void append(Queue& queue, Block first, Block last) noexcept;
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
  BlockReaders readers_;
  Queue retired_;  ///< freed since the last grace period started
  Queue grace_;    ///< freed before the last grace period started
  Queue settled_;  ///< freed before a grace period that has ended; some are pinned
  Block reserved_large_ = 0;
  Block reserved_small_ = 0;
  std::uint64_t reserved_bytes_ = 0;  ///< bytes of both, in use or not
  std::uint64_t settling_bytes_ = 0;
};

inline constexpr std::uint32_t kMaxExports = 32;  ///< per file system
/// Divisor of the pool size that yields the sum of the shares of all exports.
inline constexpr std::uint32_t kSharedPart = 2;

/// Shares of exports in a pool of elements that all of them use, such as inodes. A part of the pool is
/// divided equally among the open exports. An open export can always take elements up to its share. The rest
/// of the pool goes to the exports that take it first.
///
/// The class only counts; the caller owns the elements. Single-threaded. All operations are O(1), except
/// open() and close().
class PoolShares {
 public:
  explicit PoolShares(std::uint32_t elements) noexcept : elements_(elements), free_(elements) {}

  /// Gives the export a share, in at most kMaxExports steps. If other exports have taken elements of the
  /// share, it becomes available as they give elements back.
  void open(std::uint32_t id) noexcept {
    if (!SLUICE_INVARIANT(id < kMaxExports, table_index)) return;
    uses_[id].open = true;
    divide();
  }
  /// Ends the export's share, in at most kMaxExports steps. The export keeps the elements that it has taken.
  void close(std::uint32_t id) noexcept {
    if (!SLUICE_INVARIANT(id < kMaxExports, table_index)) return;
    uses_[id].open = false;
    divide();
  }

  std::uint32_t free() const noexcept { return free_; }
  std::uint32_t taken(std::uint32_t id) const noexcept { return uses_[id].taken; }
  /// Returns how many elements the export may take. Free elements that the shares of other exports still lack
  /// are excluded.
  std::uint32_t available(std::uint32_t id) const noexcept {
    const std::uint32_t reserved = lacking_ - lacks(uses_[id]);
    return free_ - smaller_of(free_, reserved);
  }

  /// Takes a free element. The caller has checked available(), unless the export has just given one back.
  void take(std::uint32_t id) noexcept {
    static_cast<void>(SLUICE_INVARIANT(id < kMaxExports && free_ > 0, pool_balance));
    if (lacks(uses_[id]) > 0) --lacking_;
    ++uses_[id].taken;
    --free_;
  }
  void give_back(std::uint32_t id) noexcept {
    static_cast<void>(SLUICE_INVARIANT(uses_[id].taken > 0 && free_ < elements_, pool_balance));
    --uses_[id].taken;
    ++free_;
    if (lacks(uses_[id]) > 0) ++lacking_;
  }

 private:
  struct Use {
    std::uint32_t taken = 0;
    bool open = false;
  };
  std::uint32_t lacks(const Use& use) const noexcept {
    return use.open ? share_ - smaller_of(share_, use.taken) : 0;
  }
  void divide() noexcept {
    std::uint32_t open = 0;
    for (const Use& use : uses_) open += use.open ? 1 : 0;
    share_ = open > 0 ? elements_ / kSharedPart / open : 0;
    lacking_ = 0;
    for (const Use& use : uses_) lacking_ += lacks(use);
    static_cast<void>(SLUICE_INVARIANT(lacking_ <= elements_, pool_balance));
  }

  std::uint32_t elements_;
  std::uint32_t free_;
  std::uint32_t share_ = 0;    ///< share of each open export
  std::uint32_t lacking_ = 0;  ///< sum of lacks()
  std::array<Use, kMaxExports> uses_{};
};

}  // namespace sluice::service::memory
