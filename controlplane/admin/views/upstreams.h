// SPDX-License-Identifier: Apache-2.0
//
// Views of the gateways: 'sluicectl upstreams' and 'sluicectl reverse'. They read the segment. Any thread.
#pragma once

#include <cstdint>

#include "controlplane/json/json.h"
#include "dataplane/segment/layout.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Returns state, calls and mean latency (by where it is spent) of each upstream, summed over all reactors.
Json upstreams(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Returns all counters of each upstream.
Json upstream_counters(const segment::Layout& layout, const segment::ConfigBlock& config);

/// Returns state, clients and calls of the reverse gateway.
Json reverse(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Returns all counters of the reverse gateway.
Json reverse_counters(const segment::Layout& layout, const segment::ConfigBlock& config);

/// Mean latency of one call, over all reactors.
struct MeanLatency {
  double upstream_us = 0;  ///< time from sending the call upstream to the last byte of its reply
  double gateway_us = 0;   ///< time from the arrival of the call to sending it upstream
  /// Remaining time. Total times are recorded by program, so this is a mean over all upstreams that share
  /// programs.
  double rdma_us = 0;
};

/// Returns the mean latency of the calls that upstream number `upstream` has answered.
MeanLatency mean_latency(const segment::Layout& layout, const segment::ConfigBlock& config,
                         std::uint32_t upstream);

}  // namespace sluice::admin
