// SPDX-License-Identifier: Apache-2.0
//
// Measures stalls of the control plane's loop: the time from the end of a wait to the beginning of the next.
// Single-threaded.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::controlplane {

class StallClock {
 public:
  /// Minimum period that recent_ns() covers. The maximum is twice as long.
  static constexpr std::uint64_t kPeriodNs = 60'000'000'000;

  /// Records an iteration whose wait ended at `woke_ns`. Times are monotonic; a `woke_ns` of zero means that
  /// the loop has not waited yet.
  void turned(std::uint64_t woke_ns, std::uint64_t now_ns) {
    if (now_ns - period_ns_ >= kPeriodNs) {
      earlier_ns_ = now_ns - period_ns_ < 2 * kPeriodNs ? current_ns_ : 0;
      current_ns_ = 0;
      period_ns_ = now_ns;
    }
    if (woke_ns == 0 || now_ns < woke_ns) return;
    current_ns_ = larger_of(current_ns_, now_ns - woke_ns);
    longest_ns_ = larger_of(longest_ns_, current_ns_);
  }

  /// Returns the longest stall of all iterations.
  std::uint64_t longest_ns() const { return longest_ns_; }
  std::uint64_t recent_ns() const { return larger_of(current_ns_, earlier_ns_); }

 private:
  std::uint64_t longest_ns_ = 0;
  std::uint64_t current_ns_ = 0;  ///< longest stall since period_ns_
  std::uint64_t earlier_ns_ = 0;  ///< longest stall in the previous period
  std::uint64_t period_ns_ = 0;
};

}  // namespace sluice::controlplane
