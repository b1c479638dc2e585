// SPDX-License-Identifier: Apache-2.0
//
// Views of what reactors do: 'sluicectl reactors', 'sluicectl procedures', 'sluicectl counters', 'sluicectl
// topology', 'sluicectl exports' and 'sluicectl export-stats'. They read the segment. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/segment/calls.h"
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

/// Returns XID, procedure, status and sizes of a call, and the microseconds that it spent in each state.
/// `table` has the names of procedures. Any content of `table` and `record` is valid input.
Json describe_call(const segment::CallTable& table, const segment::TraceRecord& record);

/// Returns use and totals of each export that the data plane serves.
Json exports(const segment::Layout& layout);
/// Returns calls and errors by procedure, for procedures that were called at least once. Covers the export
/// `path`, or every export if `path` is empty.
Json export_statistics(const segment::Layout& layout, const std::string& path);

/// Returns the seconds since `wall_ns`, a time of segment::wall_ns(). Returns zero if that time is in the
/// future because the clock was set back.
inline double seconds_since(std::uint64_t wall_ns) {
  const std::uint64_t now = segment::wall_ns();
  return now > wall_ns ? static_cast<double>(now - wall_ns) * 1e-9 : 0;
}

}  // namespace sluice::admin
