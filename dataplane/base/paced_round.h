// SPDX-License-Identifier: Apache-2.0
//
// A round over elements that have to be looked at once in a period, of which there may be many: each turn of a loop
// looks at those whose time has come, so that no turn is the one that looks at them all. One thread.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice {

class PacedRound {
 public:
  /// A loop that is too slow for it takes longer for a round.
  static constexpr std::uint32_t kMostInATurn = 64;

  explicit PacedRound(std::uint64_t period_ns) noexcept : period_ns_(period_ns) {}

  /// How many of `count` elements the turn is to look at: those whose time has come since the last turn that looked at
  /// any. `now_ns` never decreases.
  std::uint32_t due(std::uint64_t now_ns, std::uint32_t count) noexcept {
    if (count == 0) next_ns_ = larger_of(next_ns_, now_ns);
    if (now_ns < next_ns_ || count == 0) return 0;
    const std::uint64_t step_ns = larger_of<std::uint64_t>(period_ns_ / count, 1);
    const std::uint64_t round_ns = larger_of(period_ns_, step_ns) - step_ns;
    const std::uint64_t late_ns =
        smaller_of(now_ns - next_ns_, round_ns);  // of what is missed no more than one round
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
