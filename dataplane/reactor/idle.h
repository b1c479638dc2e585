// SPDX-License-Identifier: Apache-2.0
//
// Behavior of a reactor after an iteration without work: it spins or yields the core. Used on the reactor's
// thread.
#pragma once

#include <cstdint>

#include "dataplane/base/clock.h"
#include "dataplane/segment/config_block.h"
#include "pmd/device.h"

namespace sluice::reactor {

/// Idle time before the reactor sleeps, in ns. Sleeping delays the next packet by up to kSleepNs.
inline constexpr std::uint64_t kSpinBeforeSleepNs = 1'000'000;
inline constexpr std::uint64_t kSleepNs = 50'000;
/// Idle time before the reactor waits for a device that can wake it, in ns. It is shorter because a wake-up
/// costs about one spin period. kMaxWaitNs bounds the delay of timers and commands.
inline constexpr std::uint64_t kSpinBeforeWaitNs = 50'000;
inline constexpr std::uint64_t kMaxWaitNs = 10'000'000;

class Idle {
 public:
  /// The device must outlive the object.
  Idle(segment::IdlePolicy policy, rdma::Device& device, Clock clock)
      : policy_(policy), device_(device), clock_(clock) {}

  /// Called after an iteration with work: restarts the idle time.
  void on_work() noexcept { idle_since_ns_ = 0; }
  /// Called after an iteration without work. `only_device` is true if all work arrives through the device,
  /// whose wake-up is then sufficient. Returns true if the core was yielded, false if the thread only paused.
  bool on_no_work(bool only_device) noexcept;

 private:
  const segment::IdlePolicy policy_;
  rdma::Device& device_;
  const Clock clock_;
  std::uint64_t idle_since_ns_ = 0;  ///< zero: the last iteration had work
};

}  // namespace sluice::reactor
