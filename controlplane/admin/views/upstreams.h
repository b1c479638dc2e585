// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl upstreams' and 'sluicectl reverse'. Reads the segment. Any thread.
#pragma once

#include "controlplane/json/json.h"
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

}  // namespace sluice::admin
