// SPDX-License-Identifier: Apache-2.0
//
// Judges clients until it is interrupted. Runs on the thread that polls the device.
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
  std::string upstream;             ///< for example "127.0.0.1:2049"; empty means that only NULL is served
  bool calm = false;                ///< disables provocations
  std::uint32_t first_calls = 200;  ///< number of calls that are served before the first provocation
  double patience_s = 5;            ///< longest wait for the call that a provocation needs
  bool strict = false;
};

/// Runs these tests until SIGINT or SIGTERM and returns their results. Writes to `log` when clients may
/// connect and when all tests have been tried.
std::vector<Result> listen(rdma::Device& device, rdma::ConnectionManager& manager,
                           const ListenOptions& options, std::span<const Test* const> tests,
                           std::ostream& log);

/// Returns all client tests, for a list.
std::vector<const Test*> client_tests(std::uint32_t version);

}  // namespace sluice::conformance
