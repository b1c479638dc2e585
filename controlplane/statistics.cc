// SPDX-License-Identifier: Apache-2.0
#include "controlplane/statistics.h"

#include <iterator>
#include <string_view>

#include "controlplane/cm/connection_state.h"
#include "controlplane/events/journal.h"
#include "controlplane/events/kinds.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/segment.h"
#include "pmd/softroce/statistics.h"
#include "pmd/verbs/statistics.h"

namespace sluice::controlplane {
namespace {

using segment::ControlCounter;

class Writer {
 public:
  explicit Writer(segment::Layout& layout) : layout_(layout) {}

  void set(ControlCounter counter, std::uint64_t value) const {
    layout_.control_counters[static_cast<std::size_t>(counter)].store(value, std::memory_order_relaxed);
  }
  void set(ControlCounter counter, const std::atomic<std::uint64_t>& value) const {
    set(counter, value.load(std::memory_order_relaxed));
  }
  void set(segment::LockGauge gauge, const std::atomic<std::uint64_t>& value) const {
    layout_.lock_gauges[static_cast<std::size_t>(gauge)].store(value.load(std::memory_order_relaxed),
                                                               std::memory_order_relaxed);
  }

 private:
  segment::Layout& layout_;
};

void publish_connections(const Writer& writer, const StatisticsSources& sources) {
  for (std::size_t i = 0; i < std::size(policy::kVerdicts); ++i)
    writer.set(static_cast<ControlCounter>(static_cast<std::size_t>(ControlCounter::requests_admitted) + i),
               sources.keeper.admission().count(static_cast<policy::Verdict>(i)));
  for (std::size_t i = 0; i < policy::kRefusalCount; ++i)
    writer.set(static_cast<ControlCounter>(
                   static_cast<std::size_t>(ControlCounter::requests_invalid_service_id) + i),
               sources.keeper.refusals()[i]);
  if (const cm::AgentStatistics* agent = sources.keeper.agent()) {
#define SLUICE_CM_SET(name, help) writer.set(ControlCounter::cm_##name, agent->name);
    SLUICE_CM_STATISTICS(SLUICE_CM_SET)
#undef SLUICE_CM_SET
  }
  writer.set(ControlCounter::keeper_hints_repeated, sources.keeper.watch().hints_repeated());
  writer.set(ControlCounter::keeper_data_parts_cut, sources.data_parts_cut);
  writer.set(ControlCounter::keeper_starts_answered, sources.starts_answered);
}

void publish_outbox(const Writer& writer, const cm::Outbox& outbox) {
  writer.set(ControlCounter::keeper_commands_delayed, outbox.statistics().commands_delayed);
  writer.set(ControlCounter::keeper_datagrams_delayed, outbox.statistics().datagrams_delayed);
  writer.set(ControlCounter::keeper_datagrams_lost, outbox.statistics().datagrams_lost);
  writer.set(ControlCounter::properties_parts_delayed, outbox.statistics().parts_delayed);
}

void publish_servers(const Writer& writer, const StatisticsSources& sources) {
  if (const mount::MountStatistics* mount = sources.mount) {
#define SLUICE_MOUNT_SET(name) writer.set(ControlCounter::mount_##name, mount->name);
    SLUICE_MOUNT_STATISTICS(SLUICE_MOUNT_SET)
#undef SLUICE_MOUNT_SET
#define SLUICE_MOUNT_SET(name) writer.set(ControlCounter::mount_##name, mount->sockets.name);
    SLUICE_RPC_SOCKET_STATISTICS(SLUICE_MOUNT_SET)
#undef SLUICE_MOUNT_SET
    writer.set(ControlCounter::mount_registrations_foreign, mount->sockets.registrations_foreign);
  }
  if (const kerberos::ContextStatistics* contexts = sources.contexts) {
#define SLUICE_CONTEXTS_SET(name) writer.set(ControlCounter::kerberos_##name, contexts->name);
    SLUICE_CONTEXT_STATISTICS(SLUICE_CONTEXTS_SET)
#undef SLUICE_CONTEXTS_SET
#define SLUICE_CONTEXTS_SET(name) writer.set(ControlCounter::kerberos_##name, contexts->sockets.name);
    SLUICE_RPC_SOCKET_STATISTICS(SLUICE_CONTEXTS_SET)
#undef SLUICE_CONTEXTS_SET
  }
}

void publish_locks(const Writer& writer, const locks::LockStatistics& locks) {
#define SLUICE_LOCKS_SET(name) writer.set(ControlCounter::locks_##name, locks.name);
  SLUICE_LOCK_STATISTICS(SLUICE_LOCKS_SET)
#undef SLUICE_LOCKS_SET
#define SLUICE_LOCKS_SET(name) writer.set(ControlCounter::locks_##name, locks.sockets.name);
  SLUICE_RPC_SOCKET_STATISTICS(SLUICE_LOCKS_SET)
#undef SLUICE_LOCKS_SET
  writer.set(ControlCounter::locks_registrations_foreign, locks.sockets.registrations_foreign);
  writer.set(segment::LockGauge::Held, locks.held);
  writer.set(segment::LockGauge::Owners, locks.owners);
  writer.set(segment::LockGauge::Waiting, locks.waiting);
}

void publish_tasks(const Writer& writer, const StatisticsSources& sources) {
  tasks::ArenaStatistics sum;
  for (const tasks::ArenaStatistics* arena : sources.arenas) {
    sum.started += arena->started;
    sum.delayed += arena->delayed;
    sum.refused += arena->refused;
  }
  writer.set(ControlCounter::tasks_started, sum.started);
  writer.set(ControlCounter::tasks_delayed, sum.delayed);
  writer.set(ControlCounter::tasks_refused, sum.refused);
}

void publish_properties(const Writer& writer, const properties::ExchangeStatistics& exchange) {
  writer.set(ControlCounter::properties_sets, exchange.sets);
  writer.set(ControlCounter::properties_clamped, exchange.clamped);
  writer.set(ControlCounter::properties_authenticated, exchange.authenticated);
  writer.set(ControlCounter::properties_refused, exchange.refused);
  writer.set(ControlCounter::properties_parts_lost, exchange.parts_lost);
}

}  // namespace

Json to_json(const EventCounts& counts) {
  Json result;
#define SLUICE_EVENTS_SHOW(name) result[#name] = counts.name;
  SLUICE_EVENT_COUNTS(SLUICE_EVENTS_SHOW)
#undef SLUICE_EVENTS_SHOW
  return result;
}

void publish_statistics(segment::Layout& layout, const StatisticsSources& sources) {
  const Writer writer(layout);
  publish_connections(writer, sources);
  publish_outbox(writer, sources.outbox);
  publish_servers(writer, sources);
  if (sources.locks != nullptr) publish_locks(writer, *sources.locks);
  publish_tasks(writer, sources);
  publish_properties(writer, sources.exchange.statistics());
  const policy::CreditStatistics& credits = sources.credits.statistics();
  writer.set(ControlCounter::policy_recomputations, credits.recomputations);
  writer.set(ControlCounter::policy_changes, credits.changes);
  writer.set(ControlCounter::admin_clients_cut_off, sources.clients_cut_off);
  writer.set(ControlCounter::admin_requests_queued, sources.requests_queued);
  layout.recomputation_ns.store(credits.last_recomputation_ns, std::memory_order_relaxed);
#define SLUICE_EVENTS_SET(name) writer.set(ControlCounter::events_##name, sources.events.name);
  SLUICE_EVENT_COUNTS(SLUICE_EVENTS_SET)
#undef SLUICE_EVENTS_SET
}

namespace {

/// Returns the index of a counter in a driver's table, or the table's length if the driver has no counter
/// with this name.
template <typename Table>
constexpr std::size_t place_of(const Table& table, std::string_view name) {
  std::size_t i = 0;
  while (i < std::size(table) && table[i].name != name) ++i;
  return i;
}

}  // namespace

DeviceMonitor::Counts DeviceMonitor::counts_of(segment::Driver driver, std::uint32_t reactor) const {
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
  return {.downs = of("port_down") + of("device_lost") + of("flush_timeouts"),
          .ups = of("port_up") + of("device_returned"),
          .reopened = of("port_reopened") + of("device_returned"),
          .broken = of("flush_timeouts"),
          .mac_changes = of("mac_changes"),
          .mtu_changes = of("mtu_changes")};
}

void DeviceMonitor::compare(std::uint32_t reactor, const segment::ReactorInfo& info, const Counts& before,
                            const Counts& now) {
  const bool reopened = now.reopened > before.reopened;
  const bool gone = info.condition == segment::DeviceCondition::Gone || reopened;
  const bool broken = info.condition == segment::DeviceCondition::Broken || now.broken > before.broken;
  if (now.downs > before.downs)
    journal_.add(events::DeviceDown{.reactor = reactor,
                                    .reason = broken ? "broken"
                                              : gone ? "gone"
                                                     : "no_link"});
  if (now.ups > before.ups) journal_.add(events::DeviceUp{.reactor = reactor, .reopened = reopened});
  if (now.mac_changes > before.mac_changes)
    journal_.add(events::DeviceChanged{.reactor = reactor, .what = "mac_address", .path_mtu = info.path_mtu});
  if (now.mtu_changes > before.mtu_changes)
    journal_.add(events::DeviceChanged{.reactor = reactor, .what = "mtu", .path_mtu = info.path_mtu});
}

void DeviceMonitor::poll(const segment::ConfigBlock& config, bool data_plane_alive) {
  if (!data_plane_alive) return known_.fill(std::nullopt);
  // A client process has events for its connections instead.
  if (config.driver == segment::Driver::Loopback || segment::link_is_client(config)) return;
  const std::uint32_t devices = config.driver == segment::Driver::Verbs ? config.reactors : 1;
  for (std::uint32_t i = 0; i < smaller_of(devices, segment::kMaxReactors); ++i) {
    const auto info = layout_.reactors[i].info.read();
    if (!info || info->state != segment::ReactorState::Running) continue;
    const Counts now = counts_of(config.driver, i);
    if (known_[i] && (now.downs < known_[i]->downs || now.ups < known_[i]->ups))
      known_[i].reset();  // the counters are those of another data plane
    Counts before = known_[i].value_or(now);
    if (!known_[i] && info->condition != segment::DeviceCondition::Up)
      before.downs = now.downs - (now.downs > 0);
    compare(i, *info, before, now);
    known_[i] = now;
  }
}

}  // namespace sluice::controlplane
