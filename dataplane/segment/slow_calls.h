// SPDX-License-Identifier: Apache-2.0
//
// Calls that took longer than [observability] slow_call_ms, recorded by their reactor for tools. One writer,
// the reactor; any thread or process reads. Times are in ns.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/tables.h"
#include "dataplane/segment/trace.h"

namespace sluice::segment {

struct SlowCall {
  /// Number of the record in its ring, by which a reader verifies that it found the record that it looked
  /// for.
  std::uint64_t number = 0;
  std::uint64_t ended_ns = 0;  ///< wall clock
  /// Time from the Send to the upstream's reply. Zero: not forwarded, or not answered.
  std::uint64_t upstream_ns = 0;
  PeerAddress peer;
  std::uint32_t client_class = 0;
  std::uint32_t replied = 0;  ///< zero: its connection ended first, and TraceRecord::status is not valid
  /// Record of the call. Its times have the resolution of loop iterations, unless the connection was traced.
  TraceRecord call;
};

/// Ring of slow calls. It continues across restarts of the data plane.
using SlowCallRing = RecordRing<SlowCall, 128>;
using SlowCalls = std::array<SlowCallRing, kMaxReactors>;

}  // namespace sluice::segment
