// SPDX-License-Identifier: Apache-2.0
//
// Pacing of work that each of many elements needs once per period: a loop iteration handles only the elements
// that are due, so that no iteration handles all of them. Single-threaded.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice {

class PacedRound {
 public:
  /// Maximum of elements per iteration. If the loop is too slow for the period, a round takes longer.
  static constexpr std::uint32_t kMostInATurn = 64;

  explicit PacedRound(std::uint64_t period_ns) noexcept : period_ns_(period_ns) {}

  /// Returns how many of `count` elements became due since the last iteration that handled elements, and are
  /// to be handled in this one. `now_ns` never decreases.
  std::uint32_t due(std::uint64_t now_ns, std::uint32_t count) noexcept {
    if (count == 0) next_ns_ = larger_of(next_ns_, now_ns);
    if (now_ns < next_ns_ || count == 0) return 0;
    const std::uint64_t step_ns = larger_of<std::uint64_t>(period_ns_ / count, 1);
    const std::uint64_t round_ns = larger_of(period_ns_, step_ns) - step_ns;
    const std::uint64_t late_ns = smaller_of(now_ns - next_ns_, round_ns);  // catches up on at most one round
    const auto due = static_cast<std::uint32_t>(
        smaller_of<std::uint64_t>(1 + late_ns / step_ns, smaller_of(count, kMostInATurn)));
    next_ns_ = now_ns - late_ns + due * step_ns;
    return due;
  }

 private:
  const std::uint64_t period_ns_;
  std::uint64_t next_ns_ = 0;
};

}  // namespace sluice
