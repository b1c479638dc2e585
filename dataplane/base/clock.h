// SPDX-License-Identifier: Apache-2.0
//
// Time of a polling loop: its clock, the time that it spends per stage, and the pacing of periodic work. Used
// by the loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice {

/// Clock that returns monotonic nanoseconds. Cheap, without a system call; any thread.
using Clock = std::uint64_t (*)() noexcept;

enum class Stage : std::uint8_t {
  Device,     ///< the device's poll, if it returned completions or moved data
  Calls,      ///< handling of completions, and handing work to the device at the end of the iteration
  Services,   ///< calls that cross between reactors, and services' background work
  Upstreams,  ///< connections to upstream servers and of TCP clients
  Control,    ///< control passes
  Idle,       ///< iterations without work, and the pauses and sleep after them
};
inline constexpr std::size_t kStageCount = 6;

/// Time that a polling loop spends per stage. The clock is read at the end of a stage that did work, and at
/// the end of an iteration that did none: all time since the last reading is attributed to that stage, so
/// that no time is lost or counted twice. Stages without work are attributed to the next one that reads the
/// clock.
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

/// Pacing of work that each of many elements needs once per period: a loop iteration handles only the
/// elements that are due, so that no iteration handles all of them.
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
    SLUICE_INVARIANT_DEBUG(due > 0 && due <= count && late_ns <= now_ns, timer_state);
    next_ns_ = now_ns - late_ns + due * step_ns;
    return due;
  }

 private:
  const std::uint64_t period_ns_;
  std::uint64_t next_ns_ = 0;
};

}  // namespace sluice
