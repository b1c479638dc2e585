// SPDX-License-Identifier: Apache-2.0
//
// Where the time of a polling loop goes. The clock is read where a stage ends that has found work, and at the end of a
// turn that has found none: all the time since the last reading belongs to that stage, so that none is lost or counted
// twice. What stages without work take counts for the next one. The loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/clock.h"

namespace sluice {

enum class Stage : std::uint8_t {
  Device,     ///< the device's poll, which gave completions or moved data
  Calls,      ///< work completions, and what was handed to the device at the end of the turn
  Services,   ///< calls that cross between reactors, and services' background work
  Upstreams,  ///< connections to upstream servers and of TCP clients
  Control,    ///< control passes
  Idle,       ///< turns that found nothing, and pauses and sleep behind them
};
inline constexpr std::size_t kStageCount = 6;

class StageTimes {
 public:
  /// Setup. Without it nothing is measured, and the time is zero.
  void measure(Clock clock) noexcept { clock_ = clock; }
  /// The loop begins.
  void start() noexcept { since_ns_ = now_ns(); }
  /// A stage has ended. Returns the time.
  std::uint64_t end(Stage stage) noexcept {
    const std::uint64_t now = now_ns();
    sums_ns_[static_cast<std::size_t>(stage)] += now - since_ns_;
    return since_ns_ = now;
  }
  std::uint64_t sum_ns(Stage stage) const noexcept { return sums_ns_[static_cast<std::size_t>(stage)]; }

 private:
  std::uint64_t now_ns() const noexcept { return clock_ != nullptr ? clock_() : 0; }

  Clock clock_ = nullptr;
  std::uint64_t since_ns_ = 0;
  std::array<std::uint64_t, kStageCount> sums_ns_{};
};

}  // namespace sluice
