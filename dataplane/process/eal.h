// SPDX-License-Identifier: Apache-2.0
//
// DPDK's environment abstraction layer: one worker lcore for each reactor, the main thread beside them.
// Setup.
#pragma once

#include <sched.h>

#include <string>
#include <vector>

#include "dataplane/segment/config_block.h"

namespace sluice::process {

/// The processor of the main thread: the first of `allowed` that no reactor has; `current` when there is
/// none.
unsigned main_cpu(const segment::ConfigBlock& config, const cpu_set_t& allowed, unsigned current);

/// EAL's command line. Without hugepages and PCI devices, unless the configuration asks for them.
std::vector<std::string> eal_arguments(const segment::ConfigBlock& config, const std::string& segment_name,
                                       unsigned main_cpu);

/// The socket file that a memif of this role listens on, by the words of `ethdev`; empty: none.
std::string memif_listener(const std::string& ethdev);
/// Removes the socket file of a process that was killed, which DPDK takes for a living one's. Throws SetupError when
/// a process listens on it.
void remove_stale_socket(const std::string& path);

/// What to do when DPDK did not start, which says little of why.
std::string advice_on_eal(const segment::ConfigBlock& config);

/// Once in a process. Throws SetupError.
void start_eal(const segment::ConfigBlock& config, const std::string& segment_name);

}  // namespace sluice::process
