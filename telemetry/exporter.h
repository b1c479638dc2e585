// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus exporter, with pages for probes beside it (telemetry/health_pages.h): reads the shared segment on each scrape, on threads of its own.
// It costs the reactors nothing.
#pragma once

#include <memory>
#include <string>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/segment.h"
#include "telemetry/pending_keys.h"

namespace sluice::telemetry {

/// Scrapes served at a time; others wait.
inline constexpr int kScrapers = 4;
/// A scrape that takes longer, because its client reads slowly, is disconnected.
inline constexpr int kScrapeTimeoutMs = 10'000;

class Exporter {
 public:
  /// Listens on "host:port". `layout` and `pending` have to outlive it. Throws SetupError.
  Exporter(const std::string& address, const segment::Layout& layout, const PendingKeys& pending);
  ~Exporter();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::telemetry
