// SPDX-License-Identifier: Apache-2.0
//
// Counters of the transport as names and numbers. A test lists every counter that some traffic changes, so a
// counter too many or too few is a failure.
#pragma once

#include <map>
#include <string>

#include "tests/conformance/lab.h"

namespace sluice::conformance {

/// Counters that are not zero.
using Counted = std::map<std::string, std::uint64_t>;

/// Returns the increments since `before`, for the client class that connections have by default.
inline Counted counted(rpcrdma::Engine& engine, const rpcrdma::Counters& before = {}) {
  Counted result;
  const rpcrdma::Counters& now = engine.counters();
#define SLUICE_COUNTED(name, group, help) \
  if (now.name != before.name) result[#name] = now.name - before.name;
  SLUICE_TRANSPORT_COUNTERS(SLUICE_COUNTED)
#undef SLUICE_COUNTED
  return result;
}

/// Runs some traffic. Checks the counters that it changes, and that the connection and its class have counted
/// the same bytes.
template <typename Lab, typename Case>
void expect_counted(Lab& lab, const Case& some) {
  SCOPED_TRACE(some.what);
  const rpcrdma::Counters before = lab.engine->counters();
  const rpcrdma::Traffic traffic_before = lab.connection->traffic();
  some.run(lab);
  Counted counts = counted(*lab.engine, before);
  EXPECT_EQ(counts, some.expected);
  if (counts["connections_opened"] > 0) return;  // a new connection restarts its counts
  const rpcrdma::Traffic& traffic = lab.connection->traffic();
  EXPECT_EQ(traffic.received - traffic_before.received,
            counts["inline_bytes_received"] + counts["rdma_read_bytes"]);
  EXPECT_EQ(traffic.sent - traffic_before.sent, counts["inline_bytes_sent"] + counts["rdma_write_bytes"]);
}

}  // namespace sluice::conformance
