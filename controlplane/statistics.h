// SPDX-License-Identifier: Apache-2.0
//
// Counters of the control plane's parts, collected for the exporter and 'sluicectl', and events from the
// counters of devices. Runs on the control plane's loop.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "controlplane/cm/connection_controller.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/json/json.h"
#include "controlplane/locks/lock_service.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/properties/property_exchange.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/segment.h"
#include "dataplane/segment/tables.h"

// X(name). Names are used in segment::ControlCounter's family events, and in 'sluicectl status'.
#define SLUICE_EVENT_COUNTS(X) \
  X(recorded)                  \
  X(suppressed)                \
  X(overwritten_unread)        \
  X(lost_by_targets)           \
  X(log_lines_dropped)
namespace sluice::events {
class Journal;
}
namespace sluice::segment {
struct Layout;
}

namespace sluice::controlplane {

/// Counts of recorded and lost events and log lines.
struct EventCounts {
#define SLUICE_EVENT_COUNT(name) std::uint64_t name = 0;
  SLUICE_EVENT_COUNTS(SLUICE_EVENT_COUNT)
#undef SLUICE_EVENT_COUNT
};

Json to_json(const EventCounts& counts);

/// Sources of the counters. A pointer is null if the part does not exist.
struct StatisticsSources {
  const cm::ConnectionController& keeper;
  const properties::PropertyExchange& exchange;
  const policy::CreditController& credits;
  const cm::Outbox& outbox;
  const mount::MountStatistics* mount = nullptr;
  const kerberos::ContextStatistics* contexts = nullptr;
  const locks::LockStatistics* locks = nullptr;
  std::array<const tasks::ArenaStatistics*, 3> arenas{};
  EventCounts events;
  std::uint64_t data_parts_cut = 0;
  std::uint64_t starts_answered = 0;
  std::uint64_t clients_cut_off = 0;  ///< admin socket clients disconnected because they did not read
  std::uint64_t requests_queued = 0;  ///< requests of the admin socket that waited for a place
};

/// Copies the counters to `layout`.
void publish_statistics(segment::Layout& layout, const StatisticsSources& sources);

/// Adds events to the journal when RDMA devices of the data plane lose their links, come up or change, as
/// published by the reactors.
class DeviceMonitor {
 public:
  /// `journal` and `layout` outlive this object.
  DeviceMonitor(events::Journal& journal, const segment::Layout& layout)
      : journal_(journal), layout_(layout) {}

  /// Compares the published state with that of the last call. A device that is down when a new data plane
  /// starts causes an event too.
  void poll(const segment::ConfigBlock& config, bool data_plane_alive);

 private:
  /// Counters of a device since its data plane started.
  struct Counts {
    std::uint64_t downs = 0;
    std::uint64_t ups = 0;
    std::uint64_t reopened = 0;
    std::uint64_t broken = 0;
    std::uint64_t mac_changes = 0;
    std::uint64_t mtu_changes = 0;
  };

  Counts counts_of(segment::Driver driver, std::uint32_t reactor) const;
  void compare(std::uint32_t reactor, const segment::ReactorInfo& info, const Counts& before,
               const Counts& now);

  events::Journal& journal_;
  const segment::Layout& layout_;
  std::array<std::optional<Counts>, segment::kMaxReactors> known_{};  ///< as of the last poll()
};

}  // namespace sluice::controlplane
