// SPDX-License-Identifier: Apache-2.0
//
// Limits the rate at which a reactor makes connections. Creating and destroying a queue pair costs as much as
// many calls and cannot be interrupted. Without a limit, peers that reconnect as fast as possible would take
// most of the reactor's time and delay the calls of others. Connections are therefore made one at a time,
// with time for calls between them. Times in nanoseconds, of one monotonic clock. Used on the reactor's
// thread.
#pragma once

#include <cstdint>

#include "dataplane/base/small_algorithms.h"

namespace sluice::reactor {

class SetupPace {
 public:
  /// Minimum interval between connections, which allows 2,000 per second. A NULL call takes some
  /// microseconds, and the setup and teardown of a connection are spread over several iterations, so fewer
  /// than one of 100 calls is delayed.
  static constexpr std::uint64_t kIntervalNs = 500'000;
  /// Time for calls, as a multiple of the time that the device took to make the connection, limited to
  /// kMostNs. The limit prevents peers from waiting for seconds after the reactor was preempted while making
  /// a connection.
  static constexpr std::uint64_t kRest = 32;
  static constexpr std::uint64_t kMostNs = 10'000'000;

  bool due(std::uint64_t now_ns) const noexcept { return now_ns >= next_ns_; }
  /// Called when a connection was made, or was refused at a similar cost.
  void made(std::uint64_t begin_ns, std::uint64_t end_ns) noexcept {
    next_ns_ = end_ns + bounded(kRest * (end_ns - begin_ns), kIntervalNs, kMostNs);
  }

 private:
  std::uint64_t next_ns_ = 0;
};

}  // namespace sluice::reactor
