// SPDX-License-Identifier: Apache-2.0
//
// Time that a polling loop spends per stage. The clock is read at the end of a stage that did work, and at
// the end of an iteration that did none: all time since the last reading is attributed to that stage, so that
// no time is lost or counted twice. Stages without work are attributed to the next one that reads the clock.
// Used by the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/clock.h"

namespace sluice {

enum class Stage : std::uint8_t {
  Device,     ///< the device's poll, if it returned completions or moved data
  Calls,      ///< handling of completions, and handing work to the device at the end of the iteration
  Services,   ///< calls that cross between reactors, and services' background work
  Upstreams,  ///< connections to upstream servers and of TCP clients
  Control,    ///< control passes
  Idle,       ///< iterations without work, and the pauses and sleep after them
};
inline constexpr std::size_t kStageCount = 6;

class StageTimes {
 public:
  /// Sets the clock. Called at setup; otherwise no time is measured and the clock reads zero.
  void measure(Clock clock) noexcept { clock_ = clock; }
  /// Starts the measurement, when the loop begins.
  void start() noexcept { since_ns_ = now_ns(); }
  /// Ends a stage. Returns the current time.
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
