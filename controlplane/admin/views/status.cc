// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/status.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/policy/admission.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/version.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/port_list.h"
#include "pmd/verbs/statistics.h"

namespace sluice::admin {
namespace {

Json heartbeat(const segment::Heartbeat& beat, bool alive) {
  const std::uint64_t now = segment::monotonic_ns();
  Json result = {{"alive", alive}, {"pid", beat.pid.load()}};
  if (beat.pid.load() != 0) {
    if (const std::string version = segment::version_of(beat); !version.empty()) result["version"] = version;
    result["heartbeat_age_s"] = static_cast<double>(segment::heartbeat_age_ns(beat, now)) * 1e-9;
    result["uptime_s"] = alive ? seconds_since(beat.started_ns.load()) : 0.0;
  }
  return result;
}

double milliseconds(const std::atomic<std::uint64_t>& ns) {
  return static_cast<double>(ns.load(std::memory_order_relaxed)) * 1e-6;
}

/// Returns the addresses of the service, each with the netid and the universal address that rpcbind uses (RFC
/// 8166, section 9).
Json services(const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t i = 0; i < config.address_count; ++i) {
    const PeerAddress& address = config.addresses[i].address;
    list.push_back({{"netid", netid(address)},
                    {"address", universal_address(address, static_cast<std::uint16_t>(config.port))}});
  }
  return list;
}

}  // namespace

Json status(const segment::Layout& layout, const config::Config& config, const ControlPlaneState& state) {
  Json requests;
  for (std::size_t i = 0; i < std::size(policy::kVerdictNames); ++i)
    requests[policy::kVerdictNames[i]] = state.admission.count(static_cast<policy::Verdict>(i));
  for (std::size_t i = 0; i < policy::kRefusalCount; ++i)
    requests[policy::kRefusals[i].name] = state.refusals[i];
  return {{"version", kVersion},
          {"control_plane", heartbeat(layout.control_plane, true)},
          {"data_plane", heartbeat(layout.data_plane, state.data_plane_alive)},
          {"configuration",
           {{"generation", config.block.generation},
            {"in_force", state.in_force},
            {"pending", state.pending},
            {"pending_control", state.pending_control}}},
          {"draining", state.admission.draining()},
          {"connections", count_connections(layout, config.block)},
          {"admitted_connections", state.admission.connections()},
          {"exports", exports(layout).size()},
          {"port", config.block.port},
          {"services", services(config.block)},
          {"connection_requests", requests},
          {"control_loop_stall_ms",
           {{"since_start", milliseconds(layout.longest_stall_ns)},
            {"recent", milliseconds(layout.recent_stall_ns)}}}};
}

Json drain_status(const segment::Layout& layout, const config::Config& config, bool draining) {
  return {{"draining", draining}, {"connections", count_connections(layout, config.block)}};
}

Json version() {
  return {{"version", kVersion}};
}

Json describe_changes(const config::Changes& changes) {
  return {{"in_force", changes.live},
          {"restart_control_plane", changes.restart_control},
          {"restart_both_planes", changes.restart_both}};
}

Json check_configuration(const std::string& text, const std::string& name, const config::Config& running,
                         const segment::UpstreamPlaces& places) {
  try {
    config::Config next = config::parse(text, name);
    // Only the directory already in use is read, because clients must not be able to make the control plane
    // open other files.
    if (next.exports_directory == running.exports_directory)
      next = config::parse(text, name, config::read_export_files(next.exports_directory));
    if (const std::string unsaid = config::unsaid_removals(running, next); !unsaid.empty())
      return {{"ok", false}, {"defects", unsaid}};
    config::check_for_start(next);
    Json result = {{"ok", true}, {"changes", describe_changes(config::compare(running, next, places))}};
    if (!next.notes.empty()) result["notes"] = next.notes;
    return result;
  } catch (const std::runtime_error& error) {
    return {{"ok", false}, {"defects", error.what()}};
  }
}

namespace {

static_assert(std::size(rdma::softroce::kStatistics) <= segment::kMaxDeviceStatistics);
static_assert(std::size(rdma::verbs::kStatistics) <= segment::kMaxDeviceStatistics);

template <typename Names>
Json counted(const segment::Layout& layout, std::uint32_t reactor, segment::CounterFamily family,
             const char* driver, const Names& names) {
  const segment::ReactorArea& area = layout.reactors[reactor];
  Json values = {{"reactor", reactor}, {"driver", driver}};
  for (std::size_t i = 0; i < std::size(names); ++i)
    values[std::string(names[i].name)] = layout.places.value(family, i, area.device_statistics);
  return values;
}

/// Returns which reactors poll the port, or why no reactor does.
std::string use_of(const segment::ConfigBlock& block, const rdma::verbs::PortInfo& port) {
  if (!port.problem.empty()) return port.problem;
  if (block.driver != segment::Driver::Verbs) return "usable; set driver = \"verbs\" in [device] for it";
  if (block.verbs_port_count == 0) return "usable; polled if it is the first that is";
  std::string reactors;
  for (std::uint32_t reactor = 0; reactor < block.reactors; ++reactor) {
    const segment::VerbsPort& polled = *block.verbs_port(reactor);
    if (port.device == polled.device && port.port == polled.port)
      reactors += (reactors.empty() ? "" : ", ") + std::to_string(reactor);
  }
  return reactors.empty() ? "usable; not among devices in [device]" : "polled by reactor " + reactors;
}

Json describe_port(const segment::ConfigBlock& block, const rdma::verbs::PortInfo& port) {
  std::string addresses;
  for (const PeerAddress& address : port.addresses)
    addresses += (addresses.empty() ? "" : " ") + to_string(address);
  return {{"device", port.device},
          {"port", port.port},
          {"provider", port.provider},
          {"firmware", port.firmware},
          {"state", port.active ? "active" : "down"},
          {"path_mtu", port.active_mtu},
          {"mbit_per_s", port.speed_mbps},
          {"addresses", addresses},
          {"queue_pairs", port.max_queue_pairs},
          {"work_requests", port.max_work_requests},
          {"pieces", port.max_sge},
          {"completions", port.max_completions},
          {"reads", port.max_reads},
          {"windows", port.windows ? port.max_windows : 0},
          {"remote_invalidation", port.remote_invalidation},
          {"sluice", use_of(block, port)}};
}

}  // namespace

Json devices(const segment::Layout& layout, const segment::ConfigBlock& block) {
  Json polled = Json::array();
  for (std::uint32_t reactor = 0; reactor < block.reactors; ++reactor) {
    if (block.driver == segment::Driver::SoftRoce)
      polled.push_back(counted(layout, reactor, segment::CounterFamily::SoftRoce, "softroce",
                               rdma::softroce::kStatistics));
    if (block.driver == segment::Driver::Verbs)
      polled.push_back(
          counted(layout, reactor, segment::CounterFamily::Verbs, "verbs", rdma::verbs::kStatistics));
  }
  Json ports = Json::array();
  for (const rdma::verbs::PortInfo& port : rdma::verbs::list_ports())
    ports.push_back(describe_port(block, port));
  Json result = {{"polled", polled}, {"rdma_ports", ports}};
  if (ports.empty() && block.driver == segment::Driver::Verbs)
    result["hint"] = rdma::verbs::no_devices_hint();
  return result;
}

namespace {

constexpr std::size_t kHoldersShown = 5;

/// Returns VmRSS of a process from /proc, in bytes. Returns zero if there is no such process.
std::uint64_t resident_bytes(std::uint32_t pid) {
  std::FILE* const status = std::fopen(("/proc/" + std::to_string(pid) + "/status").c_str(), "re");
  if (status == nullptr) return 0;
  std::uint64_t kib = 0;
  char line[256];
  while (kib == 0 && std::fgets(line, sizeof line, status) != nullptr)
    if (std::string_view(line).starts_with("VmRSS:")) kib = std::strtoull(line + 6, nullptr, 10);
  std::fclose(status);
  return kib * 1024;
}

Json describe_pools(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    for (std::size_t i = 0; i < segment::kSharedPools.size(); ++i) {
      const segment::PoolUse& use = layout.reactors[reactor].pools[i];
      list.push_back({{"reactor", reactor},
                      {"pool", segment::kSharedPools[i].name},
                      {"size", segment::kSharedPools[i].size},
                      {"buffers", use.buffers.load()},
                      {"held", use.held.load()},
                      {"waiting", use.waiting.load()}});
    }
  return list;
}

Json describe_upstream_pools(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json list = Json::array();
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    for (std::uint32_t upstream = 0; upstream < config.upstream_count; ++upstream)
      for (std::size_t i = 0; i < segment::kUpstreamPools.size(); ++i) {
        const segment::PoolUse& use = layout.reactors[reactor].upstreams[upstream].pools[i];
        list.push_back({{"reactor", reactor},
                        {"upstream", config.upstreams[upstream].name},
                        {"pool", segment::kUpstreamPools[i]},
                        {"size", use.buffers.load()},
                        {"held", use.held.load()},
                        {"waiting", use.waiting.load()}});
      }
  return list;
}

Json describe_holders(const segment::Layout& layout, const segment::ConfigBlock& config) {
  struct Holder {
    std::uint64_t bytes;
    std::uint32_t reactor;
    std::uint32_t connection;
  };
  std::vector<Holder> holders;
  for (std::uint32_t reactor = 0; reactor < config.reactors; ++reactor)
    for (std::uint32_t number = 0; number < config.all_connections(); ++number) {
      const segment::ConnectionUse& use = layout.reactors[reactor].use[number];
      const std::uint64_t bytes = use.open.load() != 0 ? use.held_bytes.load() : 0;
      if (bytes > 0) holders.push_back({bytes, reactor, number});
    }
  const std::size_t shown = std::min(holders.size(), kHoldersShown);
  std::partial_sort(holders.begin(), holders.begin() + static_cast<std::ptrdiff_t>(shown), holders.end(),
                    [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  Json list = Json::array();
  for (std::size_t i = 0; i < shown; ++i) {
    const auto info = layout.reactors[holders[i].reactor].connections[holders[i].connection].read();
    list.push_back({{"reactor", holders[i].reactor},
                    {"connection", holders[i].connection},
                    {"peer", info ? to_string(info->peer) : ""},
                    {"held_bytes", holders[i].bytes}});
  }
  return list;
}

}  // namespace

Json memory(const segment::Layout& layout, const segment::ConfigBlock& config) {
  Json parts = Json::array();
  if (const auto table = segment::checked(layout.memory))
    for (const auto& part : *table)
      if (part.reserved_bytes > 0)
        parts.push_back({{"what", part.what}, {"reserved_bytes", part.reserved_bytes}});
  const std::uint32_t pid = layout.data_plane.pid.load();
  return {{"resident_bytes", pid != 0 ? resident_bytes(pid) : 0},
          {"parts", parts},
          {"shared", describe_pools(layout, config)},
          {"upstreams", describe_upstream_pools(layout, config)},
          {"biggest_holders", describe_holders(layout, config)}};
}

}  // namespace sluice::admin
