// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus exporter, "/metrics", with "/healthz" and "/readyz" for probes: status 200 or 503, and a line that says why.
// It reads the shared segment, and costs the reactors nothing. Threads: as http::Server.
#pragma once

#include <string>

#include "dataplane/segment/segment.h"
#include "telemetry/http/server.h"
#include "telemetry/pending_keys.h"

namespace sluice::telemetry {

class Exporter : public http::Server {
 public:
  /// Listens on "host:port". `layout` and `pending` have to outlive it. Throws SetupError.
  Exporter(const std::string& address, const segment::Layout& layout, const PendingKeys& pending);
};

}  // namespace sluice::telemetry
