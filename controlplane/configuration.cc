// SPDX-License-Identifier: Apache-2.0
#include "controlplane/configuration.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controlplane/config/changes.h"
#include "controlplane/config/upstreams.h"
#include "controlplane/events/kinds.h"
#include "controlplane/mount/export_sources.h"
#include "controlplane/mount/exports.h"
#include "controlplane/onc_rpc/rpcbind.h"
#include "controlplane/properties/host_handshake.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/log/log.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::controlplane {
Configuration::Configuration(config::Config config, segment::Segment& segment, segment::Layout& layout,
                             events::Journal& journal, tasks::Arena& files, Applied applied)
    : config_(std::move(config)),
      segment_(segment),
      layout_(layout),
      journal_(journal),
      files_(files),
      applied_(std::move(applied)),
      starts_(layout) {}

namespace {

bool serves_nothing(const segment::ConfigBlock& block) {
  const auto in_use = [](const segment::ExportConfig& entry) { return entry.in_use != 0; };
  return block.upstream_count == 0 && block.reverse.in_use == 0 &&
         std::none_of(block.exports.begin(), block.exports.end(), in_use);
}

}  // namespace

/// Keeps the values that the running data plane was started with, because the control plane's own parts would
/// otherwise use other sizes and addresses.
void Configuration::keep_to_data_plane() {
  beside_data_plane_ = data_plane_has_started(segment_, layout_);
  const auto started = beside_data_plane_ ? layout_.config.read_copy() : nullptr;
  if (started == nullptr) return;
  auto [config, later] = config::beside_data_plane(config_, *started, upstream_places());
  config_ = std::move(config);
  for (const std::string& key : later)
    log::warn("{} changes only with a restart of the data plane, which has started with another value", key);
  set_pending(std::move(later));
}

void Configuration::take_over(std::uint64_t now_ns) {
  if (serves_nothing(config_.block))
    log::warn(
        "Nothing is exported or forwarded. Add an [[export]], an [[upstream]] or [reverse] to the "
        "configuration file");
  starts_.poll(now_ns);
  publish(config_);  // includes the changes that the predecessor has published
  if (!beside_data_plane_) starts_.answered();
}

segment::UpstreamPlaces Configuration::upstream_places() const {
  return layout_.upstream_places.read().value_or(segment::UpstreamPlaces{});
}

void Configuration::set_pending(std::vector<std::string> keys) {
  pending_ = std::move(keys);
  starts_.set_changed(!pending_.empty());
}

/// Returns `next` with the key of file handles and the indices of exports, upstreams and classes as first
/// published, because handles and counters of a running data plane depend on them.
config::Config Configuration::merged(config::Config next) const {
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
      throw SetupError("The kernel provides no random bytes (getrandom) for the key of file handles.");
    next.block.generation = 1;
  }
  return next;
}

void Configuration::publish(config::Config next) {
  config_ = merged(std::move(next));
  layout_.config.write(config_.block);
}

void Configuration::poll(std::uint64_t now_ns) {
  switch (starts_.poll(now_ns)) {
    case StartMonitor::Step::Nothing:
      return;
    case StartMonitor::Step::Answer:
      publish(config_);
      return starts_.answered();
    case StartMonitor::Step::Read:
      return reload([this](const admin::ReloadResult& result) { starts_.has_read(result.problem.empty()); });
    case StartMonitor::Step::BeginAnew:
      begins_anew_ = true;
  }
}

void Configuration::reload(admin::Reloaded done) {
  if (!config_.file.empty()) return reloader_.request(std::move(done));
  done({.changes = {},
        .problem = "The control plane runs on its built-in defaults, so there is no file to reload. Start it "
                   "with --config FILE.\n"});
}

Reloader::Read Configuration::begin_reload() {
  struct Content {
    config::Config next;
    std::unique_ptr<properties::HostAuthentication> keys;
  };
  return [this, running = config_]() -> Reloader::Apply {
    try {
      const auto content = std::make_shared<Content>();
      content->next = config::load_file(running.file);
      if (const std::string unsaid = config::unsaid_removals(running, content->next); !unsaid.empty())
        throw config::ConfigError(unsaid);
      content->keys = properties::configured_authentication(config::live_part(running, content->next));
      return [this, content] { return apply(content->next, std::move(content->keys)); };
    } catch (const std::exception& error) {
      return [this, problem = std::string(error.what())] {
        journal_.add(events::ConfigurationRefused{.problem = problem});
        return admin::ReloadResult{{}, problem};
      };
    }
  };
}

/// Applies a configuration. Runs while the loop holds the right to write the segment, because the loop
/// delivers the results of the arena.
admin::ReloadResult Configuration::apply(const config::Config& next,
                                         std::unique_ptr<properties::HostAuthentication> keys) {
  const segment::UpstreamPlaces places = upstream_places();
  config::Changes changes = config::compare(config_, next, places);
  publish(config::live_part(config_, next, places));
  set_pending(changes.restart_both);
  pending_control_ = changes.restart_control;
  log::set_level(log::level_named(config_.log_level));
  applied_(std::move(keys));
  journal_.add(events::ConfigurationRead{
      .generation = config_.block.generation,
      .file = config_.file,
      .changes = changes.live.size(),
      .need_restart = changes.restart_control.size() + changes.restart_both.size()});
  return {.changes = std::move(changes), .problem = {}};
}

void Configuration::set_log_level(const std::string& level) {
  config::Config next = config_;
  next.log_level = level;
  next.block.log_level = static_cast<std::uint32_t>(log::level_named(level));
  publish(std::move(next));
  log::set_level(log::level_named(level));
}

void Configuration::set_export(const segment::ExportConfig& entry) {
  if (!config::serves_exports(config_.block))
    throw config::ConfigError(
        "NFS version 3 is forwarded to another server, so there are no exports here.\n");
  config::Config next = config_;
  segment::ExportConfig* place = nullptr;
  for (segment::ExportConfig& known : next.block.exports)
    if (std::string_view(known.path) == entry.path || (place == nullptr && known.in_use == 0)) place = &known;
  if (place == nullptr)
    throw config::ConfigError("There are " + std::to_string(next.block.exports.size()) +
                              " exports already. Remove one first.\n");
  *place = entry;
  publish(std::move(next));
  journal_.add(events::ExportChanged{.path = entry.path, .change = "set"});
}

bool Configuration::remove_export(const std::string& path) {
  config::Config next = config_;
  for (segment::ExportConfig& entry : next.block.exports) {
    if (entry.in_use == 0 || path != entry.path) continue;
    entry.in_use = 0;
    publish(std::move(next));
    journal_.add(events::ExportChanged{.path = path, .change = "removed"});
    return true;
  }
  return false;
}

void Configuration::save_export(const segment::ExportConfig& entry, const admin::Saved& done) {
  if (config_.exports_directory.empty())
    return done((config_.file.empty()
                     ? "The control plane runs on its built-in defaults. Start it with "
                       "--config FILE, and set "
                     : "No directory of exports is configured. In " + config_.file + " set ") +
                "exports_directory to one, such as \"/etc/sluice/exports.d\", and reload.");
  const bool started = files_.start([this, entry, done, running = config_]() -> tasks::Arena::Done {
    try {
      const auto saved = std::make_shared<config::Config>(config::save_export(entry, running));
      return [this, done, saved] {
        config_.named = saved->named;
        config_.export_files = saved->export_files;
        done({});
      };
    } catch (const std::exception& error) {
      return [done, problem = std::string(error.what())] { done(problem); };
    }
  });
  if (!started) done("The control plane is overloaded. Try again later.");
}

StartMonitor::Step StartMonitor::poll(std::uint64_t now_ns) {
  asked_ = layout_.start_asked.load(std::memory_order_relaxed);
  if (asked_ == layout_.start_answered.load(std::memory_order_relaxed)) return Step::Nothing;
  if (!changed_ || files_ == Files::Unusable) return Step::Answer;
  if (files_ == Files::Usable) return Step::BeginAnew;
  if (files_ == Files::Reading) return now_ns - reading_since_ns_ > kReadNs ? Step::Answer : Step::Nothing;
  files_ = Files::Reading;
  reading_since_ns_ = now_ns;
  return Step::Read;
}

void StartMonitor::has_read(bool usable) {
  if (files_ == Files::Reading) files_ = usable ? Files::Usable : Files::Unusable;
}

void StartMonitor::answered() {
  files_ = Files::NotRead;
  if (asked_ != layout_.start_answered.load(std::memory_order_relaxed)) ++starts_answered_;
  layout_.start_answered.store(asked_, std::memory_order_release);  // pairs with ask(): the configuration
}

bool data_plane_has_started(const segment::Segment& segment, const segment::Layout& layout) {
  // Pairs with StartMonitor::answered() of a predecessor: the configuration of the data plane.
  return segment.data_plane_runs() && layout.start_asked.load(std::memory_order_relaxed) ==
                                          layout.start_answered.load(std::memory_order_acquire);
}

Reloader::Reloader(tasks::Arena& arena, Begin begin) : arena_(arena), begin_(std::move(begin)) {}

void Reloader::request(admin::Reloaded done) {
  next_.push_back(std::move(done));
  if (reading_.empty()) start();
}

void Reloader::start() {
  reading_ = std::exchange(next_, {});
  const bool started =
      arena_.start([this, read = begin_()] { return [this, apply = read()] { finish(apply()); }; });
  if (!started) finish({.changes = {}, .problem = "The control plane is overloaded. Try again later.\n"});
}

void Reloader::finish(const admin::ReloadResult& result) {
  for (const admin::Reloaded& done : std::exchange(reading_, {})) done(result);
  if (!next_.empty() && reading_.empty()) start();
}

std::unique_ptr<mount::Exports> mount_exports(const segment::ConfigBlock& block,
                                              const segment::Layout& layout,
                                              mount::MountStatistics& statistics) {
  const auto of_upstream = [&layout, &statistics](const segment::UpstreamConfig& upstream) {
    return std::make_unique<mount::UpstreamExports>(
        upstream,
        [&layout, name = std::string(upstream.name)] {
          return segment::answering_address(layout.upstream_addresses, name);
        },
        statistics);
  };
  mount::GroupExports::MemberSource source{.in_force = [&layout] { return mount::group_in_force(layout); },
                                           .make = of_upstream};
  std::vector<mount::GroupExports::Member> group;
  for (std::uint32_t i = 0; i < block.upstream_count; ++i) {
    const segment::UpstreamConfig& upstream = block.upstreams[i];
    if (upstream.is_mounted_here()) group.push_back({upstream, of_upstream(upstream)});
  }
  if (!group.empty() || (block.reverse.in_use == 0 && block.slots().memory_exports == 0))
    return std::make_unique<mount::GroupExports>(
        std::move(group), [&layout](const std::string& name) { return mount::export_paths_of(layout, name); },
        statistics, std::move(source));
  const segment::ReverseConfig& reverse = block.reverse;
  if (reverse.in_use != 0)
    return std::make_unique<mount::UpstreamExports>(
        config::mount_of_server(reverse), [address = reverse.mount_address] { return address; }, statistics,
        onc_rpc::kRpcbindPort,
        reverse.privileged_clients != 0 ? mount::UpstreamExports::Ports::Privileged
                                        : mount::UpstreamExports::Ports::Any);
  return std::make_unique<mount::SegmentExports>(layout);
}

std::optional<mount::NfsListener> nfs_listener(const segment::ConfigBlock& block,
                                               const segment::Layout& layout) {
  const segment::ReverseConfig& reverse = block.reverse;
  if (reverse.in_use == 0) return std::nullopt;
  return mount::NfsListener{
      .address = reverse.listen_address,
      .port = static_cast<std::uint16_t>(reverse.listen_port),
      .serves = [&layout] { return segment::alive(layout.data_plane, segment::monotonic_ns()); }};
}

locks::LockSettings lock_settings(const config::Config& config, const segment::Layout& layout) {
  const segment::UpstreamConfig upstream =
      *config::upstream_of(config.block, {ulb::kNfsProgram, ulb::kNfs3Version});
  char host[HOST_NAME_MAX + 1] = "";
  ::gethostname(host, sizeof host - 1);
  const auto& shared = layout.upstream_addresses;
  locks::ProxySettings proxy;
  proxy.upstream = upstream.name;
  proxy.upstream_names.emplace_back(upstream.name);
  for (std::uint32_t i = 0; i < upstream.host_count; ++i)
    proxy.upstream_names.emplace_back(upstream.hosts[i].data());
  proxy.privileged_port = upstream.privileged_port != 0;
  proxy.name = config.locks_name.empty() ? host : config.locks_name;
  proxy.where = [&shared, name = proxy.upstream] { return segment::answering_address(shared, name); };
  proxy.is_upstream = [&shared, name = proxy.upstream](const PeerAddress& address) {
    return segment::has_address(shared, name, address);
  };
  // The state number is derived from the seconds since 2020, so that it increases with each restart.
  constexpr std::int64_t kYear2020 = 1'577'836'800;
  proxy.first_state = static_cast<std::uint32_t>(std::time(nullptr) - kYear2020) * 2 + 1;
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof random, 0) == static_cast<ssize_t>(sizeof random))
    proxy.first_id = random % (1u << 30) + 1;
  return {.port = config.locks_port,
          .rpcbind = config.locks_rpcbind ? onc_rpc::kRpcbindSocket : "",
          .may_lock =
              [upstream](const PeerAddress& address) {
                return mount::allowed(upstream.allowed, upstream.allowed_count, address);
              },
          .state = config.locks_state,
          .proxy = std::move(proxy)};
}

}  // namespace sluice::controlplane
