// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl reactors', 'sluicectl procedures', 'sluicectl counters' and 'sluicectl topology'. Reads the
// segment. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// Returns state, processor and totals of each reactor that has started.
Json reactors(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Returns the calls of each procedure and class that had any, and their share of the reactors' time,
/// estimated from samples.
Json procedures(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Returns all transport and reactor counters, one object per reactor.
Json counters(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Returns the processors on which the data plane has placed the reactors that have started.
std::vector<std::uint32_t> reactor_cpus(const segment::Layout& layout, std::uint32_t reactors);
/// Returns `machine`, a result of topology::describe(), with the processors of the reactors added.
Json topology(Json machine, const std::vector<std::uint32_t>& reactor_cpus);

}  // namespace sluice::admin
