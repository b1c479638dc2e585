// SPDX-License-Identifier: Apache-2.0
#include "controlplane/device_watch.h"

#include <string_view>

#include "controlplane/events/journal.h"
#include "controlplane/events/kinds.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/client_link.h"
#include "dataplane/segment/segment.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"

namespace sluice::controlplane {
namespace {

/// Returns the place of a counter in a driver's table; its length: the driver has none of this name.
template <typename Table>
constexpr std::size_t place_of(const Table& table, std::string_view name) {
  std::size_t i = 0;
  while (i < std::size(table) && table[i].name != name) ++i;
  return i;
}

}  // namespace

DeviceWatch::Counts DeviceWatch::counts_of(segment::Driver driver, std::uint32_t reactor) const {
  const auto& statistics = layout_.reactors[reactor].device_statistics;
  const auto read = [&](segment::CounterFamily family, const auto& table, std::string_view name) {
    const std::size_t place = place_of(table, name);
    return place < std::size(table) ? layout_.places.value(family, place, statistics) : std::uint64_t{0};
  };
  const auto of = [&](std::string_view name) {
    return driver == segment::Driver::Verbs
               ? read(segment::CounterFamily::Verbs, rdma::verbs::kStatistics, name)
               : read(segment::CounterFamily::SoftRoce, rdma::softroce::kStatistics, name);
  };
  return {.downs = of("port_down"),
          .ups = of("port_up"),
          .reopened = of("port_reopened"),
          .mac_changes = of("mac_changes"),
          .mtu_changes = of("mtu_changes")};
}

void DeviceWatch::compare(std::uint32_t reactor, const segment::ReactorInfo& info, const Counts& before,
                          const Counts& now) {
  const bool reopened = now.reopened > before.reopened;
  const bool gone = info.condition == segment::DeviceCondition::Gone || reopened;
  if (now.downs > before.downs)
    journal_.add(events::DeviceDown{.reactor = reactor, .reason = gone ? "gone" : "no_link"});
  if (now.ups > before.ups) journal_.add(events::DeviceUp{.reactor = reactor, .reopened = reopened});
  if (now.mac_changes > before.mac_changes)
    journal_.add(events::DeviceChanged{.reactor = reactor, .what = "mac_address", .path_mtu = info.path_mtu});
  if (now.mtu_changes > before.mtu_changes)
    journal_.add(events::DeviceChanged{.reactor = reactor, .what = "mtu", .path_mtu = info.path_mtu});
}

void DeviceWatch::poll(const segment::ConfigBlock& config, bool data_plane_alive) {
  if (!data_plane_alive) return known_.fill(std::nullopt);
  // A client that comes and goes has events of its connections.
  if (config.driver == segment::Driver::Loopback || segment::link_is_client(config)) return;
  const std::uint32_t devices = config.driver == segment::Driver::Verbs ? config.reactors : 1;
  for (std::uint32_t i = 0; i < smaller_of(devices, segment::kMaxReactors); ++i) {
    const auto info = layout_.reactors[i].info.read();
    if (!info || info->state != segment::ReactorState::Running) continue;
    const Counts now = counts_of(config.driver, i);
    if (known_[i] && (now.downs < known_[i]->downs || now.ups < known_[i]->ups))
      known_[i].reset();  // of another data plane
    Counts before = known_[i].value_or(now);
    if (!known_[i] && info->condition != segment::DeviceCondition::Up)
      before.downs = now.downs - (now.downs > 0);
    compare(i, *info, before, now);
    known_[i] = now;
  }
}

}  // namespace sluice::controlplane
