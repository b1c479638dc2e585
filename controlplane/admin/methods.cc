// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/methods.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include "controlplane/topology.h"
#include "controlplane/version.h"
#include "dataplane/rpcrdma/netid.h"
#include "pmd/softroce/statistics.h"

namespace sluice::admin {
namespace {

using nlohmann::json;

double seconds_since(std::uint64_t wall_ns) {
  const std::uint64_t now = segment::wall_ns();
  return now > wall_ns ? static_cast<double>(now - wall_ns) * 1e-9 : 0;
}

json heartbeat(const segment::Heartbeat& beat) {
  const std::uint64_t now = segment::monotonic_ns();
  const bool alive = segment::alive(beat, now);
  json result = {{"alive", alive}, {"pid", beat.pid.load()}};
  if (beat.pid.load() != 0) {
    result["heartbeat_age_s"] = static_cast<double>(segment::heartbeat_age_ns(beat, now)) * 1e-9;
    result["uptime_s"] = alive ? seconds_since(beat.started_ns.load()) : 0.0;
  }
  return result;
}

const char* to_string(segment::ConnectionState state) {
  switch (state) {
    case segment::ConnectionState::Unused:
      return "unused";
    case segment::ConnectionState::Opening:
      return "opening";
    case segment::ConnectionState::Open:
      return "open";
    case segment::ConnectionState::Closing:
      return "closing";
  }
  return "?";
}

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

json properties(const segment::PropertyInfo& p) {
  return {{"max_send_bytes", p.max_send_bytes},
          {"receive_buffer_bytes", p.receive_buffer_bytes},
          {"max_segment_bytes", p.max_segment_bytes},
          {"max_segments", p.max_segments},
          {"reverse_support", p.reverse == 0   ? "none"
                              : p.reverse == 1 ? "inline"
                                               : "general"}};
}

json connections(segment::Layout& layout, const config::Config& config) {
  json list = json::array();
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor) {
    const auto& table = layout.reactors[reactor].connections;
    for (std::uint32_t number = 0; number < table.size(); ++number) {
      const auto info = table[number].read();
      if (!info || info->state == segment::ConnectionState::Unused) continue;
      list.push_back({{"reactor", reactor},
                      {"connection", number},
                      {"state", to_string(info->state)},
                      {"peer", rpcrdma::to_string(info->peer)},
                      {"version", info->version},
                      {"credits", info->credits_granted},
                      {"receive_inline_bytes", info->receive_inline_bytes},
                      {"send_inline_bytes", info->send_inline_bytes},
                      {"age_s", seconds_since(info->since_ns)}});
      if (info->version != 2) continue;
      json& entry = list.back();
      entry["window"] = info->window;
      entry["client_window"] = info->peer_window;
      entry["properties"] = properties(info->own_properties);
      entry["client_properties"] =
          info->heard_properties != 0 ? properties(info->peer_properties) : json(nullptr);
      entry["held"] = info->held != 0;
    }
  }
  return list;
}

json exports(segment::Layout& layout) {
  json list = json::array();
  for (const auto& entry : layout.exports) {
    const auto info = entry.read();
    if (!info || info->in_use == 0) continue;
    list.push_back({{"path", info->path},
                    {"read_only", info->read_only != 0},
                    {"used_bytes", info->used_bytes},
                    {"quota_bytes", info->quota_bytes},
                    {"files", info->files},
                    {"calls", info->calls},
                    {"errors", info->errors}});
  }
  return list;
}

json counters_of(const segment::ReactorArea& area) {
  json result;
  for (std::size_t i = 0; i < segment::kCounterCount; ++i)
    result[std::string(segment::kCounters[i].name)] = area.counters[i].load(std::memory_order_relaxed);
  return result;
}

json reactors(segment::Layout& layout, const config::Config& config) {
  json list = json::array();
  for (std::uint32_t number = 0; number < config.block.reactors; ++number) {
    const auto& area = layout.reactors[number];
    const auto info = area.info.read();
    if (!info) continue;
    const json counters = counters_of(area);
    list.push_back({{"reactor", number},
                    {"state", to_string(info->state)},
                    {"cpu", info->cpu},
                    {"numa_node", info->numa_node},
                    {"connections", info->connections},
                    {"polls_busy", counters["polls_busy"]},
                    {"polls_idle", counters["polls_idle"]},
                    {"calls", counters["calls_received"]},
                    {"uptime_s", seconds_since(info->started_ns)}});
  }
  return list;
}

/// VmRSS of the data plane, from /proc.
std::uint64_t resident_bytes(std::uint32_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind("VmRSS:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

json memory(segment::Layout& layout) {
  json parts = json::array();
  if (const auto table = layout.memory.read())
    for (const auto& part : *table)
      if (part.reserved_bytes > 0)
        parts.push_back({{"what", part.what}, {"reserved_bytes", part.reserved_bytes}});
  const std::uint32_t pid = layout.data_plane.pid.load();
  return {{"resident_bytes", pid != 0 ? resident_bytes(pid) : 0}, {"parts", parts}};
}

/// Where clients find the service, as rpcbind would say it (RFC 8166, section 9).
json services(const config::Config& config) {
  json list = json::array();
  for (std::uint32_t i = 0; i < config.block.address_count; ++i) {
    const rdma::PeerAddress& address = config.block.addresses[i].address;
    list.push_back(
        {{"netid", rpcrdma::netid(address)},
         {"address", rpcrdma::universal_address(address, static_cast<std::uint16_t>(config.block.port))}});
  }
  return list;
}

json start_capture(segment::Layout& layout, const json& parameters) {
  const std::string path = parameters.value("file", "");
  if (path.empty() || path[0] != '/' || path.size() >= segment::kMaxPathBytes)
    throw std::runtime_error("file has to be an absolute path of fewer than " +
                             std::to_string(segment::kMaxPathBytes) + " bytes.");
  segment::CaptureRequest request = layout.capture_request.read().value_or(segment::CaptureRequest{});
  ++request.id;
  request.run = 1;
  request.snap_bytes = parameters.value("snap", 9216u);
  request.max_packets = parameters.value("packets", std::uint64_t{0});
  std::memset(request.path, 0, sizeof request.path);
  std::memcpy(request.path, path.data(), path.size());
  layout.capture_request.write(request);
  return {{"id", request.id}};
}

json capture_status(const segment::Layout& layout) {
  const auto status = layout.capture_status.read();
  if (!status) return {{"state", "none"}};
  static constexpr const char* kStates[] = {"none", "running", "done", "failed"};
  return {{"id", status->id},
          {"state", kStates[static_cast<std::size_t>(status->state) % 4]},
          {"packets", status->packets},
          {"dropped", status->dropped},
          {"problem", status->problem}};
}

static_assert(std::size(rdma::softroce::kStatistics) <= segment::kMaxDeviceStatistics);

json device_statistics(const segment::Layout& layout, const config::Config& config) {
  json list = json::array();
  if (config.block.driver != segment::Driver::SoftRoce) return list;
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor) {
    json values = {{"reactor", reactor}, {"driver", "softroce"}};
    for (std::size_t i = 0; i < std::size(rdma::softroce::kStatistics); ++i)
      values[std::string(rdma::softroce::kStatistics[i].name)] =
          layout.reactors[reactor].device_statistics[i].load();
    list.push_back(values);
  }
  return list;
}

}  // namespace

void add_methods(Server& server, segment::Layout& layout, const config::Config& config,
                 const cm::ConnectionKeeper& keeper) {
  server.add("status", [&](const json&) -> json {
    const auto& stats = keeper.statistics();
    return {{"version", kVersion},
            {"control_plane", heartbeat(layout.control_plane)},
            {"data_plane", heartbeat(layout.data_plane)},
            {"connections", connections(layout, config).size()},
            {"exports", exports(layout).size()},
            {"port", config.block.port},
            {"services", services(config)},
            {"admission",
             {{"requests", stats.requests},
              {"admitted", stats.admitted},
              {"rejected", stats.rejected},
              {"reaped", stats.reaped}}}};
  });
  server.add("connections", [&](const json&) { return connections(layout, config); });
  server.add("exports", [&](const json&) { return exports(layout); });
  server.add("reactors", [&](const json&) { return reactors(layout, config); });
  server.add("topology", [&](const json&) {
    json result = topology::describe();
    result["reactor_cpus"] = json::array();
    for (std::uint32_t i = 0; i < config.block.reactors; ++i)
      result["reactor_cpus"].push_back(config.block.cpus[i]);
    return result;
  });
  server.add("memory", [&](const json&) { return memory(layout); });
  server.add("counters", [&](const json&) {
    json list = json::array();
    for (std::uint32_t i = 0; i < config.block.reactors; ++i) list.push_back(counters_of(layout.reactors[i]));
    return list;
  });
  server.add("devices", [&](const json&) { return device_statistics(layout, config); });
  server.add("capture_start", [&](const json& parameters) { return start_capture(layout, parameters); });
  server.add("capture_stop", [&](const json&) -> json {
    auto request = layout.capture_request.read().value_or(segment::CaptureRequest{});
    ++request.id;
    request.run = 0;
    layout.capture_request.write(request);
    return {{"id", request.id}};
  });
  server.add("capture_status", [&](const json&) { return capture_status(layout); });
  server.add("version", [](const json&) { return json{{"version", kVersion}}; });
}

}  // namespace sluice::admin
