// SPDX-License-Identifier: Apache-2.0
//
// What a supervisor or a load balancer asks: is the control plane alive, may clients be sent here. From the segment
// alone; any thread of the control plane's process.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/segment/segment.h"

namespace sluice::telemetry {

struct Health {
  bool good = false;
  std::string text;  ///< a clause that says why, or what is good
};

/// Whether the control plane's loop has made a turn in the last segment::kHeartbeatTimeoutNs.
Health liveness(const segment::Layout& layout, std::uint64_t monotonic_now_ns);
/// Whether new connections are served: this process owns the segment, the data plane beats, all its reactors run, whose
/// listeners are opened before, one of their devices has a link, and it is not being drained. Of a data plane that was killed it says so when its
/// heartbeat is too old, as liveness() does.
Health readiness(const segment::Layout& layout, std::uint64_t monotonic_now_ns);

}  // namespace sluice::telemetry
