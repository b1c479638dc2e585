// SPDX-License-Identifier: Apache-2.0
//
// The last of the 32-bit values that one thread or process has noted, or nothing. Any thread or process may
// read it. The object may be in shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace sluice {

class LastValue {
 public:
  /// Called by the single writer.
  void note(std::uint32_t value) noexcept { noted_.store(kNoted | value, std::memory_order_relaxed); }
  /// Called by the single writer.
  void clear() noexcept { noted_.store(0, std::memory_order_relaxed); }
  /// Returns nothing if no value was noted.
  std::optional<std::uint32_t> get() const noexcept {
    const std::uint64_t noted = noted_.load(std::memory_order_relaxed);
    return noted == 0 ? std::nullopt : std::optional(static_cast<std::uint32_t>(noted));
  }

 private:
  static constexpr std::uint64_t kNoted = std::uint64_t{1} << 32;
  std::atomic<std::uint64_t> noted_{0};
};

}  // namespace sluice
