// SPDX-License-Identifier: Apache-2.0
//
// sluice-dataplane: waits for a configuration in the shared segment, builds everything there will ever be,
// and polls.
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cli/arguments.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/ingress/ingress.h"
#include "dataplane/process/devices.h"
#include "dataplane/process/kept_connections.h"
#include "dataplane/process/settings.h"
#include "dataplane/reactor/reactor.h"
#include "dataplane/segment/notify.h"
#include "dataplane/service/api/null.h"
#include "dataplane/service/forward/upstreams.h"
#include "dataplane/service/memory/memory_service.h"
#include "dataplane/tcp/sockets.h"
#include "pmd/softroce/capture.h"
#include "pmd/softroce/softroce.h"

namespace sluice::reactor {
namespace {

constexpr std::chrono::milliseconds kBeatInterval{100};
constexpr int kCaptureTurnsPerBeat = 20;  // while packets are captured
constexpr int kIdleTurnsPerBeat = 5;
constexpr std::size_t kPadBytes = 4096;
/// Between the publishing of what exports hold, in nanoseconds.
constexpr std::uint64_t kPublishIntervalNs = 200'000'000;

std::atomic<bool> stop_requested{false};
void on_signal(int) {
  stop_requested.store(true);
}

// Clocks of the message path: the time-stamp counter, tied to the kernel's wall clock by the main thread.
std::uint64_t tsc_ns() noexcept {
  static const double ns_per_cycle = 1e9 / static_cast<double>(rte_get_tsc_hz());
  return static_cast<std::uint64_t>(static_cast<double>(rte_rdtsc()) * ns_per_cycle);
}
std::atomic<std::uint64_t> wall_minus_tsc_ns{0};
std::uint64_t tsc_wall_ns() noexcept {
  return tsc_ns() + wall_minus_tsc_ns.load(std::memory_order_relaxed);
}
void tie_clocks() noexcept {
  wall_minus_tsc_ns.store(segment::wall_ns() - tsc_ns(), std::memory_order_relaxed);
}

struct Options {
  std::string segment = "sluice";
  unsigned wait_seconds = 30;
};

/// Waits until there is a segment with a configuration in it.
std::unique_ptr<segment::Segment> wait_for_segment(const Options& options, segment::ConfigBlock& config) {
  std::string problem;
  for (unsigned tenths = 0; tenths <= options.wait_seconds * 10 && !stop_requested; ++tenths) {
    try {
      auto segment = segment::Segment::attach(options.segment);
      const auto published = segment->layout().config.read();
      if (published && published->generation > 0) {
        config = *published;
        return segment;
      }
      problem = "The control plane has not published a configuration in segment '" + options.segment + "'.";
    } catch (const SetupError& error) {
      problem = error.what();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw SetupError(problem + " Start: sluice-controlplane --config FILE.");
}

/// A processor for everything but polling: one that no reactor has, where there is one.
unsigned housekeeping_cpu(const segment::ConfigBlock& config) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    const auto* end = config.cpus.begin() + config.reactors;
    if (CPU_ISSET(cpu, &allowed) && std::find(config.cpus.begin(), end, cpu) == end) return cpu;
  }
  return static_cast<unsigned>(sched_getcpu());
}

/// EAL with the configured cores, without hugepages or PCI devices unless they are asked for.
void start_eal(const segment::ConfigBlock& config, const std::string& segment_name) {
  std::string lcores = "0@" + std::to_string(housekeeping_cpu(config));
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    lcores += "," + std::to_string(i + 1) + "@" + std::to_string(config.cpus[i]);
  std::vector<std::string> arguments = {"sluice-dataplane",
                                        "--lcores",
                                        lcores,
                                        "-m",
                                        std::to_string(config.dpdk_memory_mib),
                                        "--no-telemetry",
                                        "--file-prefix",
                                        segment_name,
                                        "--log-level",
                                        "error"};
  if (config.hugepages == 0) arguments.emplace_back("--no-huge");
  if (config.driver == segment::Driver::SoftRoce && !is_vdev(config)) {
    arguments.insert(arguments.end(), {"-a", config.ethdev});
  } else {
    arguments.emplace_back("--no-pci");
    if (config.driver == segment::Driver::SoftRoce)
      arguments.insert(arguments.end(), {"--vdev", config.ethdev});
  }
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
    throw SetupError("DPDK's environment did not start (" + std::string(rte_strerror(rte_errno)) +
                     "): check reactor.cpus in the configuration against the processors there are.");
}

/// One reactor with all that it polls. Members are built in order and destroyed in reverse.
struct Core {
  Core(const segment::ConfigBlock& config, std::uint32_t number, Drivers& drivers, segment::Layout& layout)
      : device(drivers.make_device(config, number)),
        engine(*device, engine_config(config)),
        reactor({.number = number,
                 .cpu = config.cpus[number],
                 .numa_node = config.numa_nodes[number],
                 .reply_chunks = config.reply_chunks_if_needed != 0 ? rpcrdma::ReplyChunkPolicy::IfNeeded
                                                                    : rpcrdma::ReplyChunkPolicy::Always,
                 .max_version = config.max_version,
                 .version2 = version_2_config(config),
                 .idle = config.idle,
                 .dial = dial_config(config)},
                engine, layout, &tsc_ns) {
    engine.add_service(null);
    if (config.upstream_count > 0) {
      upstreams = std::make_unique<forward::Upstreams>(
          *device, upstreams_config(config, layout.reactors[number]), &tsc_ns);
      for (const auto& service : upstreams->services()) engine.add_service(*service);
      reactor.add_poller(*upstreams);
    }
    if (config.reverse.in_use != 0) {
      ingress = std::make_unique<ingress::Ingress>(engine, reactor.dialer(), ingress_config(config),
                                                   layout.reactors[number].ingress, &tsc_ns);
      reactor.add_poller(*ingress);
    }
    if (auto* cm = device->connection_manager(); cm != nullptr && config.reverse.in_use == 0)
      cm->listen(static_cast<std::uint16_t>(config.port));
  }

  std::unique_ptr<rdma::Device> device;
  rpcrdma::Engine engine;
  service::NullService null;
  std::unique_ptr<forward::Upstreams> upstreams;
  Reactor reactor;
  std::unique_ptr<ingress::Ingress> ingress;
};

/// Of files: none where nobody can reach them.
std::uint64_t served_bytes(const segment::ConfigBlock& config) {
  constexpr std::uint64_t kLeast = 16u << 20;
  return serves_memory(config) ? config.memory_bytes : kLeast;
}

/// The exports, which belong to one reactor; the others hand it their calls.
struct Exports final : ControlTask {
  Exports(segment::Layout& layout, const segment::ConfigBlock& config, Core& owner)
      : data(owner.device->allocate_memory(served_bytes(config))),
        zeros(owner.device->allocate_memory(service::memory::kLargeBytes + kPadBytes)),
        memory(data, zeros, memory_config(config), &tsc_wall_ns),
        layout_(layout),
        owner_(owner) {
    // Access control lists are of the same files.
    if (serves_memory(config)) served_ = {&memory, &memory.acl_service()};
    for (service::Service* served : served_) owner.engine.add_service(*served);
  }

  /// Setup: `borrower` serves its connections' calls through the owner.
  void lend_to(Core& borrower) {
    std::vector<service::Handover::KeyPair> keys;
    for (const rdma::MemoryRegion& region : {data, zeros})
      keys.push_back({region.lkey, borrower.device->register_memory(region.bytes).lkey});
    handovers_.push_back(std::make_unique<service::Handover>(std::move(keys)));
    service::Handover& handover = *handovers_.back();
    for (service::Service* real : served_) {
      borrowed_.push_back(std::make_unique<service::BorrowedService>(handover, *real));
      borrower.engine.add_service(*borrowed_.back());
    }
    borrower.reactor.borrow_from(handover);
    owner_.reactor.lend_to(handover);
  }

  /// Any thread but the reactor's: what it has to do, and gives back when it is done.
  void offer(std::vector<service::memory::ExportOptions>* exports) {
    offered_.store(exports, std::memory_order_release);
  }
  std::vector<service::memory::ExportOptions>* take_back() {
    return returned_.exchange(nullptr, std::memory_order_acquire);
  }

  void on_control_pass(std::uint64_t now_ns) noexcept override {
    if (auto* exports = offered_.exchange(nullptr, std::memory_order_acquire)) {
      memory.exchange_exports(*exports);
      published_ns_ = 0;
      returned_.store(exports, std::memory_order_release);
    }
    publish(now_ns);
  }

  rdma::MemoryRegion data;
  rdma::MemoryRegion zeros;
  service::memory::MemoryService memory;

 private:
  void publish(std::uint64_t now_ns) noexcept {
    if (now_ns - published_ns_ < kPublishIntervalNs) return;
    published_ns_ = now_ns;
    for (std::uint32_t i = 0; i < segment::kMaxExports; ++i) {
      if (i >= memory.exports().size() || !memory.exports()[i].in_use) {
        if (const auto shown = layout_.exports[i].read(); !shown || shown->in_use != 0)
          layout_.exports[i].write({});
        continue;
      }
      const service::memory::ExportUse& use = memory.file_system().use(i);
      const service::memory::ExportStatistics& statistics = memory.statistics(i);
      segment::ExportInfo info{.in_use = 1, .read_only = memory.exports()[i].read_only};
      std::strncpy(info.path, memory.exports()[i].path.c_str(), sizeof info.path - 1);
      const auto handle = memory.root_handle(i);
      info.root_handle_bytes = handle.size();
      std::copy(handle.begin(), handle.end(), info.root_handle);
      info.quota_bytes = use.quota_bytes;
      info.used_bytes = use.used_bytes;
      info.files = use.files;
      info.calls = statistics.calls;
      info.errors = statistics.errors;
      info.read_bytes = statistics.read_bytes;
      info.written_bytes = statistics.written_bytes;
      for (std::size_t p = 0; p < statistics.procedures.size(); ++p) {
        info.procedure_calls[p] = statistics.procedures[p].calls;
        info.procedure_errors[p] = statistics.procedures[p].errors;
      }
      layout_.exports[i].write(info);
    }
  }

  segment::Layout& layout_;
  Core& owner_;
  std::vector<service::Service*> served_;
  std::atomic<std::vector<service::memory::ExportOptions>*> offered_{nullptr};
  std::atomic<std::vector<service::memory::ExportOptions>*> returned_{nullptr};
  std::uint64_t published_ns_ = 0;
  std::vector<std::unique_ptr<service::Handover>> handovers_;
  std::vector<std::unique_ptr<service::BorrowedService>> borrowed_;
};

std::uint64_t reverse_bytes(const segment::ReverseConfig& config) {
  return config.record_buffers * std::uint64_t{tcp::kMaxRecordBytes} +
         config.item_buffers * std::uint64_t{tcp::kStreamBytes} +
         config.clients * ingress::client_bytes(config.calls);
}

std::pair<const char*, std::uint64_t> driver_memory(const segment::ConfigBlock& config) {
  if (config.driver == segment::Driver::Loopback)
    return {"loopback wires (resident as connections are made)",
            std::uint64_t{config.loopback_links} * sizeof(rdma::loopback::Link)};
  return {config.driver == segment::Driver::SoftRoce ? "packet buffers (DPDK)" : "DPDK's own",
          std::uint64_t{config.dpdk_memory_mib} << 20};
}

void publish_memory(segment::Layout& layout, const segment::ConfigBlock& config) {
  const std::uint64_t slots = std::uint64_t{config.all_connections()} * config.credits * config.reactors;
  const std::pair<const char*, std::uint64_t> parts[] = {
      {"file data (resident as files grow)", served_bytes(config)},
      {"Receive buffers", slots * config.inline_bytes},
      {"Receives that connections share",
       std::uint64_t{config.reactors} * config.shared_receives * config.inline_bytes},
      {"reply buffers of call slots", slots * config.reply_buffer_bytes},
      {"long-call buffers",
       std::uint64_t{config.reactors} * config.call_buffers * rpcrdma::EngineConfig{}.call_buffer_bytes},
      {"large reply buffers", std::uint64_t{config.reactors} * config.large_reply_buffers *
                                  engine_config(config).reply_buffer_bytes},
      {"replies of upstreams",
       config.upstream_count == 0
           ? 0
           : std::uint64_t{config.reactors} * (config.record_buffers * std::uint64_t{tcp::kMaxRecordBytes} +
                                               config.item_buffers * std::uint64_t{forward::kItemBytes})},
      {"calls and replies of the reverse gateway",
       config.reverse.in_use == 0 ? 0 : config.reactors * reverse_bytes(config.reverse)},
      {"call slots", slots * sizeof(rpcrdma::CallSlot)},
      {"inodes and directory entries (resident as files are made)",
       config.max_files * (sizeof(service::memory::Inode) + 2 * sizeof(service::memory::Entry))},
      driver_memory(config),
      {"shared segment", sizeof(segment::Layout)},
  };
  segment::MemoryTable table{};
  std::size_t i = 0;
  for (const auto& [what, bytes] : parts) {
    std::strncpy(table[i].what, what, sizeof table[i].what - 1);
    table[i++].reserved_bytes = bytes;
  }
  layout.memory.write(table);
}

/// Captures packets when the control plane asks for it; on the main thread, where files may be written.
class CaptureKeeper {
 public:
  CaptureKeeper(segment::Layout& layout, std::shared_ptr<rdma::softroce::Port> port)
      : layout_(layout), port_(std::move(port)) {
    if (const auto request = layout_.capture_request.read()) seen_ = request->id;
  }
  ~CaptureKeeper() { stop(segment::CaptureState::Done); }

  bool running() const { return capture_ != nullptr; }
  void turn() {
    const auto request = layout_.capture_request.read();
    if (request && request->id != seen_) begin(*request);
    if (capture_ == nullptr) return;
    status_.packets += capture_->write();
    status_.dropped = capture_->dropped();
    if (limit_ > 0 && status_.packets >= limit_) return stop(segment::CaptureState::Done);
    layout_.capture_status.write(status_);
  }

 private:
  void begin(const segment::CaptureRequest& request) {
    stop(segment::CaptureState::Done);
    seen_ = request.id;
    if (request.run == 0) return;
    status_ = {.id = request.id, .state = segment::CaptureState::Running};
    limit_ = request.max_packets;
    try {
      if (!port_) throw SetupError("Only the softroce driver has packets to capture.");
      capture_ = std::make_unique<rdma::softroce::Capture>(port_->config(), request.path, request.snap_bytes);
      port_->set_capture(capture_.get());
    } catch (const std::exception& error) {
      status_.state = segment::CaptureState::Failed;
      std::strncpy(status_.problem, error.what(), sizeof status_.problem - 1);
    }
    layout_.capture_status.write(status_);
  }
  void stop(segment::CaptureState state) {
    if (capture_ == nullptr) return;
    port_->set_capture(nullptr);
    std::this_thread::sleep_for(kLanesForget);
    status_.packets += capture_->write();
    status_.dropped = capture_->dropped();
    capture_.reset();
    status_.state = state;
    layout_.capture_status.write(status_);
  }

  static constexpr std::chrono::milliseconds kLanesForget{50};  // far more than a turn
  segment::Layout& layout_;
  std::shared_ptr<rdma::softroce::Port> port_;
  std::unique_ptr<rdma::softroce::Capture> capture_;
  std::uint64_t seen_ = 0;
  std::uint64_t limit_ = 0;
  segment::CaptureStatus status_;
};

/// Brings changes of the configuration into force, as far as they need no restart: exports and log level. On
/// the main thread; the reactor does no more than exchange two lists.
class ConfigKeeper {
 public:
  ConfigKeeper(segment::Layout& layout, Exports& exports, const segment::ConfigBlock& started)
      : layout_(layout), exports_(exports) {
    set_level(started);
    layout_.generation_applied = generation_ = started.generation;
  }

  void turn() {
    if (pending_) {
      if (exports_.take_back() == nullptr) return;
      pending_.reset();
      layout_.generation_applied = generation_;
      spdlog::info("Configuration {} is in force", generation_);
    }
    if (layout_.config.sequence() == sequence_) return;
    sequence_ = layout_.config.sequence();
    const auto config = layout_.config.read();
    if (!config || config->generation == generation_) return;
    generation_ = config->generation;
    set_level(*config);
    pending_ = std::make_unique<std::vector<service::memory::ExportOptions>>(export_options(*config));
    exports_.offer(pending_.get());
  }

 private:
  static void set_level(const segment::ConfigBlock& config) {
    spdlog::set_level(static_cast<spdlog::level::level_enum>(
        std::min<std::uint32_t>(config.log_level, spdlog::level::level_enum::off)));
  }

  segment::Layout& layout_;
  Exports& exports_;
  std::uint64_t generation_ = 0;
  std::uint32_t sequence_ = 0;  ///< so that what was published since the start is looked at
  std::unique_ptr<std::vector<service::memory::ExportOptions>> pending_;
};

/// A reactor that does not turn is not alive, whatever the main thread does.
class Pulse {
 public:
  Pulse(const segment::Layout& layout, std::uint32_t reactors) : layout_(layout), turns_(reactors) {}

  /// Whether every reactor has turned since the last time.
  bool beats() {
    bool all = true;
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const std::uint64_t turns = turns_of(layout_.reactors[i]);
      all &= std::exchange(turns_[i], turns) != turns;
    }
    return all;
  }

 private:
  static std::uint64_t turns_of(const segment::ReactorArea& area) {
    std::uint64_t turns = 0;
    for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
      if (segment::kReactorCounters[i].name.starts_with("polls_"))
        turns += area.counters[i].load(std::memory_order_relaxed);
    return turns;
  }

  const segment::Layout& layout_;
  std::vector<std::uint64_t> turns_;
};

int serve(const Options& options) {
  segment::ConfigBlock config;
  const auto segment = wait_for_segment(options, config);
  segment::Layout& layout = segment->layout();
  if (segment::alive(layout.data_plane, segment::monotonic_ns()))
    throw SetupError("Another data plane (process " + std::to_string(layout.data_plane.pid.load()) +
                     ") serves segment '" + options.segment + "': stop it first, or use another --segment.");
  start_eal(config, options.segment);
  tie_clocks();

  Drivers drivers(config);
  for (auto& entry : layout.exports) entry.write({});
  std::vector<std::unique_ptr<Core>> cores;
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    cores.push_back(std::make_unique<Core>(config, i, drivers, layout));
  Exports exports(layout, config, *cores[0]);
  for (std::uint32_t i = 1; i < config.reactors; ++i) exports.lend_to(*cores[i]);
  cores[0]->reactor.add_control_task(exports);
  for (auto& core : cores) core->reactor.measure_calls();
  publish_memory(layout, config);
  segment::start_heartbeat(layout.data_plane, segment::monotonic_ns(), segment::wall_ns());

  unsigned lcore;
  std::size_t next = 0;
  RTE_LCORE_FOREACH_WORKER(lcore) {
    rte_eal_remote_launch(
        [](void* reactor) {
          static_cast<Reactor*>(reactor)->run();
          return 0;
        },
        &cores[next++]->reactor, lcore);
  }
  spdlog::info("Serving on port {} with {} reactor(s)", config.port, config.reactors);

  ConfigKeeper changes(layout, exports, config);
  KeptConnections kept(layout, drivers);
  CaptureKeeper captures(layout, drivers.port());
  Pulse pulse(layout, config.reactors);
  notify::ready();
  bool running = true;
  while (running && !stop_requested) {
    const int turns = captures.running() ? kCaptureTurnsPerBeat : kIdleTurnsPerBeat;
    for (int i = 0; i < turns; ++i) {
      std::this_thread::sleep_for(kBeatInterval / turns);
      captures.turn();
      changes.turn();
    }
    drivers.look();
    kept.turn();
    tie_clocks();
    if (pulse.beats()) {
      segment::beat(layout.data_plane, segment::monotonic_ns());
      notify::alive();
    }
    running =
        std::none_of(cores.begin(), cores.end(), [](const auto& core) { return core->reactor.stopped(); });
  }
  notify::stopping();
  for (auto& core : cores) core->reactor.stop();
  rte_eal_mp_wait_lcore();
  layout.data_plane.pid = 0;
  spdlog::info("Stopped");
  return 0;
}

}  // namespace
}  // namespace sluice::reactor

int main(int argc, char** argv) {
  sluice::reactor::Options options;
  sluice::cli::Program program(
      "The Sluice data plane. Its configuration comes from sluice-controlplane, through shared memory.");
  program.command().option("--segment", options.segment, "Name of the shared memory segment").shows_default();
  program.command()
      .option("--wait", options.wait_seconds, "Seconds to wait for the control plane")
      .shows_default();
  if (const auto ended = program.parse(argc, argv)) return *ended;
  std::signal(SIGTERM, sluice::reactor::on_signal);
  std::signal(SIGINT, sluice::reactor::on_signal);
  try {
    return sluice::reactor::serve(options);
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
    return 1;
  }
}
