// SPDX-License-Identifier: Apache-2.0
//
// Latency of forwarded calls by where it is spent. The control plane's main thread.
#pragma once

#include <cstdint>

#include "dataplane/segment/layout.h"

namespace sluice::admin {

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
