// SPDX-License-Identifier: Apache-2.0
//
// Calls that took longer than [observability] slow_call_ms, as their reactor leaves them for onlookers. One writer, the
// reactor; any thread or process reads. Times in ns.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/segment/tables.h"
#include "dataplane/segment/trace.h"

namespace sluice::segment {

struct SlowCall {
  std::uint64_t number =
      0;  ///< of the ring's records: tells a reader whether it has found the one that it looked for
  std::uint64_t ended_ns = 0;  ///< wall clock
  std::uint64_t upstream_ns =
      0;  ///< from its Send to the upstream's reply; zero: it was not forwarded, or not answered
  PeerAddress peer;
  std::uint32_t client_class = 0;
  std::uint32_t replied = 0;  ///< zero: its connection ended before, and TraceRecord::status says nothing
  /// Its times are those of the reactor's turns, unless the connection was traced.
  TraceRecord call;
};

/// Goes on over restarts of the data plane.
using SlowCallRing = RecordRing<SlowCall, 128>;
using SlowCalls = std::array<SlowCallRing, kMaxReactors>;

}  // namespace sluice::segment
