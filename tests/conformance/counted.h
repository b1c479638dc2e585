// SPDX-License-Identifier: Apache-2.0
//
// What the transport counts, as names and numbers, so that a test can name all that some traffic counts: one
// counter too many or too few is a failure.
#pragma once

#include <map>
#include <string>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// Counters that are not zero.
using Counted = std::map<std::string, std::uint64_t>;

/// Since `before`, of the class of clients that connections have by default.
inline Counted counted(rpcrdma::Engine& engine, const rpcrdma::Counters& before = {}) {
  Counted result;
  const rpcrdma::Counters& now = engine.counters();
#define SLUICE_COUNTED(name, group, help) \
  if (now.name != before.name) result[#name] = now.name - before.name;
  SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTED)
#undef SLUICE_COUNTED
  return result;
}

}  // namespace sluice::conformance
