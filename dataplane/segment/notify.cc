// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/notify.h"

#include <systemd/sd-daemon.h>

#include <cstdint>

#include "dataplane/segment/heartbeat.h"

namespace sluice::notify {
namespace {

constexpr std::uint64_t kIntervalNs = 500'000'000;

}  // namespace

void ready() {
  ::sd_notify(0, "READY=1");
}

void alive() {
  static std::uint64_t notified_ns = 0;
  const std::uint64_t now_ns = segment::monotonic_ns();
  if (now_ns - notified_ns < kIntervalNs) return;
  notified_ns = now_ns;
  ::sd_notify(0, "WATCHDOG=1");
}

void stopping() {
  ::sd_notify(0, "STOPPING=1");
}

}  // namespace sluice::notify
