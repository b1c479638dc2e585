// SPDX-License-Identifier: Apache-2.0
//
// The machine as hwloc sees it: which processors reactors get, and what sluicectl topology reports.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "dataplane/base/setup_error.h"

namespace sluice::topology {

struct Processor {
  std::uint32_t cpu = 0;  ///< operating system's number
  std::uint32_t core = 0;
  std::uint32_t numa_node = 0;
};

/// Processors this process may use, in the machine's order.
std::vector<Processor> processors();
/// One processor on a core of its own for each reactor; the first core is left to the rest of the system
/// where there are enough others. Throws SetupError when there are fewer processors than reactors.
std::vector<Processor> choose(const std::vector<Processor>& available, std::size_t reactors);
nlohmann::json describe();

}  // namespace sluice::topology
