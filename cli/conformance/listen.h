// SPDX-License-Identifier: Apache-2.0
//
// Judges clients until it is told to stop. The thread that polls the device.
#pragma once

#include <iosfwd>

#include "cli/conformance/responder.h"

namespace sluice::conformance {

struct ListenOptions {
  ResponderConfig responder;
  std::string upstream;  ///< "127.0.0.1:2049"; empty: only NULL is served
  bool strict = false;
};

/// SIGINT or SIGTERM ends it. Says on `log` that clients may come.
std::vector<Result> listen(rdma::Device& device, rdma::ConnectionManager& manager,
                           const ListenOptions& options, std::ostream& log);

}  // namespace sluice::conformance
