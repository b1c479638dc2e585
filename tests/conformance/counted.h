// SPDX-License-Identifier: Apache-2.0
//
// Counters of the transport as names and numbers. A test lists every counter that some traffic changes: one
// too many or too few is a failure.
#pragma once

#include <map>
#include <string>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// Counters that are not zero.
using Counted = std::map<std::string, std::uint64_t>;

/// Increments since `before`, of the client class that connections have by default.
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
