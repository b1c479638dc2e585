// SPDX-License-Identifier: Apache-2.0
//
// Judges clients until it is told to stop. The thread that polls the device.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "cli/conformance/responder.h"

namespace sluice::conformance {

struct ListenOptions {
  ResponderConfig responder;
  std::string upstream;             ///< "127.0.0.1:2049"; empty: only NULL is served
  bool calm = false;                ///< nothing is provoked
  std::uint32_t first_calls = 200;  ///< that are served before anything is provoked
  double patience_s = 5;            ///< longest wait for what a provocation needs
  bool strict = false;
};

/// Results of these tests alone. SIGINT or SIGTERM ends it. Says on `log` when clients may come, and when all has been tried.
std::vector<Result> listen(rdma::Device& device, rdma::ConnectionManager& manager,
                           const ListenOptions& options, std::span<const Test* const> tests,
                           std::ostream& log);

/// All of them, for a list.
std::vector<const Test*> client_tests(std::uint32_t version);

}  // namespace sluice::conformance
