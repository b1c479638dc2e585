// SPDX-License-Identifier: Apache-2.0
//
// Start of a data plane: its segment and configuration, the processors of its reactors, DPDK's environment
// and log, and the clocks of the message path. Used by the main thread at setup, except the clocks.
#pragma once

#include <sched.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/base/signals.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"

namespace sluice::process {

/// Segment, which the data plane then owns, and a configuration that a running control plane has published
/// for this start. A configuration that a former control plane left behind is not used, because the next
/// control plane may have read another file, and most keys take effect only at the start.
struct Start {
  Start() = default;
  Start(Start&&) = default;
  Start& operator=(Start&&) = delete;  // would release the segment before its ownership

  Owned<segment::Segment> segment;
  Owned<segment::DataPlaneOwnership> ownership;
  Owned<segment::ConfigBlock> config;
};

/// Waits for the control plane's part of the segment, takes the data plane's part, requests a configuration
/// (DataPart::start_asked) and waits for it. Throws SetupError if no control plane answers in time, `stop`
/// has been requested, or another data plane owns the segment.
Start wait_for_start(const std::string& segment_name, std::chrono::milliseconds limit,
                     const StopSignal& stop);

/// Interval between two extensions, and the time that each of them allows.
inline constexpr std::chrono::seconds kExtensionInterval{10};
inline constexpr std::chrono::seconds kExtension{60};
/// Maximum duration of a start. A longer start counts as hung and is no longer extended.
inline constexpr std::chrono::hours kLongestStart{1};

/// Extends systemd's start timeout periodically during its lifetime, in a separate thread, because
/// registering a few hundred GiB with a device takes minutes in system calls that return late. No effect
/// outside a systemd unit. The main thread creates and destroys it before the reactors run.
class StartExtension {
 public:
  explicit StartExtension(std::chrono::milliseconds interval = kExtensionInterval);
  ~StartExtension();
  StartExtension(const StartExtension&) = delete;
  StartExtension& operator=(const StartExtension&) = delete;

 private:
  void run(std::chrono::milliseconds interval);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool started_ = false;  ///< start is complete; guarded by mutex_
  std::thread thread_;
};

/// Returns the processor of the main thread: the first of `allowed` that no reactor uses; `current` if there
/// is none.
unsigned main_cpu(const segment::ConfigBlock& config, const cpu_set_t& allowed, unsigned current);

/// Returns EAL's command line, without hugepages and PCI devices unless the configuration requires them.
std::vector<std::string> eal_arguments(const segment::ConfigBlock& config, const std::string& segment_name,
                                       unsigned main_cpu);

/// Returns the socket file that a memif listens on, according to its role and the other arguments in
/// `ethdev`; empty if there is none.
std::string memif_listener(const std::string& ethdev);
/// Removes the stale socket file of a killed process, which DPDK would take for that of a running one. Throws
/// SetupError if a process listens on it.
void remove_stale_socket(const std::string& path);

/// Returns advice for the operator if DPDK did not start, because DPDK reports little about the cause.
std::string advice_on_eal(const segment::ConfigBlock& config);

/// Initializes DPDK's environment. Called once per process. Throws SetupError.
void start_eal(const segment::ConfigBlock& config, const std::string& segment_name);

inline constexpr const char* kSystemFolder = "/sys/devices/system";

struct Processor {
  std::uint32_t cpu = 0;   ///< number in the operating system
  std::uint32_t core = 0;  ///< lowest processor number of its core
  std::uint32_t numa_node = 0;
};

// The data plane chooses and checks the processors against its own affinity mask, because the control plane
// may be in another unit or container with other processors.
/// Returns the processors of `allowed` that DPDK can number, in ascending order. `system` is the folder that
/// describes cores and NUMA nodes. A processor without a description counts as a separate core on node 0.
std::vector<Processor> describe_processors(const cpu_set_t& allowed,
                                           const std::string& system = kSystemFolder);
/// Returns a processor for each reactor. Reactors get separate cores while there are enough, and the first
/// core only if all are needed. Throws SetupError if there are fewer processors than reactors.
std::vector<Processor> choose_processors(const std::vector<Processor>& available, std::size_t reactors);
/// Sets `cpus`, unless the configuration names them, and `numa_nodes`. Throws SetupError if a named processor
/// is not in `allowed`, because DPDK would panic.
void place_reactors(segment::ConfigBlock& config, const cpu_set_t& allowed,
                    const std::string& system = kSystemFolder);

/// Redirects DPDK's log to our own, so that a reactor that calls into DPDK never waits for standard error.
/// Called once, before rte_eal_init().
void take_dpdk_log();

// The clocks are based on the processor's time-stamp counter and require an initialized environment.
/// Returns monotonic nanoseconds. Any thread.
std::uint64_t tsc_ns() noexcept;
/// Returns nanoseconds since 1970, based on the last set_wall_clock(). Any thread.
std::uint64_t wall_ns() noexcept;
/// Synchronizes wall_ns() with the kernel's wall clock. Called periodically by the main thread.
void set_wall_clock() noexcept;

}  // namespace sluice::process
