// SPDX-License-Identifier: Apache-2.0
//
// Caches the time during a part of a loop iteration. Events that are handled together have the same time, and
// each read of the clock would add several percent to the cost of a short call. Only the owning reactor may
// call.
#pragma once

#include <cstdint>

namespace sluice::tcp_upstream {

class IterationClock {
 public:
  using Clock = std::uint64_t (*)() noexcept;

  explicit IterationClock(Clock clock) noexcept : clock_(clock) {}

  std::uint64_t now_ns() noexcept {
    if (!known_) now_ns_ = clock_();
    known_ = true;
    return now_ns_;
  }
  /// Discards the cached time, because time has passed in the kernel or in another part of the loop
  /// iteration.
  void pass() noexcept { known_ = false; }

 private:
  const Clock clock_;
  std::uint64_t now_ns_ = 0;
  bool known_ = false;
};

}  // namespace sluice::tcp_upstream
