// SPDX-License-Identifier: Apache-2.0
//
// Protection of blocks that several reactors read. Each reader counts its pins, and a freed block is used
// again after a grace period and without pins.
//
// The owner removes a block from its file, publishes the file, and starts a grace period. A reader that has
// confirmed the grace period afterwards can no longer find the block, and the pins that it took before are
// visible. So neither side needs a lock, a fence or an atomic read-modify-write. A reader that does not
// confirm, because its reactor hangs, keeps the freed blocks from being used again, and nobody waits for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/store_point.h"
#include "dataplane/service/memory/lazy_array.h"

namespace sluice::service::memory {

/// Index of the block's first 4 KiB page, plus one. Zero means no block.
using Block = std::uint32_t;

/// Pins and confirmations of one reader. Written by the reader's reactor only; read by the owner.
class ReaderPins {
 public:
  static constexpr std::size_t kBytesPerBlock = sizeof(std::uint32_t);

  /// Makes room for the pins of `blocks` block numbers. Called at setup; throws SetupError.
  explicit ReaderPins(std::size_t blocks) : pins_(blocks) {}

  /// Keeps the block's bytes until unpin(). Requires that the reader has found the block since it last
  /// confirmed a grace period.
  void pin(Block block) noexcept {
    SLUICE_INVARIANT_DEBUG(block != 0, file_storage);
    pins_[block].store(pins_[block].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    SLUICE_STORE_POINT();
  }
  /// Releases the block.
  void unpin(Block block) noexcept {
    const std::uint32_t pins = pins_[block].load(std::memory_order_relaxed);
    SLUICE_INVARIANT_DEBUG(pins > 0, file_storage);
    // Pairs with pins(): the reader has accessed the bytes for the last time.
    pins_[block].store(pins - 1, std::memory_order_release);
  }
  /// Returns the reader's pins of a block; owner or reader. Pairs with unpin(): the bytes are no longer read.
  std::uint32_t pins(Block block) const noexcept { return pins_[block].load(std::memory_order_acquire); }

  /// Confirms grace periods up to `period`. Called by the reader between two calls, when it holds no block
  /// number that is not pinned. Pairs with confirmed(): the pins that it holds.
  void confirm(std::uint64_t period) noexcept { confirmed_.store(period, std::memory_order_release); }
  /// Returns the last confirmed period. Pairs with confirm(): the pins that the reader holds.
  std::uint64_t confirmed() const noexcept { return confirmed_.load(std::memory_order_acquire); }

 private:
  LazyArray<std::atomic<std::uint32_t>> pins_;
  alignas(kCacheLine) std::atomic<std::uint64_t> confirmed_{0};
};

/// All readers of the blocks of one owner.
class BlockReaders {
 public:
  /// Adds a reader, which outlives this object's last use. Called at setup.
  void add(ReaderPins& reader) { readers_.push_back(&reader); }
  bool none() const noexcept { return readers_.empty(); }

  /// Starts a grace period. Owner.
  void start_period() noexcept {
    // Pairs with period(): the files no longer name the freed blocks.
    period_.store(period_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    SLUICE_STORE_POINT();
  }
  /// Returns the number of the last grace period. Any reactor. Pairs with start_period(): the files no longer
  /// name the freed blocks.
  std::uint64_t period() const noexcept { return period_.load(std::memory_order_acquire); }
  /// Returns whether every reader has confirmed the last grace period. Owner; linear in the readers.
  bool period_has_ended() const noexcept {
    const std::uint64_t last = period_.load(std::memory_order_relaxed);
    for (const ReaderPins* const reader : readers_)
      if (reader->confirmed() != last) return false;
    return true;
  }
  /// Returns whether any reader has pinned the block. Owner, after the grace period; linear in the readers.
  bool any_pin(Block block) const noexcept {
    for (const ReaderPins* const reader : readers_)
      if (reader->pins(block) > 0) return true;
    return false;
  }

 private:
  std::vector<ReaderPins*> readers_;
  alignas(kCacheLine) std::atomic<std::uint64_t> period_{0};
};

}  // namespace sluice::service::memory
