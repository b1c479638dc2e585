// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus exporter: "/metrics", and "/healthz" and "/readyz" for probes, which return status 200 or
// 503 and a line with the reason. It reads only the shared segment, so a scrape costs the reactors nothing.
// Threads: see http::Server.
#pragma once

#include <string>

#include "dataplane/segment/segment.h"
#include "telemetry/http/server.h"
#include "telemetry/pending_keys.h"

namespace sluice::telemetry {

class Exporter : public http::Server {
 public:
  /// Listens on "host:port". `layout` and `pending` must outlive the exporter. Throws SetupError.
  Exporter(const std::string& address, const segment::Layout& layout, const PendingKeys& pending);
};

}  // namespace sluice::telemetry
