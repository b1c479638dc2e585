// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start.h"

#include <dirent.h>
#include <rte_config.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "dataplane/base/processor_list.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/log/log.h"
#include "dataplane/process/devices.h"
#include "dataplane/segment/checked.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {
namespace {

constexpr std::chrono::milliseconds kRetryInterval{20};

/// Timeout for all steps of the start together.
class Patience {
 public:
  Patience(std::chrono::milliseconds limit, const StopSignal& stop) : left_(limit), stop_(stop) {}

  /// Waits for the retry interval. Throws SetupError with `problem` and the action to take if the time is
  /// used up or a stop has been requested.
  void wait(const std::string& problem) {
    if (left_.count() <= 0 || stop_.requested())
      throw SetupError(problem + " Start it with: sluice-controlplane --config FILE.");
    stop_.wait(kRetryInterval);
    left_ -= kRetryInterval;
  }

 private:
  std::chrono::milliseconds left_;
  const StopSignal& stop_;
};

Owned<segment::Segment> attach(const std::string& name, Patience& patience) {
  for (;;) {
    std::string problem;
    try {
      return segment::Segment::attach(name);
    } catch (const SetupError& error) {
      problem = error.what();
    }
    patience.wait(problem);
  }
}

Owned<segment::ConfigBlock> ask(segment::Segment& segment, Patience& patience) {
  segment::Layout& layout = segment.layout();
  const std::uint64_t asked = segment::monotonic_ns();
  layout.start_asked.store(asked, std::memory_order_relaxed);
  for (;;) {
    // Pairs with StartMonitor::answered(): the configuration for this start.
    if (layout.start_answered.load(std::memory_order_acquire) == asked) {
      auto config = layout.config.read_copy();
      if (config) return config;
    }
    patience.wait("No control plane has published a configuration in segment '" + segment.name() +
                  "' for this data plane.");
  }
}

}  // namespace

Start wait_for_start(const std::string& segment_name, std::chrono::milliseconds limit,
                     const StopSignal& stop) {
  Patience patience(limit, stop);
  Start start;
  start.segment = attach(segment_name, patience);
  start.ownership.reset(new segment::DataPlaneOwnership(*start.segment));
  start.config = ask(*start.segment, patience);
  if (const std::string defect = segment::defect_of(*start.config); !defect.empty())
    throw SetupError("The configuration in segment '" + segment_name + "' cannot be used (" + defect +
                     "). It was not written by a control plane of this release.");
  return start;
}

// --- DPDK's environment

unsigned main_cpu(const segment::ConfigBlock& config, const cpu_set_t& allowed, unsigned current) {
  const auto* const end = config.cpus.begin() + config.reactors;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && std::find(config.cpus.begin(), end, cpu) == end) return cpu;
  return current;
}

std::vector<std::string> eal_arguments(const segment::ConfigBlock& config, const std::string& segment_name,
                                       unsigned main_cpu) {
  std::string lcores = "0@" + std::to_string(main_cpu);
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    lcores += "," + std::to_string(i + 1) + "@" + std::to_string(config.cpus[i]);
  std::string prefix = segment_name;
  std::replace(prefix.begin(), prefix.end(), '/', '-');
  std::vector<std::string> arguments = {
      "sluice-dataplane", "--lcores",      lcores, "-m",          std::to_string(config.dpdk_memory_mib),
      "--no-telemetry",   "--file-prefix", prefix, "--log-level", "error"};
  if (config.hugepages == 0) arguments.emplace_back("--no-huge");
  if (config.driver == segment::Driver::SoftRoce && !is_vdev(config)) {
    arguments.insert(arguments.end(), {"-a", config.ethdev});
  } else {
    arguments.emplace_back("--no-pci");
    if (config.driver == segment::Driver::SoftRoce)
      arguments.insert(arguments.end(), {"--vdev", config.ethdev});
  }
  return arguments;
}

std::string memif_listener(const std::string& ethdev) {
  std::string_view rest = ethdev;
  const auto take_word = [&rest] {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(smaller_of(word.size() + 1, rest.size()));
    return word;
  };
  if (!take_word().starts_with("net_memif")) return {};
  std::string role;
  std::string socket;
  bool abstract = true;
  while (!rest.empty()) {
    const std::string_view word = take_word();
    if (word.starts_with("role=")) role = word.substr(5);
    if (word.starts_with("socket=")) socket = word.substr(7);
    if (word.starts_with("socket-abstract=")) abstract = word.substr(16) != "no";
  }
  return !abstract && (role == "server" || role == "master") ? socket : std::string();
}

void remove_stale_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  struct stat status {};
  if (path.size() >= sizeof address.sun_path || ::lstat(path.c_str(), &status) != 0 ||
      !S_ISSOCK(status.st_mode))
    return;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int probe = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool answered = ::connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  const int error = answered ? 0 : errno;
  ::close(probe);
  if (error == ECONNREFUSED)
    ::unlink(path.c_str());
  else
    throw SetupError("Another process listens on the memif socket " + path +
                     ". Stop it first, or set another socket in ethdev.");
}

std::string advice_on_eal(const segment::ConfigBlock& config) {
  std::string advice = "Check ethdev in [device] of the configuration.";
  if (config.hugepages != 0)
    advice +=
        " With hugepages = true this user requires write access to /dev/hugepages, and dpdk_memory_mib of "
        "huge pages have to be free (/proc/meminfo).";
  return advice;
}

void start_eal(const segment::ConfigBlock& config, const std::string& segment_name) {
  if (config.driver == segment::Driver::SoftRoce)
    if (const std::string socket = memif_listener(config.ethdev); !socket.empty())
      remove_stale_socket(socket);
  std::vector<std::string> arguments = eal_arguments(
      config, segment_name, main_cpu(config, own_processors(), static_cast<unsigned>(sched_getcpu())));
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  take_dpdk_log();
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0)
    throw SetupError("DPDK's environment did not start (" + std::string(rte_strerror(rte_errno)) + "). " +
                     advice_on_eal(config));
}

// --- Processors of the reactors

namespace {

// DPDK requires the numbers of processors to be below its number of logical cores.
static_assert(kMaxProcessors <= RTE_MAX_LCORE && kMaxProcessors <= CPU_SETSIZE);

/// Returns the number at the beginning of `text`; `otherwise` if there is none.
std::uint32_t leading_number(std::string_view text, std::uint32_t otherwise) {
  std::uint32_t number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::uint32_t core_of(const std::string& folder, std::uint32_t cpu) {
  char siblings[64] = "";
  if (std::FILE* const file = std::fopen((folder + "/topology/thread_siblings_list").c_str(), "re")) {
    static_cast<void>(std::fgets(siblings, sizeof siblings, file) != nullptr);
    std::fclose(file);
  }
  return leading_number(siblings, cpu);
}

std::uint32_t numa_node_of(const std::string& folder) {
  constexpr std::string_view kNode = "node";
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return 0;
  std::uint32_t node = 0;
  while (const dirent* const entry = ::readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(kNode)) continue;
    const std::string_view number = name.substr(kNode.size());
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) continue;
    node = leading_number(number, 0);
    break;
  }
  ::closedir(entries);
  return node;
}

Processor describe(std::uint32_t cpu, const std::string& system) {
  const std::string folder = system + "/cpu/cpu" + std::to_string(cpu);
  return {.cpu = cpu, .core = core_of(folder, cpu), .numa_node = numa_node_of(folder)};
}

void check_named(const segment::ConfigBlock& config, const cpu_set_t& allowed) {
  for (std::uint32_t i = 0; i < config.reactors; ++i) {
    const std::uint32_t cpu = config.cpus[i];
    const std::string named = "cpus in [reactor] names processor " + std::to_string(cpu);
    if (cpu >= kMaxProcessors)
      throw SetupError(named + ", and DPDK supports processors up to " + std::to_string(kMaxProcessors - 1) +
                       ". Name others, or leave cpus out.");
    if (!CPU_ISSET(cpu, &allowed))
      throw SetupError(named + ", and the data plane may run on " + to_text(allowed) +
                       " only. Name some of these, leave cpus out, or give the data plane more processors "
                       "(CPUAffinity= or AllowedCPUs= of its unit, --cpuset-cpus of its container).");
  }
}

}  // namespace

std::vector<Processor> describe_processors(const cpu_set_t& allowed, const std::string& system) {
  std::vector<Processor> found;
  for (std::uint32_t cpu = 0; cpu < kMaxProcessors; ++cpu)
    if (CPU_ISSET(cpu, &allowed)) found.push_back(describe(cpu, system));
  return found;
}

std::vector<Processor> choose_processors(const std::vector<Processor>& available, std::size_t reactors) {
  std::vector<Processor> first_of_core;
  std::vector<Processor> siblings;
  std::set<std::uint32_t> seen;
  for (const Processor& processor : available)
    (seen.insert(processor.core).second ? first_of_core : siblings).push_back(processor);
  std::vector<Processor> order(first_of_core.begin() + (first_of_core.size() > reactors ? 1 : 0),
                               first_of_core.end());
  // If every core is needed, the first one is assigned last, because it serves most interrupts by default.
  if (first_of_core.size() <= reactors) std::reverse(order.begin(), order.end());
  order.insert(order.end(), siblings.begin(), siblings.end());
  if (order.size() < reactors)
    throw SetupError("The data plane may run on " + std::to_string(available.size()) +
                     " processor(s), and count in [reactor] is " + std::to_string(reactors) +
                     ". Lower it, or give the data plane more processors.");
  order.resize(reactors);
  return order;
}

void place_reactors(segment::ConfigBlock& config, const cpu_set_t& allowed, const std::string& system) {
  if (config.choose_cpus != 0) {
    const auto chosen = choose_processors(describe_processors(allowed, system), config.reactors);
    for (std::size_t i = 0; i < chosen.size(); ++i) config.cpus[i] = chosen[i].cpu;
  }
  check_named(config, allowed);
  for (std::uint32_t i = 0; i < config.reactors; ++i)
    config.numa_nodes[i] = describe(config.cpus[i], system).numa_node;
}

// --- DPDK's log

namespace {

log::Level level_of(int dpdk) {
  if (dpdk <= static_cast<int>(RTE_LOG_CRIT)) return log::Level::Critical;
  if (dpdk == static_cast<int>(RTE_LOG_ERR)) return log::Level::Error;
  return dpdk == static_cast<int>(RTE_LOG_WARNING) ? log::Level::Warning : log::Level::Info;
}

/// Writes one line of DPDK's log. Any thread.
ssize_t write_line(void*, const char* text, std::size_t bytes) {
  std::string_view line(text, bytes);
  const int level = rte_log_cur_msg_loglevel();
  // After a panic the log queue is no longer drained.
  if (level <= static_cast<int>(RTE_LOG_CRIT) && ::write(STDERR_FILENO, text, bytes) < 0) return 0;
  if (line.ends_with('\n')) line.remove_suffix(1);
  log::write(level_of(level), line);
  return static_cast<ssize_t>(bytes);
}

}  // namespace

void take_dpdk_log() {
  std::FILE* const stream =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = write_line, .seek = nullptr, .close = nullptr});
  if (stream != nullptr) rte_openlog_stream(stream);
}

// --- Clocks

namespace {

std::atomic<std::uint64_t> wall_minus_tsc_ns{0};

}  // namespace

std::uint64_t tsc_ns() noexcept {
  static const double ns_per_cycle = 1e9 / static_cast<double>(rte_get_tsc_hz());
  return static_cast<std::uint64_t>(static_cast<double>(rte_rdtsc()) * ns_per_cycle);
}

std::uint64_t wall_ns() noexcept {
  return tsc_ns() + wall_minus_tsc_ns.load(std::memory_order_relaxed);
}

void set_wall_clock() noexcept {
  wall_minus_tsc_ns.store(segment::wall_ns() - tsc_ns(), std::memory_order_relaxed);
}

// --- Extension of the start timeout

StartExtension::StartExtension(std::chrono::milliseconds interval)
    : thread_([this, interval] { run(interval); }) {}

StartExtension::~StartExtension() {
  {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StartExtension::run(std::chrono::milliseconds interval) {
  const std::string extension =
      "EXTEND_TIMEOUT_USEC=" + std::to_string(std::chrono::microseconds(kExtension).count());
  const auto end = std::chrono::steady_clock::now() + kLongestStart;
  std::unique_lock lock(mutex_);
  while (!started_ && std::chrono::steady_clock::now() < end) {
    ::sd_notify(0, extension.c_str());
    changed_.wait_for(lock, interval, [this] { return started_; });
  }
}

}  // namespace sluice::process
