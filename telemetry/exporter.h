// SPDX-License-Identifier: Apache-2.0
//
// The Prometheus exporter: reads the shared segment when it is scraped. The reactors do nothing for it.
#pragma once

#include <memory>
#include <string>

#include "dataplane/segment/segment.h"

namespace sluice::telemetry {

class Exporter {
 public:
  /// Listens on "host:port". `layout` has to outlive it. Throws rdma::SetupError.
  Exporter(const std::string& address, const segment::Layout& layout, std::uint32_t reactors);
  ~Exporter();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::telemetry
