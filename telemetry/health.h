// SPDX-License-Identifier: Apache-2.0
//
// Liveness and readiness for supervisors and load balancers, computed from the segment alone. Any thread of
// the control plane's process.
#pragma once

#include <cstdint>
#include <string>

#include "dataplane/segment/segment.h"

namespace sluice::telemetry {

struct Health {
  bool good = false;
  std::string text;  ///< a clause: the reason if not good, else the state
};

/// Reports whether the control plane's loop has completed an iteration within segment::kHeartbeatTimeoutNs.
Health liveness(const segment::Layout& layout, std::uint64_t monotonic_now_ns);
/// Reports whether new connections are served. Requires that this process owns the segment and is alive, that
/// the data plane has a recent heartbeat, that all its reactors run (they open their listeners before), that
/// at least one of their devices has a link, and that the gateway is not draining. A data plane that was
/// killed is not ready once its heartbeat is older than segment::kHeartbeatTimeoutNs.
Health readiness(const segment::Layout& layout, std::uint64_t monotonic_now_ns);

}  // namespace sluice::telemetry
