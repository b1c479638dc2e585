// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl upstreams' and 'sluicectl reverse'. Reads the segment. Any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Each upstream, all reactors together: state, calls, and the mean latency by where it is spent.
nlohmann::json upstreams(const segment::Layout& layout, const segment::ConfigBlock& config);
/// All counters of each upstream.
nlohmann::json upstream_counters(const segment::Layout& layout, const segment::ConfigBlock& config);

/// The reverse gateway: state, clients, calls; and all its counters.
nlohmann::json reverse(const segment::Layout& layout, const segment::ConfigBlock& config);
nlohmann::json reverse_counters(const segment::Layout& layout, const segment::ConfigBlock& config);

}  // namespace sluice::admin
