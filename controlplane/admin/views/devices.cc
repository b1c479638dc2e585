// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/views/devices.h"

#include <string>
#include <vector>

#include "dataplane/base/net_address.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/port_list.h"
#include "pmd/verbs/statistics.h"

namespace sluice::admin {
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

/// Which reactors poll the port, or why none does.
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
  if (ports.empty()) result["hint"] = rdma::verbs::no_devices_hint();
  return result;
}

}  // namespace sluice::admin
