// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/trace.h"

#include <algorithm>
#include <string>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/parameters.h"
#include "controlplane/admin/views/calls.h"

namespace sluice::admin {
namespace {

/// Records of one connection from number "from" on, as far as the ring still has them; "next" is where to read on.
Json read_trace(const segment::Layout& layout, const config::Config& config, const Json& parameters) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (reactor >= config.block.reactors)
    throw MethodError("There is no reactor " + std::to_string(reactor) + ".");
  const segment::TraceRing& ring = layout.reactors[reactor].trace;
  const std::uint64_t end = ring.written.load(std::memory_order_acquire);
  std::uint64_t at = std::min(parameters.at("from").get<std::uint64_t>(), end);
  at = std::max(at, end > ring.records.size() ? end - ring.records.size() : 0);
  Json calls = Json::array();
  for (; at < end; ++at) {
    const auto record = ring.records[at % ring.records.size()].read();
    if (record && record->connection == connection)
      calls.push_back(describe_call(layout.reactors[reactor].calls, *record));
  }
  return {{"next", end}, {"calls", calls}};
}

/// Has the reactor record the calls of a connection, or no longer. Returns the reactor's number.
std::uint32_t switch_trace(Operations& operations, const Json& parameters, bool on) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (!operations.trace_connection(reactor, connection, on)) throw no_such_connection(reactor, connection);
  return reactor;
}

}  // namespace

void add_trace(Registry& registry, Operations& operations, const segment::Layout& layout,
               const config::Config& config) {
  registry.add(declared("trace_start"), [&](const Json& parameters) -> Json {
    const std::uint32_t reactor = switch_trace(operations, parameters, true);
    return {{"next", layout.reactors[reactor].trace.written.load()}};
  });
  registry.add(declared("trace_stop"), [&](const Json& parameters) {
    switch_trace(operations, parameters, false);
    return Json::object();
  });
  registry.add(declared("trace_read"),
               [&](const Json& parameters) { return read_trace(layout, config, parameters); });
}

}  // namespace sluice::admin
