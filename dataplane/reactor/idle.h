// SPDX-License-Identifier: Apache-2.0
//
// What a reactor does after a turn that found nothing: spins, or gives the core away. The reactor's thread.
#pragma once

#include <cstdint>

#include "dataplane/base/clock.h"
#include "dataplane/segment/config_block.h"
#include "pmd/device.h"

namespace sluice::reactor {

/// Sleeping delays the next packet by up to kSleepNs, so it starts only after this much idle time.
inline constexpr std::uint64_t kSpinBeforeSleepNs = 1'000'000;
inline constexpr std::uint64_t kSleepNs = 50'000;
/// A device that can wake us is waited on sooner: waking costs about one spin period. The limit bounds how
/// late timers and commands run.
inline constexpr std::uint64_t kSpinBeforeWaitNs = 50'000;
inline constexpr std::uint64_t kMaxWaitNs = 10'000'000;

class Idle {
 public:
  /// The device outlives it.
  Idle(segment::IdlePolicy policy, rdma::Device& device, Clock clock)
      : policy_(policy), device_(device), clock_(clock) {}

  /// A turn found work: idle time starts anew.
  void on_work() noexcept { idle_since_ns_ = 0; }
  /// A turn found none. `only_device`: all work that can come comes from the device, so that its wake-up
  /// suffices. Whether the core was given away, and did not only pause.
  bool on_no_work(bool only_device) noexcept;

 private:
  const segment::IdlePolicy policy_;
  rdma::Device& device_;
  const Clock clock_;
  std::uint64_t idle_since_ns_ = 0;  ///< zero: the last turn found work
};

}  // namespace sluice::reactor
