// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl upstreams' and 'sluicectl reverse'. Reads the segment. Any thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Each upstream, all reactors together: state, calls, and the mean latency by where it is spent.
Json upstreams(const segment::Layout& layout, const segment::ConfigBlock& config);
/// All counters of each upstream.
Json upstream_counters(const segment::Layout& layout, const segment::ConfigBlock& config);

/// The reverse gateway: state, clients, calls; and all its counters.
Json reverse(const segment::Layout& layout, const segment::ConfigBlock& config);
Json reverse_counters(const segment::Layout& layout, const segment::ConfigBlock& config);

}  // namespace sluice::admin
