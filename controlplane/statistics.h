// SPDX-License-Identifier: Apache-2.0
//
// Counters of the control plane's parts, collected for the exporter and 'sluicectl'. Runs on the control
// plane's loop.
#pragma once

#include <array>
#include <cstdint>

#include "controlplane/cm/connection_controller.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/json/json.h"
#include "controlplane/locks/lock_service.h"
#include "controlplane/mount/statistics.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/properties/property_exchange.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/segment/segment.h"

// X(name). Names are used in segment::ControlCounter's family events, and in 'sluicectl status'.
#define SLUICE_EVENT_COUNTS(X) \
  X(recorded)                  \
  X(suppressed)                \
  X(overwritten_unread)        \
  X(lost_by_targets)           \
  X(log_lines_dropped)

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
  const mount::MountStatistics* contexts = nullptr;  ///< counters of Kerberos contexts
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

}  // namespace sluice::controlplane
