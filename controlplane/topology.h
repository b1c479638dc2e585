// SPDX-License-Identifier: Apache-2.0
//
// The machine as hwloc reports it: processors for reactors, and what sluicectl topology shows. Setup, and
// system calls; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/base/setup_error.h"

namespace sluice::topology {

struct Processor {
  std::uint32_t cpu = 0;  ///< operating system's number
  std::uint32_t core = 0;
  std::uint32_t numa_node = 0;
};

/// Processors this process may use, in the machine's order.
std::vector<Processor> processors();
/// A processor for each reactor, on a core of its own as far as there are enough, and not on the first core
/// if any other is left. Throws SetupError when there are fewer processors than reactors.
std::vector<Processor> choose(const std::vector<Processor>& available, std::size_t reactors);
/// Packages, cores, NUMA nodes with their memory in bytes, and processors.
Json describe();

}  // namespace sluice::topology
