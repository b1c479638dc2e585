// SPDX-License-Identifier: Apache-2.0
//
// DPDK's environment abstraction layer: the processors of the reactors, each a worker lcore, and of the main
// thread; DPDK's log; and the clocks of the message path. Used at setup, except the clocks.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/segment/config_block.h"

namespace sluice::process {

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
