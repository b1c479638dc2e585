// SPDX-License-Identifier: Apache-2.0
//
// Values that one writer shares with any number of readers, in threads or processes: a sequence lock, and two
// copies of a value of which one is always whole. Zeroed memory holds a zeroed value.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/store_point.h"

namespace sluice {

/// Sequence lock: the writer never waits. The value is stored as atomic words, so that a torn read is
/// detected instead of being undefined behaviour.
template <typename T>
class SeqLock {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;

 public:
  /// Largest value that read() returns on the stack.
  static constexpr std::size_t kMaxByValue = 16384;

  /// Makes readers fail until the next write(), because the writer changes what belongs to the value. Called
  /// by the single writer only. What readers find by the value must be changed by release stores.
  void open() noexcept {
    sequence_.store(sequence_.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
    SLUICE_STORE_POINT();
  }

  /// Publishes a value. Called by the single writer only. If an earlier writer died during write(), the
  /// sequence is odd; setting the low bit instead of adding one makes that harmless.
  void write(const T& value) noexcept {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
    open();
    const std::uint32_t before = sequence_.load(std::memory_order_relaxed);
    // Each word is a release store, so that a reader that sees a new word also sees the odd sequence.
    for (std::size_t w = 0; w < kWords; ++w) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + w * sizeof word, bytes_of(w));
      words_[w].store(word, std::memory_order_release);  // pairs with read(): the odd sequence
    }
    SLUICE_STORE_POINT();
    SLUICE_INVARIANT_DEBUG(sequence_.load(std::memory_order_relaxed) == before, sequence_lock);
    sequence_.store(before + 1, std::memory_order_release);  // pairs with read(): all words
  }

  /// Reads the value; any thread or process. Returns false if every attempt met a write in progress, because
  /// the writer keeps writing or died during write(); `value` is then undefined.
  [[nodiscard]] bool read(T& value) const noexcept {
    constexpr int kTries = 1000;
    for (int i = 0; i < kTries; ++i)
      if (std::uint32_t sequence; read_once(value, sequence)) return true;
    return false;
  }

  /// Reads the value in one attempt; any thread or process. Returns false if the attempt met a write. Sets
  /// `sequence` to the number of the value, for is_unchanged().
  [[nodiscard]] bool read_once(T& value, std::uint32_t& sequence) const noexcept {
    auto* const bytes = reinterpret_cast<std::byte*>(&value);
    sequence = sequence_.load(std::memory_order_acquire);  // pairs with write()
    if (sequence & 1) return false;
    for (std::size_t w = 0; w < kWords; ++w) {
      const std::uint64_t word = words_[w].load(std::memory_order_acquire);  // pairs with write()
      std::memcpy(bytes + w * sizeof word, &word, bytes_of(w));
    }
    return is_unchanged(sequence);
  }
  /// Returns whether the value has not changed since read_once(). If so, data that was read since by acquire
  /// loads belongs to it.
  bool is_unchanged(std::uint32_t sequence) const noexcept {
    return sequence_.load(std::memory_order_relaxed) == sequence;
  }

  /// Returns the value; nullopt if read() fails. The size limit exists because the threads of the metrics'
  /// web server have stacks of 100 KiB.
  std::optional<T> read() const noexcept requires(sizeof(T) <= kMaxByValue) {
    std::optional<T> value(std::in_place);
    if (!read(*value)) value.reset();
    return value;
  }

  /// Returns an allocated copy of a value of any size; empty if read() fails. Not on the message path,
  /// because it allocates.
  Owned<T> read_copy() const {
    Owned<T> value(new T());
    if (!read(*value)) value.reset();
    return value;
  }

  /// Returns the sequence number, which changes with every write and is odd during one. Pairs with write().
  std::uint32_t sequence() const noexcept { return sequence_.load(std::memory_order_acquire); }

 private:
  static constexpr std::size_t bytes_of(std::size_t word) noexcept {
    return smaller_of(sizeof(std::uint64_t), sizeof(T) - word * sizeof(std::uint64_t));
  }

  std::atomic<std::uint32_t> sequence_;
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

/// Value of one writer that is complete at any moment, even if the writer dies during a write: two sequence
/// locks that are written alternately, and a count that selects the newest. Zeroed memory holds a zeroed
/// value.
template <typename T>
class TwoCopies {
 public:
  /// Publishes a value. Called by the single writer only. Readers see the old value until it returns.
  void write(const T& value) noexcept {
    const std::uint32_t next = written_.load(std::memory_order_relaxed) + 1;
    copies_[next % 2].write(value);
    SLUICE_STORE_POINT();
    written_.store(next, std::memory_order_release);  // pairs with read(): the copy is complete
  }

  /// Reads the value; any thread or process. Returns false if the writer overtook every attempt; `value` is
  /// then undefined.
  [[nodiscard]] bool read(T& value) const noexcept {
    constexpr int kTries = 8;
    for (int i = 0; i < kTries; ++i)  // pairs with write()
      if (copies_[written_.load(std::memory_order_acquire) % 2].read(value)) return true;
    return false;
  }
  /// Returns an allocated copy of the value; empty if read() fails. Not on the message path, because it
  /// allocates.
  Owned<T> read_copy() const {
    Owned<T> value(new T());
    if (!read(*value)) value.reset();
    return value;
  }

  /// Returns the sequence number, which changes with every write. Pairs with write().
  std::uint32_t sequence() const noexcept { return written_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> written_;
  std::array<SeqLock<T>, 2> copies_;
};

}  // namespace sluice
