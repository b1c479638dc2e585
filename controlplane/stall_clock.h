// SPDX-License-Identifier: Apache-2.0
//
// How long the control plane's loop did not come round: from the end of its wait until it waits again. One thread.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::controlplane {

class StallClock {
 public:
  /// recent_ns() looks back so far at least, and twice as far at most.
  static constexpr std::uint64_t kPeriodNs = 60'000'000'000;

  /// A turn that ended its wait at `woke_ns` is over. Both are monotonic; zero: it has not waited yet.
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

  /// Of all turns.
  std::uint64_t longest_ns() const { return longest_ns_; }
  std::uint64_t recent_ns() const { return larger_of(current_ns_, earlier_ns_); }

 private:
  std::uint64_t longest_ns_ = 0;
  std::uint64_t current_ns_ = 0;  ///< since period_ns_
  std::uint64_t earlier_ns_ = 0;  ///< in the period before
  std::uint64_t period_ns_ = 0;
};

}  // namespace sluice::controlplane
