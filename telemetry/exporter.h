// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus exporter: "/metrics", and "/healthz" and "/readyz" for probes, which return status 200 or
// 503 and a line with the reason. It reads only the shared segment and counters of RDMA ports in sysfs, so a
// scrape costs the reactors nothing.
// Threads: see http::Server.
#pragma once

#include <string>

#include "dataplane/segment/segment.h"
#include "telemetry/http/server.h"
#include "telemetry/pending_keys.h"
#include "telemetry/rdma_counters.h"

namespace sluice::telemetry {

class Exporter : public http::Server {
 public:
  /// Listens on "host:port". `layout` and `pending` must outlive the exporter. Throws SetupError.
  /// `rdma_devices` is the folder of sysfs with the RDMA devices.
  Exporter(const std::string& address, const segment::Layout& layout, const PendingKeys& pending,
           const std::string& rdma_devices = kRdmaDevices);
};

}  // namespace sluice::telemetry
