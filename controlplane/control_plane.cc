// SPDX-License-Identifier: Apache-2.0
#include "controlplane/control_plane.h"

#include <sched.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>

#include "controlplane/admin_methods.h"
#include "controlplane/config/reverse.h"
#include "controlplane/config/started.h"
#include "controlplane/config/upstreams.h"
#include "controlplane/events/kinds.h"
#include "controlplane/events/text.h"
#include "controlplane/mount/group_exports.h"
#include "controlplane/mount/segment_exports.h"
#include "controlplane/mount/upstream_exports.h"
#include "controlplane/properties/key_file.h"
#include "controlplane/properties/psk.h"
#include "controlplane/topology.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::controlplane {
namespace {

constexpr std::uint64_t kCheckIntervalNs = 500'000'000;
/// For the data plane's part of the segment, which it makes when it starts for the first time.
constexpr std::uint64_t kLookIntervalNs = 50'000'000;

config::Config with_cpus(config::Config config) {
  if (!config.choose_cpus) return config;
  const auto chosen = topology::choose(topology::processors(), config.block.reactors);
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    config.block.cpus[i] = chosen[i].cpu;
    config.block.numa_nodes[i] = chosen[i].numa_node;
  }
  return config;
}

/// Keeps this thread, and those of exporter and MOUNT, which inherit its affinity, off the processors that reactors
/// poll on. No effect when there is no other processor.
void keep_off_reactors(const segment::ConfigBlock& block) {
  cpu_set_t cpus;
  if (::sched_getaffinity(0, sizeof cpus, &cpus) != 0) return;
  for (std::uint32_t i = 0; i < block.reactors; ++i)
    if (block.cpus[i] < CPU_SETSIZE) CPU_CLR(block.cpus[i], &cpus);
  if (CPU_COUNT(&cpus) > 0) ::sched_setaffinity(0, sizeof cpus, &cpus);
}

/// With the keys as they are in the files now. Null where the configuration has no method.
std::unique_ptr<properties::HostAuthentication> host_authentication(const config::Config& config) {
  if (config.authentication_method == "none") return nullptr;
  try {
    properties::PskHosts hosts;
    for (const config::HostEntry& host : config.authentication_hosts)
      for (const std::string& file : host.key_files)
        hosts[host.name].push_back(properties::read_key_file(file));
    return std::make_unique<properties::PskAuthentication>(config.authentication_name, std::move(hosts));
  } catch (const std::runtime_error& error) {
    throw config::ConfigError(std::string(error.what()) + '\n');
  }
}

void log_event(const events::Event& event) {
  static constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::info, spdlog::level::warn,
                                                          spdlog::level::err};
  spdlog::log(kLevels[static_cast<std::size_t>(event.kind->severity)], "{}", events::to_log_line(event));
}

}  // namespace

ControlPlane::ControlPlane(config::Config config, std::shared_ptr<LogQueue> log)
    : config_(with_cpus(std::move(config))),
      log_(std::move(log)),
      journal_(std::make_shared<events::Journal>(log_event)),
      ownership_(std::make_unique<segment::ControlOwnership>(config_.segment)),
      layout_(ownership_->layout()),
      outbox_(layout_),
      starts_(layout_),
      reach_(*journal_, layout_) {
  spdlog::set_level(spdlog::level::from_str(config_.log_level));
  keep_to_data_plane();
  keep_off_reactors(config_.block);
  try {
    make_servers();
  } catch (const SetupError& error) {
    if (ownership_->stopped_predecessor() == 0) throw;
    throw SetupError(std::string(error.what()) + " The control plane before this one (process " +
                     std::to_string(layout_.control_plane.pid.load()) +
                     ") has been stopped, not ended, and keeps its ports: kill -KILL ends it.");
  }
  take_over();
}

/// Its own parts would otherwise have other sizes and addresses than the data plane's.
void ControlPlane::keep_to_data_plane() {
  beside_data_plane_ = data_plane_has_started(ownership_->segment(), layout_);
  const auto started = beside_data_plane_ ? layout_.config.read_copy() : nullptr;
  if (started == nullptr) return;
  auto [config, later] = config::beside_data_plane(config_, *started, upstream_places());
  config_ = std::move(config);
  for (const std::string& key : later)
    spdlog::warn("{} changes only with a restart of the data plane, which has started with another value",
                 key);
  set_pending(std::move(later));
}

void ControlPlane::set_pending(std::vector<std::string> keys) {
  pending_ = std::move(keys);
  starts_.set_changed(!pending_.empty());
}

/// Whatever can fail, and what holds ports and sockets.
void ControlPlane::make_servers() {
  config_ = merged(std::move(config_));
  make_sinks();
  credits_ = std::make_unique<policy::CreditKeeper>(layout_, config_.credit_settings());
  keeper_ = std::make_unique<cm::ConnectionKeeper>(layout_, config_, *credits_, outbox_, *journal_);
  exchange_ = std::make_unique<properties::PropertyExchange>(layout_, config_, outbox_,
                                                             host_authentication(config_), *journal_);
  add_admin_methods(methods_, *this);
  const admin::Owner owner{.segment = config_.segment,
                           .epoch = ownership_->epoch(),
                           .predecessor = ownership_->stopped_predecessor()};
  admin_ = std::make_unique<admin::Server>(methods_, config_.admin_socket, config_.admin_change_group,
                                           config_.admin_read_group, owner);
  if (!config_.metrics_address.empty())
    exporter_ = std::make_unique<telemetry::Exporter>(config_.metrics_address, layout_);
  if (config_.mount_enabled) {
    mount_ = std::make_unique<mount::MountServer>(
        config_.mount_port, config_.mount_rpcbind ? mount::kRpcbindSocket : "",
        [this](mount::MountStatistics& statistics) { return mount_exports(statistics); }, *journal_);
    spdlog::info("MOUNT on port {}", mount_->port());
  }
  if (config_.kerberos_enabled) {
    contexts_ = std::make_unique<kerberos::ContextServer>(config_.kerberos_port, config_.block,
                                                          layout_.upstream_addresses);
    spdlog::info("Kerberos contexts on port {}", contexts_->port());
  }
  if (config_.locks_enabled) {
    locks_ = std::make_unique<locks::LockServer>(lock_settings());
    spdlog::info("Locks of NFS version 3 (NLM) on port {}", locks_->port());
  }
}

void ControlPlane::make_sinks() {
  if (!config_.events_file.empty())
    sinks_.push_back(
        std::make_unique<events::Sink>(journal_, std::make_unique<events::FileTarget>(config_.events_file)));
  if (config_.events_journald)
    sinks_.push_back(std::make_unique<events::Sink>(journal_, std::make_unique<events::JournaldTarget>()));
}

/// From here on others see this control plane.
void ControlPlane::take_over() {
  ownership_->take();
  const auto turn = ownership_->enter();
  if (!turn) throw SetupError("Another control plane has taken over segment '" + config_.segment + "'.");
  starts_.look(segment::monotonic_ns());
  publish(config_);  // what the predecessor has published until now counts
  if (!beside_data_plane_) starts_.answered();
  credits_->reconfigure(config_.credit_settings());
  data_plane_epoch_ = segment::epoch_of(layout_.data_plane.owner.load());
  data_plane_alive_ = data_plane_alive();
  // A drain goes on under a new control plane. With the data plane it ends, unless it is saved.
  const bool goes_on = layout_.draining != 0 && data_plane_alive_;
  keeper_->set_draining(goes_on || config_.saved.drain);
  layout_.draining = draining() ? 1 : 0;
  keeper_->take_over();
  layout_.reading_epoch.store(ownership_->epoch(), std::memory_order_release);
  addresses_ = std::make_unique<upstreams::AddressKeeper>(config_.block, layout_,
                                                          [this](const std::function<void()>& write) {
                                                            if (const auto own = ownership_->enter()) write();
                                                          });
  clients_ = std::make_unique<clients::ClientWatch>(layout_, config_.block.reactors,
                                                    config_.block.all_connections());
  segment::start_heartbeat(layout_.control_plane, segment::monotonic_ns(), segment::wall_ns());
  admin_->show();
  journal_->add(events::Takeover{.segment = config_.segment,
                                 .process = static_cast<std::uint64_t>(::getpid()),
                                 .connections = keeper_->connections()});
  if (draining() && !goes_on) {
    journal_->add(events::DrainBegun{.connections = keeper_->connections()});
    spdlog::warn("{} has a drain: 'sluicectl drain --stop --save' ends it", config_.saved_changes);
  }
  if (ownership_->stopped_predecessor() != 0)
    spdlog::warn("The control plane before this one has been stopped, and ends when it is continued");
}

ControlPlane::~ControlPlane() = default;

/// The key of file handles, the numbers of exports and those of classes stay as first published: handles and
/// counters of a running data plane depend on them.
config::Config ControlPlane::merged(config::Config next) const {
  const auto published = layout_.config.read_copy();
  if (published && published->generation > 0) {
    next.block.handle_key = published->handle_key;
    next.block.generation = published->generation + 1;
    config::keep_places(*published, next.block);
    config::keep_upstreams(*published, next.block);
    config::keep_classes(*published, next);
  } else {
    if (::getrandom(next.block.handle_key.data(), next.block.handle_key.size(), 0) !=
        static_cast<ssize_t>(next.block.handle_key.size()))
      throw SetupError("The kernel gives no random bytes (getrandom) for the key of file handles.");
    next.block.generation = 1;
  }
  return next;
}

void ControlPlane::publish(config::Config next) {
  config_ = merged(std::move(next));
  layout_.config.write(config_.block);
}

void ControlPlane::reload(admin::Reloaded done) {
  if (!config_.file.empty()) return reloader_.request(std::move(done));
  done({.changes = {},
        .problem = "The control plane runs on its built-in defaults: start it with --config FILE to have "
                   "something to "
                   "reload.\n"});
}

/// Files may be anywhere, also on a server that does not answer: they are read in the arena.
Reloader::Read ControlPlane::begin_reload() {
  struct Content {
    config::Config next;
    std::unique_ptr<properties::HostAuthentication> keys;
  };
  return [this, running = config_]() -> Reloader::Apply {
    try {
      const auto content = std::make_shared<Content>();
      content->next = config::load_file(running.file);
      content->keys = host_authentication(config::live_part(running, content->next));
      return [this, content] { return apply(content->next, std::move(content->keys)); };
    } catch (const std::exception& error) {
      return [this, problem = std::string(error.what())] {
        journal_->add(events::ConfigurationRefused{.problem = problem});
        return admin::ReloadResult{{}, problem};
      };
    }
  };
}

/// In a turn: the loop delivers what the arena has done in one.
admin::ReloadResult ControlPlane::apply(const config::Config& next,
                                        std::unique_ptr<properties::HostAuthentication> keys) {
  const segment::UpstreamPlaces places = upstream_places();
  config::Changes changes = config::compare(config_, next, places);
  publish(config::live_part(config_, next, places));
  set_pending(changes.restart_both);
  exchange_->set_authentication(std::move(keys));
  spdlog::set_level(spdlog::level::from_str(config_.log_level));
  credits_->reconfigure(config_.credit_settings());
  keeper_->reconfigure();
  addresses_->reconfigure(config_.block);
  journal_->add(events::ConfigurationRead{
      .generation = config_.block.generation,
      .file = config_.file,
      .changes = changes.live.size(),
      .need_restart = changes.restart_control.size() + changes.restart_both.size()});
  return {.changes = std::move(changes), .problem = {}};
}

void ControlPlane::set_log_level(const std::string& level) {
  config::Config next = config_;
  next.log_level = level;
  next.block.log_level = static_cast<std::uint32_t>(spdlog::level::from_str(level));
  publish(std::move(next));
  spdlog::set_level(spdlog::level::from_str(level));
}

void ControlPlane::set_export(const segment::ExportConfig& entry) {
  if (!config::serves_exports(config_.block))
    throw config::ConfigError("NFS version 3 is forwarded to another server: there are no exports here.\n");
  config::Config next = config_;
  segment::ExportConfig* place = nullptr;
  for (segment::ExportConfig& known : next.block.exports)
    if (std::string_view(known.path) == entry.path || (place == nullptr && known.in_use == 0)) place = &known;
  if (place == nullptr)
    throw config::ConfigError("There are " + std::to_string(next.block.exports.size()) +
                              " exports already: remove one first.\n");
  *place = entry;
  publish(std::move(next));
  journal_->add(events::ExportChanged{.path = entry.path, .change = "set"});
}

/// In the same arena as reloads, since it reads and writes their files.
void ControlPlane::save(const config::Change& change, admin::Saved done) {
  if (config_.saved_changes.empty())
    return done((config_.file.empty() ? "The control plane runs on its built-in defaults: start it with "
                                        "--config FILE, and there let "
                                      : "There is no file to save it in: in " + config_.file + " let ") +
                "saved_changes name one, as \"/var/lib/sluice/saved.toml\", and reload.");
  const bool started = file_tasks_.start([this, change, done, running = config_]() -> tasks::Arena::Done {
    try {
      const config::SavedChanges saved = config::save_change(change, running);
      return [this, done, saved] {
        config_.saved = saved;
        done({});
      };
    } catch (const std::exception& error) {
      return [done, problem = std::string(error.what())] { done(problem); };
    }
  });
  if (!started) done("The control plane has too much to do at the moment: try again later.");
}

bool ControlPlane::remove_export(const std::string& path) {
  config::Config next = config_;
  for (segment::ExportConfig& entry : next.block.exports) {
    if (entry.in_use == 0 || path != entry.path) continue;
    entry.in_use = 0;
    publish(std::move(next));
    journal_->add(events::ExportChanged{.path = path, .change = "removed"});
    return true;
  }
  return false;
}

bool ControlPlane::data_plane_alive() const {
  return segment::alive(layout_.data_plane, segment::monotonic_ns()) &&
         ownership_->segment().data_plane_runs();
}

segment::UpstreamPlaces ControlPlane::upstream_places() const {
  return layout_.upstream_places.read().value_or(segment::UpstreamPlaces{});
}

bool ControlPlane::in_force() const {
  return !data_plane_alive() || layout_.generation_applied.load() == config_.block.generation;
}

/// NFSv3 clients ask here wherever their calls go: to exports in memory, to an upstream, to the server of [reverse].
std::unique_ptr<mount::Exports> ControlPlane::mount_exports(mount::MountStatistics& statistics) const {
  const auto of_upstream = [this, &statistics](const segment::UpstreamConfig& upstream) {
    return std::make_unique<mount::UpstreamExports>(
        upstream,
        [this, name = std::string(upstream.name)] {
          return segment::answering_address(layout_.upstream_addresses, name);
        },
        statistics);
  };
  mount::GroupExports::Newcomers newcomers{.in_force = [this] { return mount::group_in_force(layout_); },
                                           .make = of_upstream};
  std::vector<mount::GroupExports::Member> group;
  for (std::uint32_t i = 0; i < config_.block.upstream_count; ++i) {
    const segment::UpstreamConfig& upstream = config_.block.upstreams[i];
    if (upstream.handle_tag != 0)
      group.push_back({upstream.name, upstream.handle_tag, of_upstream(upstream)});
  }
  if (!group.empty())
    return std::make_unique<mount::GroupExports>(
        std::move(group), [this](const std::string& name) { return mount::export_paths_of(layout_, name); },
        statistics, std::move(newcomers));
  if (const auto* upstream = config::upstream_of(config_.block, {ulb::kNfsProgram, ulb::kNfs3Version}))
    return of_upstream(*upstream);
  const segment::ReverseConfig& reverse = config_.block.reverse;
  if (reverse.in_use != 0)
    return std::make_unique<mount::UpstreamExports>(
        config::mount_of_server(reverse), [address = reverse.mount_address] { return address; }, statistics);
  return std::make_unique<mount::SegmentExports>(layout_);
}

/// The upstream is that of NFSv3: the configuration has one.
locks::LockSettings ControlPlane::lock_settings() const {
  const segment::UpstreamConfig upstream =
      *config::upstream_of(config_.block, {ulb::kNfsProgram, ulb::kNfs3Version});
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof host - 1);
  const auto& shared = layout_.upstream_addresses;
  locks::ProxySettings proxy;
  proxy.upstream = upstream.name;
  proxy.privileged_port = upstream.privileged_port != 0;
  proxy.name = config_.locks_name.empty() ? host : config_.locks_name;
  proxy.where = [&shared, name = proxy.upstream] { return segment::answering_address(shared, name); };
  proxy.is_upstream = [&shared, name = proxy.upstream](const PeerAddress& address) {
    return segment::has_address(shared, name, address);
  };
  // Of the seconds since 2020, so that it is higher after each restart.
  constexpr std::int64_t kYear2020 = 1'577'836'800;
  proxy.first_state = static_cast<std::uint32_t>(std::time(nullptr) - kYear2020) * 2 + 1;
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof random, 0) == static_cast<ssize_t>(sizeof random))
    proxy.first_id = random % (1u << 30) + 1;
  return {.port = config_.locks_port,
          .rpcbind = config_.locks_rpcbind ? mount::kRpcbindSocket : "",
          .may_lock =
              [upstream](const PeerAddress& address) {
                return mount::allowed(upstream.allowed, upstream.allowed_count, address);
              },
          .state = config_.locks_state,
          .proxy = std::move(proxy)};
}

void ControlPlane::set_draining(bool draining) {
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
  const auto incarnation = incarnation_of(reactor, connection);
  if (incarnation)
    segment::WantedWriter(layout_.reactors[reactor].wanted)
        .end(connection, *incarnation, segment::End::Disconnect);
  return incarnation.has_value();
}

bool ControlPlane::trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) {
  const auto incarnation = incarnation_of(reactor, connection);
  if (incarnation)
    segment::WantedWriter(layout_.reactors[reactor].wanted).trace(connection, *incarnation, on);
  return incarnation.has_value();
}

std::string ControlPlane::reason_for_new_process() const {
  if (keeper_->needs_new_process())
    return "An RDMA device is being removed, and only a new process releases it";
  if (data_part_replaced_) return "A data plane has made its part of the segment anew";
  if (begin_anew_) return "A data plane starts, with which changed keys come into force";
  return {};
}

void ControlPlane::look_for_data_plane(std::uint64_t now_ns) {
  if (now_ns - looked_ns_ < kLookIntervalNs) return;
  looked_ns_ = now_ns;
  segment::Segment& segment = ownership_->segment();
  const segment::Segment::Found found = segment.look_for(segment::Part::Data);
  data_part_replaced_ |= found == segment::Segment::Found::Replaced;
  const bool unusable = found == segment::Segment::Found::Unusable;
  if (unusable && segment.problem() != data_part_problem_) {
    spdlog::error("{}", segment.problem());
    if (segment.was_cut(segment::Part::Data)) ++data_parts_cut_;
  }
  data_part_problem_ = unusable ? segment.problem() : "";
}

void ControlPlane::answer_start(std::uint64_t now_ns) {
  switch (starts_.look(now_ns)) {
    case StartWatch::Step::Nothing:
      return;
    case StartWatch::Step::Answer:
      publish(config_);
      return starts_.answered();
    case StartWatch::Step::Read:
      return reload([this](const admin::ReloadResult& result) { starts_.has_read(result.problem.empty()); });
    case StartWatch::Step::BeginAnew:
      begin_anew_ = true;
  }
}

/// Before its first events are read: what is made for it must not be taken for what its predecessor has left.
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
  reach_.look(config_.block, alive, now_ns);
  check_configuration();
  journal_->turn();
}

/// Only the data plane's word counts: it may refuse what is published.
void ControlPlane::check_configuration() {
  const std::uint64_t applied = layout_.generation_applied.load();
  if (!data_plane_alive_ || applied != config_.block.generation || applied == generation_told_) return;
  generation_told_ = applied;
  journal_->add(events::ConfigurationInForce{.generation = applied});
}

ControlPlane::Pass ControlPlane::poll(int timeout_ms) {
  // Here, since what the caller does between two passes belongs to a turn.
  stalls_.turned(admin_->woke_ns(), segment::monotonic_ns());
  admin_->wait(timeout_ms, {tasks_.descriptor(), file_tasks_.descriptor()});
  const auto turn = ownership_->enter();
  if (!turn) return Pass::NotOurs;
  tasks_.deliver();
  file_tasks_.deliver();
  admin_->serve();
  const std::uint64_t now = segment::monotonic_ns();
  segment::beat(layout_.control_plane, now);
  notice_new_data_plane(now);
  answer_start(now);
  bool any = keeper_->poll(now);
  any |= exchange_->poll(now);
  credits_->poll(now);
  clients_->poll(now);
  look_for_data_plane(now);
  check_data_plane(now);
  publish_statistics();
  return any ? Pass::Busy : Pass::Idle;
}

/// Copies the statistics of all parts to the segment, from where the exporter reads them.
void ControlPlane::publish_statistics() {
  using segment::ControlCounter;
  const auto set = [this](ControlCounter counter, std::uint64_t value) {
    layout_.control_counters[static_cast<std::size_t>(counter)].store(value, std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < std::size(policy::kVerdicts); ++i)
    set(static_cast<ControlCounter>(static_cast<std::size_t>(ControlCounter::requests_admitted) + i),
        keeper_->admission().count(static_cast<policy::Verdict>(i)));
  if (const cm::AgentStatistics* agent = keeper_->agent()) {
#define SLUICE_CM_SET(name, help) set(ControlCounter::cm_##name, agent->name);
    SLUICE_CM_STATISTICS(SLUICE_CM_SET)
#undef SLUICE_CM_SET
  }
  if (mount_) {
    const mount::MountStatistics& mount = mount_->statistics();
#define SLUICE_MOUNT_SET(name) set(ControlCounter::mount_##name, mount.name.load(std::memory_order_relaxed));
    SLUICE_MOUNT_STATISTICS(SLUICE_MOUNT_SET)
#undef SLUICE_MOUNT_SET
  }
  if (contexts_) {
    const mount::MountStatistics& contexts = contexts_->statistics();
#define SLUICE_CONTEXTS_SET(name) \
  set(ControlCounter::kerberos_##name, contexts.name.load(std::memory_order_relaxed));
    SLUICE_CONTEXT_STATISTICS(SLUICE_CONTEXTS_SET)
#undef SLUICE_CONTEXTS_SET
  }
  if (locks_) publish_lock_statistics();
  const tasks::ArenaStatistics& tasks = tasks_.statistics();
  const tasks::ArenaStatistics& files = file_tasks_.statistics();
  const tasks::ArenaStatistics& lookups = addresses_->lookups();
  set(ControlCounter::tasks_started, tasks.started + files.started + lookups.started);
  set(ControlCounter::tasks_delayed, tasks.delayed + files.delayed + lookups.delayed);
  set(ControlCounter::tasks_refused, tasks.refused + files.refused + lookups.refused);
  const properties::ExchangeStatistics& exchange = exchange_->statistics();
  set(ControlCounter::properties_sets, exchange.sets);
  set(ControlCounter::properties_clamped, exchange.clamped);
  set(ControlCounter::properties_authenticated, exchange.authenticated);
  set(ControlCounter::properties_refused, exchange.refused);
  set(ControlCounter::properties_parts_lost, exchange.parts_lost);
  set(ControlCounter::properties_parts_delayed, outbox_.statistics().parts_delayed);
  const policy::CreditStatistics& credits = credits_->statistics();
  set(ControlCounter::policy_recomputations, credits.recomputations);
  set(ControlCounter::policy_changes, credits.changes);
  layout_.recomputation_ns.store(credits.last_recomputation_ns, std::memory_order_relaxed);
  layout_.longest_stall_ns.store(stalls_.longest_ns(), std::memory_order_relaxed);
  layout_.recent_stall_ns.store(stalls_.recent_ns(), std::memory_order_relaxed);
  const EventCounts events = event_counts();
#define SLUICE_EVENTS_SET(name) set(ControlCounter::events_##name, events.name);
  SLUICE_EVENT_COUNTS(SLUICE_EVENTS_SET)
#undef SLUICE_EVENTS_SET
  set(ControlCounter::keeper_hints_repeated, keeper_->watch().hints_repeated());
  set(ControlCounter::keeper_commands_delayed, outbox_.statistics().commands_delayed);
  set(ControlCounter::keeper_datagrams_delayed, outbox_.statistics().datagrams_delayed);
  set(ControlCounter::keeper_datagrams_lost, outbox_.statistics().datagrams_lost);
  set(ControlCounter::keeper_data_parts_cut, data_parts_cut_);
}

ControlPlane::EventCounts ControlPlane::event_counts() const {
  const events::JournalStatistics& events = journal_->statistics();
  EventCounts counts{.recorded = events.recorded.load(std::memory_order_relaxed),
                     .suppressed = events.suppressed.load(std::memory_order_relaxed),
                     .overwritten_unread = events.unread.load(std::memory_order_relaxed),
                     .log_lines_dropped = log_ ? log_->dropped() : 0};
  for (const auto& sink : sinks_) counts.lost_by_targets += sink->lost();
  return counts;
}

nlohmann::json ControlPlane::event_statistics() const {
  const EventCounts counts = event_counts();
  nlohmann::json result;
#define SLUICE_EVENTS_SHOW(name) result[#name] = counts.name;
  SLUICE_EVENT_COUNTS(SLUICE_EVENTS_SHOW)
#undef SLUICE_EVENTS_SHOW
  return result;
}

void ControlPlane::publish_lock_statistics() {
  using segment::ControlCounter;
  const locks::LockStatistics& locks = locks_->statistics();
  const auto set = [&](ControlCounter counter, const std::atomic<std::uint64_t>& value) {
    layout_.control_counters[static_cast<std::size_t>(counter)].store(value.load(std::memory_order_relaxed),
                                                                      std::memory_order_relaxed);
  };
#define SLUICE_LOCKS_SET(name) set(ControlCounter::locks_##name, locks.name);
  SLUICE_LOCK_STATISTICS(SLUICE_LOCKS_SET)
#undef SLUICE_LOCKS_SET
#define SLUICE_LOCKS_SET(name) set(ControlCounter::locks_##name, locks.sockets.name);
  SLUICE_LOCK_SOCKET_STATISTICS(SLUICE_LOCKS_SET)
#undef SLUICE_LOCKS_SET
  const auto gauge = [&](segment::LockGauge which, const std::atomic<std::uint64_t>& value) {
    layout_.lock_gauges[static_cast<std::size_t>(which)].store(value.load(std::memory_order_relaxed),
                                                               std::memory_order_relaxed);
  };
  gauge(segment::LockGauge::Held, locks.held);
  gauge(segment::LockGauge::Owners, locks.owners);
  gauge(segment::LockGauge::Waiting, locks.waiting);
}

}  // namespace sluice::controlplane
