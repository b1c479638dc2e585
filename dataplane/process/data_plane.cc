// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/data_plane.h"

#include <rte_launch.h>
#include <rte_lcore.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/base/export_path.h"
#include "dataplane/base/signals.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"
#include "dataplane/log/log.h"
#include "dataplane/log/log_queue.h"
#include "dataplane/process/capture.h"
#include "dataplane/process/control_plane_monitor.h"
#include "dataplane/process/core.h"
#include "dataplane/process/memory_table.h"
#include "dataplane/process/settings.h"
#include "dataplane/process/start.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/heartbeat.h"
#include "pmd/softroce/pools.h"

namespace sluice::process {
namespace {

constexpr std::chrono::milliseconds kBeatInterval{100};
// Polls for requests of the control plane between two beats.
constexpr int kPollsPerBeat = 5;
constexpr unsigned kBeatsPerMeasurement = 10;

}  // namespace

DataPlane::DataPlane(const segment::ConfigBlock& config, segment::Segment& segment)
    : config_(config),
      segment_(segment),
      layout_(segment.layout()),
      devices_(config),
      listener_(make_listener(config)),
      caches_(request_caches(config)) {
  set_wall_clock();
  const Core::Shared shared{.listener = listener_.get(), .caches = caches_};
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    cores_.push_back(std::make_unique<Core>(config, i, devices_, shared, layout_, &tsc_ns));
  exports_ = std::make_unique<Exports>(config, *cores_[0], layout_, &wall_ns);
  for (std::uint32_t i = 1; i < config.reactors; ++i) exports_->serve(*cores_[i]);
  for (std::uint32_t i = 0; i < config.reactors; ++i) {
    cores_[i]->reactor.measure_calls();
    cores_[i]->engine.set_slow_calls(layout_.slow_calls[i], &wall_ns);
  }
  layout_.memory.write(memory_table(config));
}

DataPlane::~DataPlane() = default;

void DataPlane::run(StopSignal& stop, const LogQueue& log) {
  debug_anchor = this;
  CaptureService captures(layout_, segment::capture_socket_of(segment_.name()),
                          segment_.file(segment::Part::Control)->user(), devices_.port());
  std::optional<KeptConnections> kept;  // for drivers whose connections belong to the kernel
  if (config_.driver == segment::Driver::Verbs) kept.emplace(segment_);
  ProcessHeartbeat heartbeat(layout_, config_.reactors);
  launch_reactors();
  log::info("Serving on port {} with {} reactor(s)", config_.port, config_.reactors);
  for (std::uint32_t i = 0; i < config_.upstream_count; ++i)
    if (const segment::UpstreamConfig& upstream = config_.upstreams[i]; upstream.listen_port != 0)
      log::info("Upstream '{}' is served on port {}", upstream.name, upstream.listen_port);
  main_loop(heartbeat, kept ? &*kept : nullptr, stop, log);
  notify::stopping();
  for (auto& core : cores_) core->reactor.stop();
  rte_eal_mp_wait_lcore();
  rdma::softroce::leave_pools(true);
  debug_anchor = nullptr;
}

void DataPlane::launch_reactors() {
  unsigned lcore;
  std::size_t next = 0;
  RTE_LCORE_FOREACH_WORKER(lcore) {
    rte_eal_remote_launch(
        [](void* reactor) {
          static_cast<reactor::Reactor*>(reactor)->run();
          return 0;
        },
        &cores_[next++]->reactor, lcore);
  }
}

bool DataPlane::any_stopped() const {
  return has_match(cores_, [](const auto& core) { return core->reactor.stopped(); });
}

/// Logs a truncation of the control plane's part, which then reads as zeros, as if there were no control
/// plane.
void DataPlane::look_at_control_part() {
  if (control_part_cut_ || !segment_.was_truncated(segment::Part::Control)) return;
  control_part_cut_ = true;
  log::error(
      "The control plane's part of segment '{}' was truncated. Existing connections continue; new ones "
      "cannot be accepted. Restart both planes",
      segment_.name());
}

void DataPlane::main_loop(ProcessHeartbeat& heartbeat, KeptConnections* kept, StopSignal& stop,
                          const LogQueue& log) {
  std::vector<UpstreamChanges::Slots> slots(config_.slots().count);
  for (std::uint32_t i = 0; i < slots.size(); ++i)
    for (const auto& core : cores_) slots[i].push_back(&core->slots->slot(i));
  UpstreamChanges upstreams(config_, std::move(slots), layout_.upstream_places);
  const auto set_slow_call_ns = [this](std::uint64_t ns) {
    for (auto& core : cores_) core->engine.set_slow_call_ns(ns);
  };
  ConfigMonitor config(layout_, exports_->updates(), upstreams, set_slow_call_ns, config_);
  notify::ready();
  for (unsigned turn = 0; !stop.requested() && !any_stopped(); ++turn) {
    for (int i = 0; i < kPollsPerBeat && !stop.requested() && !any_stopped(); ++i) {
      stop.wait(kBeatInterval / kPollsPerBeat);
      config.poll();
    }
    if (stop.take_hang_up())
      log::info("SIGHUP was ignored. Send it to the control plane, which reloads the configuration");
    devices_.poll_conditions();
    if (kept != nullptr) kept->poll();
    look_at_control_part();
    set_wall_clock();
    if (turn % kBeatsPerMeasurement == 0) {
      segment::measure_process(layout_.process);
      layout_.process.log_lines_lost.store(log.dropped(), std::memory_order_relaxed);
    }
    if (heartbeat.beat()) notify::alive();
  }
}

// --- One reactor with all that it polls

Core::Core(const segment::ConfigBlock& config, std::uint32_t number, Devices& devices, const Shared& shared,
           segment::Layout& layout, Clock clock)
    : device(devices.make_device(config, number)),
      engine(*device, engine_config(config)),
      credits(engine.connection_count()),
      reactor(reactor_config(config, number), engine, layout, clock) {
  segment::ReactorArea& area = layout.reactors[number];
  engine.add_service(null);
  for (const std::uint16_t port : config.listen_ports())
    if (config.services_at(port) != 0) engine.add_service(null, port);
  if (config.slots().count > 0) make_slots(config, area, layout.upstream_addresses, shared.caches, clock);
  if (shared.listener != nullptr) {
    reverse_gateway = std::make_unique<tcp_clients::ReverseGateway>(
        engine, reactor.dialer(), *shared.listener, reverse_gateway_config(config), area.reverse, clock);
    reactor.add_poller(*reverse_gateway);
  }
  for (const std::uint16_t port : config.listen_ports()) reactor.listen(port);
}

/// Makes the upstream slots, and serves the upstreams of the configuration.
void Core::make_slots(const segment::ConfigBlock& config, segment::ReactorArea& area,
                      const segment::SharedUpstreamAddresses& addresses,
                      const tcp_upstream::DuplicateRequestCaches& caches, Clock clock) {
  const segment::UpstreamSlots sizes = config.slots();
  for (const ulb::NamedProgram& named : ulb::named_programs())
    if (const service::Binding* const binding = ulb::find_binding(named.program, named.version))
      engine.add_later(*binding);
  std::vector<segment::UpstreamArea*> areas;
  for (std::uint32_t i = 0; i < sizes.count; ++i)
    areas.push_back(std::construct_at(&area.upstreams[i]));  // resets the counters of an earlier data plane
  if (!caches.empty())
    upstreams = std::make_unique<tcp_upstream::Upstreams>(
        *device, credits, engine.registry(), upstreams_config(config, area, addresses, caches), clock);
  for (std::uint32_t i = 0; i < sizes.over_rdma; ++i)
    relays.push_back(make_owned<rdma_upstream::Relay>(engine, reactor.dialer(), credits,
                                                      relay_config(config, addresses), clock));
  gateway::UpstreamSlots::Sides over_rdma;
  for (const auto& relay : relays) over_rdma.push_back(relay.get());
  slots = std::make_unique<gateway::UpstreamSlots>(
      areas, upstreams ? upstreams->sides() : gateway::UpstreamSlots::Sides{}, std::move(over_rdma));
  for (std::uint32_t i = 0; i < config.upstream_count; ++i) {
    const gateway::UpstreamSettings settings = upstream_settings(config.upstreams[i]);
    if (const std::string problem = tcp_upstream::privilege_problem(settings); !problem.empty())
      throw SetupError(problem);
    slots->start(i, settings);
  }
  reactor.add_poller(*slots);
  if (upstreams) reactor.add_poller(*upstreams);
  for (const auto& relay : relays) reactor.add_poller(*relay);
}

// --- The memory exports

namespace {

constexpr std::size_t kPadBytes = 4096;  ///< after the zeros, for XDR round-up
constexpr std::uint64_t kPublishIntervalNs = 200'000'000;

}  // namespace

Exports::Exports(const segment::ConfigBlock& config, Core& owner, segment::Layout& layout,
                 service::memory::FileSystem::Clock wall_clock)
    : layout_(layout),
      owner_(owner),
      data_(owner.device->allocate_memory(export_bytes(config))),
      zeros_(owner.device->allocate_memory(service::memory::kLargeBytes + kPadBytes)),
      memory_(data_, zeros_, memory_config(config), wall_clock),
      serves_memory_(serves_memory(config)) {
  for (auto& entry : layout.exports) entry.write({});
  layout.path_answer.write({});
  // The NFSACL service gives the access control lists of the same files.
  if (serves_memory_) {
    owner.engine.add_service(memory_);
    owner.engine.add_service(memory_.acl_service());
  }
  owner.reactor.add_control_task(*this);
}

ReadExports::ReadExports(Core& reader, service::memory::MemoryService& memory, rdma::MemoryRegion data,
                         rdma::MemoryRegion zeros) {
  const service::memory::FileReader::Keys keys{.data = reader.device->register_memory(data.bytes).lkey,
                                               .zeros = reader.device->register_memory(zeros.bytes).lkey};
  std::vector<service::CrossReactorCall::KeyPair> pairs{{data.lkey, keys.data}, {zeros.lkey, keys.zeros}};
  calls_ = std::make_unique<service::CrossReactorCall>(std::move(pairs), reader.engine.connection_count());
  to_owner_ = std::make_unique<service::RemoteService>(*calls_, memory);
  acl_ = std::make_unique<service::RemoteService>(*calls_, memory.acl_service());
  files_ = std::make_unique<service::memory::FileReader>(memory, *to_owner_, keys);
  reader.engine.add_service(*files_);
  reader.engine.add_service(*acl_);
  reader.reactor.use_remote_service(*calls_);
  reader.reactor.add_control_task(*this);
}

void ReadExports::on_control_pass(std::uint64_t) noexcept {
  ExportUpdate::List* const exports = update_.take();
  if (exports == nullptr) return;
  files_->exchange_exports(*exports);
  update_.give_back(*exports);
}

void Exports::serve(Core& reader) {
  if (!serves_memory_) return;
  readers_.push_back(std::make_unique<ReadExports>(reader, memory_, data_, zeros_));
  owner_.reactor.serve_remotely(readers_.back()->calls());
}

std::vector<ExportUpdate*> Exports::updates() noexcept {
  std::vector<ExportUpdate*> updates{&update_};
  for (const auto& reader : readers_) updates.push_back(&reader->update());
  return updates;
}

void Exports::on_control_pass(std::uint64_t now_ns) noexcept {
  if (ExportUpdate::List* exports = update_.take()) {
    memory_.exchange_exports(*exports);
    published_ns_ = 0;
    update_.give_back(*exports);
  }
  publish(now_ns);
  answer_mount();
}

void Exports::answer_mount() noexcept {
  if (layout_.path_question.sequence() != question_sequence_) start_walk();
  if (!walking_ || !walk_.slice()) return;
  walking_ = false;
  segment::PathAnswer answer{.number = question_, .status = static_cast<std::uint32_t>(walk_.status())};
  if (walk_.status() == service::memory::Status::Ok) {
    const auto handle = memory_.file_system().handle_of(walk_.directory());
    answer.handle_bytes = handle.size();
    std::memcpy(answer.handle, handle.data(), handle.size());
  }
  layout_.path_answer.write(answer);
}

/// Starts the walk for a new PathQuestion. An export that is not applied here yet or has another path is
/// refused, because the control plane may be ahead.
void Exports::start_walk() noexcept {
  const std::uint32_t sequence = layout_.path_question.sequence();
  if ((sequence & 1) != 0) return;  // it is being written
  const auto question = segment::checked(layout_.path_question);
  if (!question) return;
  question_sequence_ = sequence;
  if (question->number == question_) return;
  question_ = question->number;
  walking_ = true;
  const std::uint32_t number = question->export_number;
  const std::string_view path = question->path;
  if (number < memory_.exports().size() && memory_.exports()[number].in_use &&
      is_at_or_below(path, memory_.exports()[number].path))
    walk_.start(number, path.substr(memory_.exports()[number].path.size()));
  else
    walk_.refuse();
}

void Exports::publish(std::uint64_t now_ns) noexcept {
  if (now_ns - published_ns_ < kPublishIntervalNs) return;
  published_ns_ = now_ns;
  for (std::uint32_t i = 0; i < segment::kMaxExports; ++i) {
    if (i < memory_.exports().size() && memory_.exports()[i].in_use) {
      layout_.exports[i].write(info(i));
    } else if (const auto shown = layout_.exports[i].read(); !shown || shown->in_use != 0) {
      layout_.exports[i].write({});
    }
  }
}

namespace {

/// Adds what one reactor has counted for an export.
void add(segment::ExportInfo& info, const service::memory::ExportStatistics& counted) noexcept {
  info.calls += counted.calls.get();
  info.errors += counted.errors.get();
  info.read_bytes += counted.read_bytes.get();
  info.written_bytes += counted.written_bytes.get();
  for (std::size_t p = 0; p < counted.procedures.size(); ++p) {
    info.procedure_calls[p] += counted.procedures[p].calls.get();
    info.procedure_errors[p] += counted.procedures[p].errors.get();
  }
}

}  // namespace

segment::ExportInfo Exports::info(std::uint32_t number) noexcept {
  const service::memory::ExportOptions& options = memory_.exports()[number];
  const service::memory::ExportUse& use = memory_.file_system().use(number);
  segment::ExportInfo info{.in_use = 1, .read_only = options.read_only};
  std::strncpy(info.path, options.path.c_str(), sizeof info.path - 1);
  const auto handle = memory_.root_handle(number);
  info.root_handle_bytes = handle.size();
  std::memcpy(info.root_handle, handle.data(), handle.size());
  info.quota_bytes = use.quota_bytes;
  info.used_bytes = use.used_bytes;
  info.files = memory_.file_system().files(number);
  add(info, memory_.statistics(number));
  for (const auto& reader : readers_) add(info, reader->files().statistics(number));
  return info;
}

// --- Heartbeat in the segment

namespace {

constexpr std::uint64_t kNextEpoch = std::uint64_t{1} << 32;

std::uint64_t turns_of(const segment::ReactorArea& area) {
  std::uint64_t turns = 0;
  for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
    if (segment::kReactorCounters[i].name.starts_with("polls_"))
      turns += area.counters[i].load(std::memory_order_relaxed);
  return turns;
}

}  // namespace

ProcessHeartbeat::ProcessHeartbeat(segment::Layout& layout, std::uint32_t reactors)
    : layout_(layout), turns_(reactors) {
  layout.data_plane.owner.fetch_add(kNextEpoch);
  segment::start_heartbeat(layout.data_plane, segment::monotonic_ns(), segment::wall_ns());
}

ProcessHeartbeat::~ProcessHeartbeat() {
  layout_.data_plane.pid = 0;
}

bool ProcessHeartbeat::beat() {
  bool all = true;
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    const std::uint64_t turns = turns_of(layout_.reactors[i]);
    all &= std::exchange(turns_[i], turns) != turns;
  }
  if (all) segment::beat(layout_.data_plane, segment::monotonic_ns());
  return all;
}

}  // namespace sluice::process
