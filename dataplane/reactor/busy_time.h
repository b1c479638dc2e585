// SPDX-License-Identifier: Apache-2.0
//
// How much of a reactor's time goes into turns that find work. The clock is read in turns that find none, where
// it costs nobody anything; how long such a turn takes is learnt where several follow each other. The reactor's
// thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dataplane/reactor/counters.h"

namespace sluice::reactor {

class BusyTime {
 public:
  /// The sums are `counters`' busy_ns and idle_ns.
  explicit BusyTime(Counters& counters) noexcept : counters_(counters) {}

  /// The loop begins.
  void start(std::uint64_t now_ns) noexcept { since_ns_ = now_ns; }
  /// A turn has found work.
  void on_busy_turn() noexcept { busy_ = true; }
  /// A turn that found none has just ended. With those that found work before it, it began at the end of the last
  /// such turn.
  void on_idle_turn(std::uint64_t now_ns) noexcept {
    const std::uint64_t period_ns = pass(now_ns);
    if (!busy_) {
      learn(period_ns);
      counters_.idle_ns += period_ns;
      return;
    }
    busy_ = false;
    const std::uint64_t idle_ns = std::min(period_ns, idle_turn_ns_);
    counters_.idle_ns += idle_ns;
    counters_.busy_ns += period_ns - idle_ns;
  }
  /// The core was given away behind an idle turn, and is back.
  void on_back(std::uint64_t now_ns) noexcept { counters_.idle_ns += pass(now_ns); }
  /// Once in a while, as a reactor without idle turns is all the busier.
  void settle(std::uint64_t now_ns) noexcept {
    if (busy_) counters_.busy_ns += pass(now_ns);
  }

 private:
  /// Time since the last look, which this one is the next of.
  std::uint64_t pass(std::uint64_t now_ns) noexcept {
    const std::uint64_t period_ns = now_ns - since_ns_;
    since_ns_ = now_ns;
    return period_ns;
  }
  /// A turn is longer if the kernel takes the core: it rises slowly and falls at once.
  void learn(std::uint64_t period_ns) noexcept {
    idle_turn_ns_ = std::min(period_ns, idle_turn_ns_ + idle_turn_ns_ / 16 + 1);
  }

  Counters& counters_;
  std::uint64_t since_ns_ = 0;
  std::uint64_t idle_turn_ns_ = 0;  ///< of one that follows another, with the pause between them
  bool busy_ = false;               ///< a turn since since_ns_ has found work
};

}  // namespace sluice::reactor
