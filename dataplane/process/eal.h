// SPDX-License-Identifier: Apache-2.0
//
// DPDK's environment abstraction layer: one worker lcore per reactor, and the main thread. Used at setup.
#pragma once

#include <sched.h>

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

}  // namespace sluice::process
