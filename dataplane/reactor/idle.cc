// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/idle.h"

#include <algorithm>

#include "dataplane/reactor/cpu.h"

namespace sluice::reactor {

bool Idle::on_no_work(bool only_device) noexcept {
  if (policy_ == segment::IdlePolicy::Spin) {
    cpu::pause();
    return false;
  }
  const std::uint64_t now_ns = clock_();
  if (idle_since_ns_ == 0) idle_since_ns_ = now_ns;
  const std::uint64_t idle_ns = now_ns - idle_since_ns_;
  const bool woken = only_device && device_.wakes();
  if (idle_ns < (woken ? kSpinBeforeWaitNs : kSpinBeforeSleepNs)) {
    cpu::pause();
    return false;
  }
  // Waiting as long as it has been idle: the wake-up then costs a small part of the time.
  device_.wait(woken ? std::min(idle_ns, kMaxWaitNs) : kSleepNs);
  return true;
}

}  // namespace sluice::reactor
