// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus exporter: reads the shared segment when it is scraped, on threads of its own. The reactors
// do nothing for it.
#pragma once

#include <memory>
#include <string>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/segment.h"

namespace sluice::telemetry {

/// Scrapes at once; further ones wait for one of these to end.
inline constexpr int kScrapers = 4;
/// A scraper that takes its answer more slowly is cut off.
inline constexpr int kScrapeTimeoutMs = 10'000;

class Exporter {
 public:
  /// Listens on "host:port". `layout` has to outlive it. Throws SetupError.
  Exporter(const std::string& address, const segment::Layout& layout);
  ~Exporter();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::telemetry
