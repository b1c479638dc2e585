// SPDX-License-Identifier: Apache-2.0
//
// Where the time of forwarded calls goes. The control plane's main thread.
#pragma once

#include <cstdint>

#include "dataplane/segment/layout.h"

namespace sluice::admin {

/// Of one call, all reactors together.
struct MeanLatency {
  double upstream_us = 0;  ///< from sending it to the last byte of its reply
  double gateway_us = 0;   ///< from its arrival to sending it on
  /// The rest. Calls are counted by program, so that it is that of all upstreams together that have programs in common.
  double rdma_us = 0;
};

MeanLatency mean_latency(const segment::Layout& layout, const segment::ConfigBlock& config,
                         std::uint32_t upstream);

}  // namespace sluice::admin
