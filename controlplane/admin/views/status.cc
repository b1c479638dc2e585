// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/status.h"

#include <atomic>
#include <cstdint>

#include "controlplane/admin/views/age.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/exports.h"
#include "dataplane/base/net_address.h"
#include "dataplane/segment/version.h"

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

/// Where clients find the service: netid and universal address of each of ours, as rpcbind gives them (RFC 8166,
/// section 9).
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
  return {{"draining", draining},
          {"connections", count_connections(layout, config.block)},
          {"saved", draining == config.saved.drain}};
}

Json version() {
  return {{"version", kVersion}};
}

}  // namespace sluice::admin
