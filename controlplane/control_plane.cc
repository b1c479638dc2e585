// SPDX-License-Identifier: Apache-2.0
#include "controlplane/control_plane.h"

#include <unistd.h>

#include "controlplane/admin/views/reactors.h"
#include "controlplane/configuration.h"
#include "controlplane/events/kinds.h"
#include "controlplane/events/sinks.h"
#include "controlplane/page/status.h"
#include "controlplane/properties/host_handshake.h"
#include "controlplane/statistics.h"
#include "controlplane/topology.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/log/log.h"

namespace sluice::controlplane {
namespace {

constexpr std::uint64_t kCheckIntervalNs = 500'000'000;
/// Interval of the search for the data plane's part of the segment, which the data plane creates at its first
/// start.
constexpr std::uint64_t kLookIntervalNs = 50'000'000;

void log_event(const events::Event& event) {
  static constexpr log::Level kLevels[] = {log::Level::Info, log::Level::Warning, log::Level::Error};
  log::write(kLevels[static_cast<std::size_t>(event.kind->severity)], events::to_log_line(event));
}

}  // namespace

ControlPlane::ControlPlane(config::Config config, std::shared_ptr<LogQueue> log)
    : log_(std::move(log)),
      journal_(std::make_shared<events::Journal>(log_event)),
      ownership_(std::make_unique<segment::ControlOwnership>(config.segment)),
      layout_(ownership_->layout()),
      outbox_(layout_),
      configuration_(
          std::move(config), ownership_->segment(), layout_, *journal_, file_tasks_,
          [this](std::unique_ptr<properties::HostAuthentication> keys) { reconfigure(std::move(keys)); }),
      config_(configuration_.current()),
      reach_(*journal_, layout_),
      devices_(*journal_, layout_) {
  log::set_level(log::level_named(config_.log_level));
  configuration_.keep_to_data_plane();
  try {
    make_servers();
  } catch (const SetupError& error) {
    if (ownership_->stopped_predecessor() == 0) throw;
    throw SetupError(std::string(error.what()) + " The previous control plane (process " +
                     std::to_string(layout_.control_plane.pid.load()) +
                     ") is suspended (SIGSTOP) and keeps its ports. End it with kill -KILL.");
  }
  take_over();
}

/// Creates everything that can fail, or that holds ports and sockets.
void ControlPlane::make_servers() {
  configuration_.keep_numbers();
  make_sinks();
  credits_ = std::make_unique<policy::CreditController>(layout_, config_.credit_settings());
  keeper_ =
      std::make_unique<cm::ConnectionController>(layout_, config_, *credits_, outbox_, *journal_, tasks_);
  exchange_ = std::make_unique<properties::PropertyExchange>(
      layout_, config_, outbox_, properties::configured_authentication(config_), *journal_);
  add_admin_methods(methods_, *this);
  const admin::Owner owner{.segment = config_.segment,
                           .epoch = ownership_->epoch(),
                           .predecessor = ownership_->stopped_predecessor()};
  admin_ = std::make_unique<admin::Server>(methods_, config_.admin_socket, config_.admin_change_group,
                                           config_.admin_read_group, owner);
  admin_->limit_by(admin_pace_);
  if (!config_.metrics_address.empty()) {
    exporter_ = std::make_unique<telemetry::Exporter>(config_.metrics_address, layout_, pending_keys_);
    sites_.emplace_back(services_, *exporter_);
  }
  if (!config_.page_address.empty()) make_page();
  if (config_.mount_enabled) {
    mount_ = std::make_unique<mount::MountServer>(
        services_, config_.mount_port, config_.mount_rpcbind ? onc_rpc::kRpcbindSocket : "",
        [this](mount::MountStatistics& statistics) {
          return mount_exports(config_.block, layout_, statistics);
        },
        *journal_, nfs_listener(config_.block, layout_));
    log::info("MOUNT is served on port {}", mount_->port());
  }
  if (config_.kerberos_enabled) {
    contexts_ = std::make_unique<kerberos::ContextServer>(services_, config_.kerberos_port, config_.block,
                                                          layout_.upstream_addresses);
    log::info("Kerberos contexts are served on port {}", contexts_->port());
  }
  if (config_.locks_enabled) {
    locks_ = std::make_unique<locks::LockServer>(lock_settings(config_, layout_));
    log::info("Locks of NFS version 3 (NLM) are served on port {}", locks_->port());
  }
}

void ControlPlane::make_sinks() {
  if (!config_.events_file.empty())
    sinks_.push_back(std::make_unique<events::Sink>(
        journal_, std::make_unique<events::FileTarget>(config_.events_file), file_tasks_));
  if (config_.events_journald)
    sinks_.push_back(
        std::make_unique<events::Sink>(journal_, std::make_unique<events::JournaldTarget>(), file_tasks_));
}

void ControlPlane::make_page() {
  auto status = std::make_shared<page::Status>(layout_, *journal_);
  page_ = std::make_unique<page::PageServer>(config_.page_address, config_.page_name,
                                             [status = std::move(status)] { return status->render(); });
  sites_.emplace_back(services_, *page_);
  log::info("The status page is served on port {}", page_->port());
}

/// Takes over the segment. From here on this control plane is visible to others.
void ControlPlane::take_over() {
  ownership_->take();
  const auto turn = ownership_->enter();
  if (!turn) throw SetupError("Another control plane has taken over segment '" + config_.segment + "'.");
  configuration_.take_over(segment::monotonic_ns());
  credits_->reconfigure(config_.credit_settings());
  data_plane_epoch_ = segment::epoch_of(layout_.data_plane.owner.load());
  data_plane_alive_ = data_plane_alive();
  if (data_plane_alive_) keep_off_reactors();
  // A drain continues under a new control plane, and ends with the data plane.
  keeper_->set_draining(layout_.draining != 0 && data_plane_alive_);
  layout_.draining = draining() ? 1 : 0;
  keeper_->take_over();
  // Pairs with Reactor::announce_requests(): the events for the predecessor have left the ring.
  layout_.reading_epoch.store(ownership_->epoch(), std::memory_order_release);
  addresses_ = std::make_unique<upstreams::AddressManager>(services_, config_.block, layout_,
                                                           [this](const Function<void()>& write) {
                                                             if (const auto own = ownership_->enter())
                                                               write();
                                                           });
  clients_ = std::make_unique<policy::ClientMonitor>(layout_, config_.block.reactors,
                                                     config_.block.all_connections());
  segment::start_heartbeat(layout_.control_plane, segment::monotonic_ns(), segment::wall_ns());
  admin_->show();
  journal_->add(events::Takeover{.segment = config_.segment,
                                 .process = static_cast<std::uint64_t>(::getpid()),
                                 .connections = keeper_->connections()});
  if (ownership_->stopped_predecessor() != 0)
    log::warn("The previous control plane is suspended (SIGSTOP) and will exit when resumed");
}

ControlPlane::~ControlPlane() = default;

bool ControlPlane::data_plane_alive() const {
  return segment::alive(layout_.data_plane, segment::monotonic_ns()) &&
         ownership_->segment().data_plane_runs();
}

/// Moves this process off the processors of reactors, which the data plane chooses and publishes in the
/// segment. New threads of oneTBB start with all processors, so this is repeated.
void ControlPlane::keep_off_reactors() {
  own_processors_.keep_off(admin::reactor_cpus(layout_, config_.block.reactors));
}

bool ControlPlane::in_force() const {
  return !data_plane_alive() || layout_.generation_applied.load() == config_.block.generation;
}

/// Applies the content of a file to all parts.
void ControlPlane::reconfigure(std::unique_ptr<properties::HostAuthentication> keys) {
  exchange_->set_authentication(std::move(keys));
  credits_->reconfigure(config_.credit_settings());
  keeper_->reconfigure();
  addresses_->reconfigure(config_.block);
}

void ControlPlane::check_thread() const {
  static_cast<void>(SLUICE_INVARIANT(loop_.is_caller(), object_owner));
}

void ControlPlane::set_draining(bool draining) {
  check_thread();
  if (draining && !keeper_->draining())
    journal_->add(events::DrainBegun{.connections = keeper_->connections()});
  else if (!draining && keeper_->draining())
    journal_->add(events::DrainEnded{});
  keeper_->set_draining(draining);
  layout_.draining = draining ? 1 : 0;
}

std::optional<std::uint32_t> ControlPlane::incarnation_of(std::uint32_t reactor,
                                                          std::uint32_t connection) const {
  if (reactor >= config_.block.reactors || connection >= config_.block.all_connections()) return std::nullopt;
  const auto info = layout_.reactors[reactor].connections[connection].read();
  if (!info || info->state == segment::ConnectionState::Unused) return std::nullopt;
  return info->incarnation;
}

bool ControlPlane::close_connection(std::uint32_t reactor, std::uint32_t connection) {
  check_thread();
  const auto incarnation = incarnation_of(reactor, connection);
  if (incarnation)
    segment::DesiredStateWriter(layout_.reactors[reactor].wanted)
        .end(connection, *incarnation, segment::End::Disconnect);
  return incarnation.has_value();
}

bool ControlPlane::trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) {
  check_thread();
  const auto incarnation = incarnation_of(reactor, connection);
  if (incarnation)
    segment::DesiredStateWriter(layout_.reactors[reactor].wanted).trace(connection, *incarnation, on);
  return incarnation.has_value();
}

std::string ControlPlane::reason_for_new_process() const {
  if (keeper_->needs_new_process())
    return "An RDMA device is being removed, and only a new process releases it";
  if (data_part_replaced_) return "A data plane has created its part of the segment again";
  if (configuration_.begins_anew()) return "A data plane starts, so changed keys take effect";
  return {};
}

void ControlPlane::look_for_data_plane(std::uint64_t now_ns) {
  if (now_ns - sampled_ns_ < kLookIntervalNs) return;
  sampled_ns_ = now_ns;
  segment::Segment& segment = ownership_->segment();
  const segment::Segment::Found found = segment.refresh(segment::Part::Data);
  data_part_replaced_ |= found == segment::Segment::Found::Replaced;
  const bool unusable = found == segment::Segment::Found::Unusable;
  if (unusable && segment.problem() != data_part_problem_) {
    log::error("{}", segment.problem());
    if (segment.was_truncated(segment::Part::Data)) ++data_parts_cut_;
  }
  data_part_problem_ = unusable ? segment.problem() : "";
}

/// Detects a new data plane. Called before its first events are read, so that its events are not attributed
/// to its predecessor.
void ControlPlane::notice_new_data_plane(std::uint64_t now_ns) {
  const std::uint32_t epoch = segment::epoch_of(layout_.data_plane.owner.load());
  if (epoch == data_plane_epoch_) return;
  data_plane_epoch_ = epoch;
  data_plane_alive_ = false;
  keeper_->on_data_plane_changed(now_ns);
}

void ControlPlane::check_data_plane(std::uint64_t now_ns) {
  if (now_ns - checked_ns_ < kCheckIntervalNs) return;
  checked_ns_ = now_ns;
  const bool alive = data_plane_alive();
  if (alive && !data_plane_alive_) {
    journal_->add(events::DataPlaneFound{.process = layout_.data_plane.pid.load()});
  } else if (!alive && data_plane_alive_) {
    journal_->add(
        events::DataPlaneLost{.reason = ownership_->segment().data_plane_runs() ? "silent" : "ended"});
  }
  data_plane_alive_ = alive;
  if (alive) keep_off_reactors();
  reach_.poll(config_.block, alive, now_ns);
  devices_.poll(config_.block, alive);
  check_configuration();
  journal_->poll();
}

/// Reports a configuration in force once the data plane has applied it, because the data plane may refuse it.
void ControlPlane::check_configuration() {
  const std::uint64_t applied = layout_.generation_applied.load();
  if (!data_plane_alive_ || applied != config_.block.generation || applied == generation_told_) return;
  generation_told_ = applied;
  journal_->add(events::ConfigurationInForce{.generation = applied});
}

/// Waits at most `timeout_ms` for administrators and for results of tasks.
void ControlPlane::wait(int timeout_ms) {
  constexpr std::uint64_t kMillisecondNs = 1'000'000;
  const std::uint64_t now = segment::monotonic_ns();
  waited_.clear();
  waited_.wake_at(admin_work_.pending() ? now
                                        : now + static_cast<std::uint64_t>(timeout_ms) * kMillisecondNs);
  admin_->prepare(waited_);
  for (const int tasks : {tasks_.descriptor(), file_tasks_.descriptor()}) waited_.add(tasks, POLLIN);
  waited_.wait(now);
  woke_ns_ = smaller_of(segment::monotonic_ns(), larger_of(waited_.wake_ns(), now));
}

ControlPlane::Pass ControlPlane::poll(int timeout_ms) {
  check_thread();
  // The previous iteration is measured here, because the caller's work between two calls is part of it.
  stalls_.turned(woke_ns_, segment::monotonic_ns());
  wait(timeout_ms);
  const auto turn = ownership_->enter();
  if (!turn) return Pass::NotOurs;
  tasks_.deliver();
  file_tasks_.deliver();
  admin_work_.run();
  admin_->poll(waited_, segment::monotonic_ns());
  const std::uint64_t now = segment::monotonic_ns();
  segment::beat(layout_.control_plane, now);
  notice_new_data_plane(now);
  configuration_.poll(now);
  bool any = keeper_->poll(now);
  any |= exchange_->poll(now);
  credits_->poll(now);
  clients_->poll(now);
  look_for_data_plane(now);
  check_data_plane(now);
  for (const auto& sink : sinks_) sink->poll();
  publish_statistics();
  return any ? Pass::Busy : Pass::Idle;
}

void ControlPlane::publish_statistics() {
  controlplane::publish_statistics(
      layout_, {.keeper = *keeper_,
                .exchange = *exchange_,
                .credits = *credits_,
                .outbox = outbox_,
                .mount = mount_ ? &mount_->statistics() : nullptr,
                .contexts = contexts_ ? &contexts_->statistics() : nullptr,
                .locks = locks_ ? &locks_->statistics() : nullptr,
                .arenas = {&tasks_.statistics(), &file_tasks_.statistics(), &addresses_->lookups()},
                .events = event_counts(),
                .data_parts_cut = data_parts_cut_,
                .starts_answered = configuration_.starts_answered(),
                .clients_cut_off = admin_->cut_off(),
                .requests_queued = admin_->queued()});
  layout_.longest_stall_ns.store(stalls_.longest_ns(), std::memory_order_relaxed);
  layout_.recent_stall_ns.store(stalls_.recent_ns(), std::memory_order_relaxed);
  pending_keys_.control.store(configuration_.pending_control().size(), std::memory_order_relaxed);
  pending_keys_.both.store(configuration_.pending().size(), std::memory_order_relaxed);
}

EventCounts ControlPlane::event_counts() const {
  const events::JournalStatistics& events = journal_->statistics();
  EventCounts counts{.recorded = events.recorded.load(std::memory_order_relaxed),
                     .suppressed = events.suppressed.load(std::memory_order_relaxed),
                     .overwritten_unread = events.unread.load(std::memory_order_relaxed),
                     .log_lines_dropped = log_ ? log_->dropped() : 0};
  for (const auto& sink : sinks_) counts.lost_by_targets += sink->lost();
  return counts;
}

}  // namespace sluice::controlplane
