// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/reactors.h"

#include <string>

#include "controlplane/admin/views/age.h"

namespace sluice::admin {
namespace {

using nlohmann::json;

const char* to_string(segment::ReactorState state) {
  switch (state) {
    case segment::ReactorState::Unused:
      return "unused";
    case segment::ReactorState::Starting:
      return "starting";
    case segment::ReactorState::Running:
      return "running";
    case segment::ReactorState::Stopped:
      return "stopped";
  }
  return "?";
}

json counters_of(const segment::ReactorArea& area) {
  json result;
  for (std::size_t i = 0; i < segment::kTransportCounterCount; ++i) {
    std::uint64_t sum = 0;
    for (const auto& of_class : area.transport_counters) sum += of_class[i].load(std::memory_order_relaxed);
    result[std::string(segment::kTransportCounters[i].name)] = sum;
  }
  for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
    result[std::string(segment::kReactorCounters[i].name)] = area.counters[i].load(std::memory_order_relaxed);
  return result;
}

}  // namespace

nlohmann::json reactors(const segment::Layout& layout, const segment::ConfigBlock& config) {
  json list = json::array();
  for (std::uint32_t number = 0; number < config.reactors; ++number) {
    const auto& area = layout.reactors[number];
    const auto info = area.info.read();
    if (!info) continue;
    const json counters = counters_of(area);
    list.push_back({{"reactor", number},
                    {"state", to_string(info->state)},
                    {"cpu", info->cpu},
                    {"numa_node", info->numa_node},
                    {"connections", info->connections},
                    {"busy_ns", counters["busy_ns"]},
                    {"idle_ns", counters["idle_ns"]},
                    {"calls", counters["calls_received"]},
                    {"bytes_in", counters["inline_bytes_received"].get<std::uint64_t>() +
                                     counters["rdma_read_bytes"].get<std::uint64_t>()},
                    {"bytes_out", counters["inline_bytes_sent"].get<std::uint64_t>() +
                                      counters["rdma_write_bytes"].get<std::uint64_t>()},
                    {"errors", counters["connection_errors"]},
                    {"uptime_s", seconds_since(info->started_ns)}});
  }
  return list;
}

nlohmann::json counters(const segment::Layout& layout, const segment::ConfigBlock& config) {
  json list = json::array();
  for (std::uint32_t i = 0; i < config.reactors; ++i) list.push_back(counters_of(layout.reactors[i]));
  return list;
}

nlohmann::json topology(nlohmann::json machine, const segment::ConfigBlock& config) {
  machine["reactor_cpus"] = json::array();
  for (std::uint32_t i = 0; i < config.reactors; ++i) machine["reactor_cpus"].push_back(config.cpus[i]);
  return machine;
}

}  // namespace sluice::admin
