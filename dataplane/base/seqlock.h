// SPDX-License-Identifier: Apache-2.0
//
// Sequence lock: one writer and any number of readers, in threads or processes; the writer never waits. The
// value is stored as atomic words, so that a torn read is detected instead of being undefined behaviour.
// Zeroed memory holds a zeroed value.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <type_traits>

namespace sluice {

template <typename T>
class SeqLock {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;

 public:
  /// The single writer only. If an earlier writer died during write(), the sequence is odd; setting the low
  /// bit instead of adding one makes that harmless.
  void write(const T& value) noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof value);
    const std::uint32_t before = sequence_.load(std::memory_order_relaxed) | 1;
    sequence_.store(before, std::memory_order_relaxed);
    // Each word is a release store, so that a reader that sees a new word also sees the odd sequence.
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    sequence_.store(before + 1, std::memory_order_release);
  }

  /// Any thread or process. nullopt if every attempt met a write in progress: the writer keeps writing, or
  /// died during write().
  std::optional<T> read() const noexcept {
    constexpr int kTries = 1000;
    // Filled in place: some values are large and some readers have small stacks.
    std::optional<T> value(std::in_place);
    auto* const bytes = reinterpret_cast<std::byte*>(&*value);
    for (int i = 0; i < kTries; ++i) {
      const std::uint32_t before = sequence_.load(std::memory_order_acquire);
      if (before & 1) continue;
      for (std::size_t w = 0; w < kWords; ++w) {
        const std::uint64_t word = words_[w].load(std::memory_order_acquire);
        std::memcpy(bytes + w * sizeof word, &word, std::min(sizeof word, sizeof(T) - w * sizeof word));
      }
      if (sequence_.load(std::memory_order_relaxed) == before) return value;
    }
    value.reset();
    return value;
  }

  /// Changes with every write; odd during one.
  std::uint32_t sequence() const noexcept { return sequence_.load(std::memory_order_acquire); }

 private:
  std::atomic<std::uint32_t> sequence_;
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

}  // namespace sluice
