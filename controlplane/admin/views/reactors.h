// SPDX-License-Identifier: Apache-2.0
//
// 'sluicectl reactors', 'sluicectl procedures', 'sluicectl counters' and 'sluicectl topology'. Reads the segment.
// Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin {

/// State, processor and totals of each reactor that has started.
Json reactors(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Calls, and the reactors' time that they took by samples, of each procedure and class that had any.
Json procedures(const segment::Layout& layout, const segment::ConfigBlock& config);
/// All transport and reactor counters, one object per reactor.
Json counters(const segment::Layout& layout, const segment::ConfigBlock& config);
/// Returns the processors of the reactors that have started, as the data plane has placed them.
std::vector<std::uint32_t> reactor_cpus(const segment::Layout& layout, std::uint32_t reactors);
/// Returns `machine`, as topology::describe() gives it, with the processors of the reactors.
Json topology(Json machine, const std::vector<std::uint32_t>& reactor_cpus);

}  // namespace sluice::admin
