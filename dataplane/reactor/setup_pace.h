// SPDX-License-Identifier: Apache-2.0
//
// How often a reactor makes a connection. To make a queue pair and to end it costs as much as many calls, and
// in one piece: peers that come and go as fast as they can would have most of the reactor's time, and each
// call of the others would wait for one of them. So connections are made one at a time, with time for calls
// between them. Times in nanoseconds, of one monotonic clock. The reactor's thread.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::reactor {

class SetupPace {
 public:
  /// From one connection to the next at least: 2,000 in a second. A NULL takes some microseconds, and a connection is
  /// made, established and taken apart in several turns: fewer than one of 100 calls meets one of them.
  static constexpr std::uint64_t kIntervalNs = 500'000;
  /// With a device that needs long to make one: so many times as long for calls, but no more than kMostNs. A
  /// reactor that lost its processor meanwhile would otherwise keep peers waiting for seconds.
  static constexpr std::uint64_t kRest = 32;
  static constexpr std::uint64_t kMostNs = 10'000'000;

  bool due(std::uint64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  /// One was made, or refused after it had cost as much.
  void made(std::uint64_t begin_ns, std::uint64_t end_ns) noexcept {
    next_ns_ = end_ns + bounded(kRest * (end_ns - begin_ns), kIntervalNs, kMostNs);
  }

 private:
  std::uint64_t next_ns_ = 0;
};

}  // namespace sluice::reactor
