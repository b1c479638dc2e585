// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/methods.h"

#include "controlplane/admin/devices.h"
#include "controlplane/admin/upstreams.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "controlplane/control_plane.h"
#include "controlplane/topology.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/version.h"

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

json describe_connection(const segment::ReactorArea& area, const segment::ConnectionInfo& info,
                         std::uint32_t reactor, std::uint32_t number, const config::Config& config) {
  const segment::ConnectionUse& use = area.use[number];
  const std::size_t client_class = info.client_class < config.classes.size() ? info.client_class : 0;
  json entry = {{"reactor", reactor},
                {"connection", number},
                {"state", to_string(info.state)},
                {"peer", to_string(info.peer)},
                {"outgoing", info.outgoing != 0},
                {"class", config.classes[client_class].name},
                {"version", info.version},
                {"credits", use.granted.load()},
                {"busy", use.busy.load()},
                {"calls", use.calls.load()},
                {"receive_inline_bytes", info.receive_inline_bytes},
                {"send_inline_bytes", info.send_inline_bytes},
                {"age_s", seconds_since(info.since_ns)}};
  if (info.version != 2) return entry;
  entry["window"] = info.window;
  entry["client_window"] = info.peer_window;
  entry["held"] = info.held != 0;
  return entry;
}

template <typename Each>
void for_each_connection(const segment::Layout& layout, const config::Config& config, const Each& each) {
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor) {
    const segment::ReactorArea& area = layout.reactors[reactor];
    for (std::uint32_t number = 0; number < config.block.all_connections(); ++number) {
      if (area.use[number].open.load(std::memory_order_relaxed) == 0) continue;
      const auto info = area.connections[number].read();
      if (info && info->state != segment::ConnectionState::Unused) each(area, *info, reactor, number);
    }
  }
}

std::uint32_t count_connections(const segment::Layout& layout, const config::Config& config) {
  std::uint32_t count = 0;
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor)
    if (const auto info = layout.reactors[reactor].info.read()) count += info->connections;
  return count;
}

json connections(const segment::Layout& layout, const config::Config& config, const json& parameters) {
  const std::string peer = parameters.value("peer", "");
  const std::string of_class = parameters.value("class", "");
  json list = json::array();
  for_each_connection(layout, config, [&](const auto& area, const auto& info, auto reactor, auto number) {
    json entry = describe_connection(area, info, reactor, number, config);
    if ((peer.empty() || entry["peer"] == peer) && (of_class.empty() || entry["class"] == of_class))
      list.push_back(std::move(entry));
  });
  return list;
}

json both_properties(const segment::ConnectionInfo& info) {
  return {{"ours", properties(info.own_properties)},
          {"client", info.heard_properties != 0 ? properties(info.peer_properties) : json(nullptr)}};
}

/// Everything about one.
json show_connection(const segment::Layout& layout, const config::Config& config, std::uint32_t reactor,
                     std::uint32_t number) {
  const bool there = reactor < config.block.reactors && number < config.block.all_connections();
  const auto info = there ? layout.reactors[reactor].connections[number].read() : std::nullopt;
  if (!info || info->state == segment::ConnectionState::Unused)
    throw MethodError("There is no connection " + std::to_string(number) + " on reactor " +
                      std::to_string(reactor) + ": 'sluicectl connections' lists those there are.");
  json entry = describe_connection(layout.reactors[reactor], *info, reactor, number, config);
  entry["peak_busy"] = layout.reactors[reactor].use[number].peak_busy.load();
  entry["queue_pair"] = info->queue_pair;
  entry["cm_id"] = info->cm_id;
  if (info->peer_pid != 0) entry["client_process"] = info->peer_pid;
  if (info->version == 2) entry["properties"] = both_properties(*info);
  return entry;
}

/// Of version 2 connections.
json properties_of_all(const segment::Layout& layout, const config::Config& config) {
  json list = json::array();
  for_each_connection(layout, config, [&](const auto&, const auto& info, auto reactor, auto number) {
    if (info.version != 2) return;
    json entry = both_properties(info);
    entry["reactor"] = reactor;
    entry["connection"] = number;
    entry["peer"] = to_string(info.peer);
    list.push_back(std::move(entry));
  });
  return list;
}

/// What policy gives to whom.
json credits(const segment::Layout& layout, controlplane::ControlPlane& plane) {
  const config::Config& config = plane.config();
  struct Sums {
    std::uint64_t connections = 0, granted = 0, used = 0, idle = 0;
  };
  std::vector<Sums> sums(config.classes.size());
  json per_reactor = json::array();
  const std::uint64_t now = segment::monotonic_ns();
  for (std::uint32_t reactor = 0; reactor < config.block.reactors; ++reactor) {
    Sums of_reactor;
    const policy::CreditPolicy& policy = plane.credits().policy(reactor);
    for (std::uint32_t number = 0; number < config.block.all_connections(); ++number) {
      const segment::ConnectionUse& use = layout.reactors[reactor].use[number];
      if (use.open.load(std::memory_order_relaxed) != segment::ConnectionUse::kOfClient) continue;
      const std::uint32_t client_class = use.client_class.load(std::memory_order_relaxed);
      for (Sums* of : {&of_reactor, &sums[client_class < sums.size() ? client_class : 0]}) {
        ++of->connections;
        of->granted += use.granted.load(std::memory_order_relaxed);
        of->used += use.busy.load(std::memory_order_relaxed);
        of->idle += policy.idle(number, now) ? 1 : 0;
      }
    }
    per_reactor.push_back({{"reactor", reactor},
                           {"slots", policy.limits().slots},
                           {"connections", of_reactor.connections},
                           {"idle", of_reactor.idle},
                           {"granted", of_reactor.granted},
                           {"used", of_reactor.used}});
  }
  json per_class = json::array();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const policy::ClientClass& client_class = config.classes[i];
    per_class.push_back({{"class", client_class.name},
                         {"weight", client_class.credits.weight},
                         {"min_credits", client_class.credits.min_credits},
                         {"max_credits", client_class.credits.max_credits},
                         {"connections", sums[i].connections},
                         {"idle", sums[i].idle},
                         {"granted", sums[i].granted},
                         {"used", sums[i].used}});
  }
  const policy::CreditStatistics& statistics = plane.credits().statistics();
  return {{"reactors", per_reactor},
          {"classes", per_class},
          {"recomputations", statistics.recomputations},
          {"last_recomputation_ms", static_cast<double>(statistics.last_recomputation_ns) * 1e-6},
          {"grants_changed", statistics.changes}};
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
                    {"errors", info->errors},
                    {"read_bytes", info->read_bytes},
                    {"written_bytes", info->written_bytes}});
  }
  return list;
}

/// Calls and errors of one export by procedure, those that were ever called.
json export_statistics(const segment::Layout& layout, const std::string& path) {
  constexpr std::uint32_t kNfs = 100003;
  json list = json::array();
  for (const auto& entry : layout.exports) {
    const auto info = entry.read();
    if (!info || info->in_use == 0 || (!path.empty() && path != info->path)) continue;
    for (const segment::ProcedureInfo& procedure : layout.reactors[0].calls.info) {
      if (procedure.program != kNfs || procedure.procedure >= segment::kMaxNfsProcedures ||
          info->procedure_calls[procedure.procedure] == 0)
        continue;
      list.push_back({{"path", info->path},
                      {"procedure", procedure.procedure_name},
                      {"calls", info->procedure_calls[procedure.procedure]},
                      {"errors", info->procedure_errors[procedure.procedure]}});
    }
  }
  return list;
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
                    {"bytes_in", counters["inline_bytes_received"].get<std::uint64_t>() +
                                     counters["rdma_read_bytes"].get<std::uint64_t>()},
                    {"bytes_out", counters["inline_bytes_sent"].get<std::uint64_t>() +
                                      counters["rdma_write_bytes"].get<std::uint64_t>()},
                    {"errors", counters["connection_errors"]},
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
    const PeerAddress& address = config.block.addresses[i].address;
    list.push_back({{"netid", netid(address)},
                    {"address", universal_address(address, static_cast<std::uint16_t>(config.block.port))}});
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

// --- Changes -------------------------------------------------------------------------------------

std::uint32_t number_of(const json& parameters, const char* name) {
  if (!parameters.contains(name) || !parameters[name].is_number_unsigned())
    throw MethodError(std::string(name) + " is needed: a number, as 'sluicectl connections' shows it.");
  return parameters[name].get<std::uint32_t>();
}

/// A command on the connection that the parameters name.
void command_on(controlplane::ControlPlane& plane, const json& parameters, const segment::Command& command) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (plane.command(reactor, connection, command)) return;
  throw MethodError("There is no connection " + std::to_string(connection) + " on reactor " +
                    std::to_string(reactor) + ": 'sluicectl connections' lists those there are.");
}

json trace_read(const segment::Layout& layout, const config::Config& config, const json& parameters) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (reactor >= config.block.reactors)
    throw MethodError("There is no reactor " + std::to_string(reactor) + ".");
  const segment::TraceRing& ring = layout.reactors[reactor].trace;
  const segment::CallTable& table = layout.reactors[reactor].calls;
  const std::uint64_t end = ring.written.load(std::memory_order_acquire);
  std::uint64_t at = std::min(parameters.value("from", std::uint64_t{0}), end);
  at = std::max(at, end > ring.records.size() ? end - ring.records.size() : 0);
  json calls = json::array();
  for (; at < end; ++at) {
    const auto record = ring.records[at % ring.records.size()].read();
    if (!record || record->connection != connection) continue;
    json states = json::object();
    for (std::size_t i = 1; i < segment::kSlotStateCount; ++i)
      if (record->state_ns[i] > 0)
        states[segment::kSlotStates[i]] = static_cast<double>(record->state_ns[i]) * 1e-3;
    std::string procedure = std::to_string(record->program) + '.' + std::to_string(record->version) + '.' +
                            std::to_string(record->procedure);
    for (const segment::ProcedureInfo& info : table.info)
      if (info.program != 0 && info.program == record->program && info.version == record->version &&
          info.procedure == record->procedure)
        procedure = std::string(info.program_name) + '.' + info.procedure_name;
    calls.push_back(
        {{"xid", record->xid},
         {"procedure", procedure},
         {"status",
          segment::kCallStatuses[static_cast<std::size_t>(record->status) % segment::kCallStatusCount]},
         {"call_bytes", record->call_bytes},
         {"reply_bytes", record->reply_bytes},
         {"total_us", static_cast<double>(record->total_ns) * 1e-3},
         {"states_us", states}});
  }
  return {{"next", end}, {"calls", calls}};
}

json to_json(const config::Changes& changes) {
  return {{"in_force", changes.live},
          {"restart_control_plane", changes.restart_control},
          {"restart_both_planes", changes.restart_both}};
}

json check_config(const json& parameters, const config::Config& running) {
  const std::string text = parameters.value("text", "");
  try {
    const config::Config next = config::parse(text, parameters.value("name", "configuration"));
    return {{"ok", true}, {"changes", to_json(config::compare(running, next))}};
  } catch (const config::ConfigError& error) {
    return {{"ok", false}, {"defects", error.what()}};
  }
}

/// An export with the file's own keys, and their defaults and checks.
segment::ExportConfig parse_export(const json& parameters) {
  std::ostringstream text;
  text << "[[export]]\n";
  for (const auto& [key, value] : parameters.items()) {
    if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") != std::string::npos)
      throw MethodError("There is no key '" + key + "' of an export.");
    text << key << " = " << value.dump() << '\n';
  }
  try {
    return config::parse(text.str(), "export").block.exports[0];
  } catch (const config::ConfigError& error) {
    throw MethodError(error.what());
  }
}

json drain_status(const segment::Layout& layout, controlplane::ControlPlane& plane) {
  return {{"draining", plane.draining()}, {"connections", count_connections(layout, plane.config())}};
}

void add_changes(Server& server, controlplane::ControlPlane& plane) {
  segment::Layout& layout = plane.layout();
  server.add("config_reload", Access::Change, [&](const json&) -> json {
    try {
      return to_json(plane.reload());
    } catch (const config::ConfigError& error) {
      throw MethodError("The configuration was not reloaded; the old one stays in force:\n" +
                        std::string(error.what()));
    }
  });
  server.add("log_level", Access::Change, [&](const json& parameters) -> json {
    const std::string level = parameters.value("level", "");
    if (level != "debug" && level != "info" && level != "warn" && level != "error")
      throw MethodError("level has to be one of debug, info, warn, error.");
    plane.set_log_level(level);
    return {{"log_level", level}};
  });
  server.add("export_add", Access::Change, [&](const json& parameters) -> json {
    const segment::ExportConfig entry = parse_export(parameters);
    plane.set_export(entry);
    return {{"path", entry.path}, {"saved", false}};
  });
  server.add("export_remove", Access::Change, [&](const json& parameters) -> json {
    const std::string path = parameters.value("path", "");
    if (!plane.remove_export(path))
      throw MethodError("There is no export '" + path + "': 'sluicectl exports' lists those there are.");
    return {{"path", path}, {"saved", false}};
  });
  server.add("connection_close", Access::Change, [&](const json& parameters) -> json {
    command_on(plane, parameters, {.type = segment::CommandType::Close});
    return {{"closing", true}};
  });
  server.add("drain_start", Access::Change, [&](const json&) {
    plane.set_draining(true);
    return drain_status(layout, plane);
  });
  server.add("drain_stop", Access::Change, [&](const json&) {
    plane.set_draining(false);
    return drain_status(layout, plane);
  });
  server.add("trace_start", Access::Change, [&](const json& parameters) -> json {
    command_on(plane, parameters, {.type = segment::CommandType::Trace, .on = 1});
    return {{"next", layout.reactors[number_of(parameters, "reactor")].trace.written.load()}};
  });
  server.add("trace_stop", Access::Change, [&](const json& parameters) -> json {
    command_on(plane, parameters, {.type = segment::CommandType::Trace, .on = 0});
    return json::object();
  });
  server.add("capture_start", Access::Change,
             [&](const json& parameters) { return start_capture(layout, parameters); });
  server.add("capture_stop", Access::Change, [&](const json&) -> json {
    auto request = layout.capture_request.read().value_or(segment::CaptureRequest{});
    ++request.id;
    request.run = 0;
    layout.capture_request.write(request);
    return {{"id", request.id}};
  });
}

}  // namespace

void add_methods(Server& server, controlplane::ControlPlane& plane) {
  segment::Layout& layout = plane.layout();
  const auto read = [&server](const std::string& name, Method method) {
    server.add(name, Access::Read, std::move(method));
  };
  read("status", [&](const json&) -> json {
    const policy::Admission& admission = plane.keeper().admission();
    json requests;
    for (std::size_t i = 0; i < std::size(policy::kVerdicts); ++i)
      requests[policy::kVerdicts[i]] = admission.count(static_cast<policy::Verdict>(i));
    return {
        {"version", kVersion},
        {"control_plane", heartbeat(layout.control_plane)},
        {"data_plane", heartbeat(layout.data_plane)},
        {"configuration", {{"generation", plane.config().block.generation}, {"in_force", plane.in_force()}}},
        {"draining", plane.draining()},
        {"connections", count_connections(layout, plane.config())},
        {"exports", exports(layout).size()},
        {"port", plane.config().block.port},
        {"services", services(plane.config())},
        {"connection_requests", requests},
        {"reaped", plane.keeper().statistics().reaped}};
  });
  read("connections",
       [&](const json& parameters) { return connections(layout, plane.config(), parameters); });
  read("connection_show", [&](const json& parameters) {
    return show_connection(layout, plane.config(), number_of(parameters, "reactor"),
                           number_of(parameters, "connection"));
  });
  read("export_stats",
       [&](const json& parameters) { return export_statistics(layout, parameters.value("path", "")); });
  read("properties", [&](const json&) { return properties_of_all(layout, plane.config()); });
  read("upstreams", [&](const json&) { return upstreams(layout, plane.config().block); });
  read("upstream_counters", [&](const json&) { return upstream_counters(layout, plane.config().block); });
  read("reverse", [&](const json&) { return reverse(layout, plane.config().block); });
  read("reverse_counters", [&](const json&) { return reverse_counters(layout, plane.config().block); });
  read("credits", [&](const json&) { return credits(layout, plane); });
  read("exports", [&](const json&) { return exports(layout); });
  read("reactors", [&](const json&) { return reactors(layout, plane.config()); });
  read("topology", [&](const json&) {
    json result = topology::describe();
    result["reactor_cpus"] = json::array();
    for (std::uint32_t i = 0; i < plane.config().block.reactors; ++i)
      result["reactor_cpus"].push_back(plane.config().block.cpus[i]);
    return result;
  });
  read("memory", [&](const json&) { return memory(layout); });
  read("counters", [&](const json&) {
    json list = json::array();
    for (std::uint32_t i = 0; i < plane.config().block.reactors; ++i)
      list.push_back(counters_of(layout.reactors[i]));
    return list;
  });
  read("devices", [&](const json&) { return describe_devices(layout, plane.config().block); });
  read("config_show", [&](const json&) { return config::describe(plane.config()); });
  read("config_check", [&](const json& parameters) { return check_config(parameters, plane.config()); });
  read("drain_status", [&](const json&) { return drain_status(layout, plane); });
  read("trace_read", [&](const json& parameters) { return trace_read(layout, plane.config(), parameters); });
  read("capture_status", [&](const json&) { return capture_status(layout); });
  read("version", [](const json&) { return json{{"version", kVersion}}; });
  add_changes(server, plane);
}

}  // namespace sluice::admin
