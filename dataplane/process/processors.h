// SPDX-License-Identifier: Apache-2.0
//
// Processors of the reactors. The data plane chooses and checks them against its own affinity mask, because
// the control plane may be in another unit or container with other processors. For setup; any thread.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/segment/config_block.h"

namespace sluice::process {

inline constexpr const char* kSystemFolder = "/sys/devices/system";

struct Processor {
  std::uint32_t cpu = 0;   ///< number in the operating system
  std::uint32_t core = 0;  ///< lowest processor number of its core
  std::uint32_t numa_node = 0;
};

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

}  // namespace sluice::process
