// SPDX-License-Identifier: Apache-2.0
//
// The machine as reported by hwloc, for `sluicectl topology`, and the processors of this process. Makes
// system calls. Used at setup and later; any thread.
#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/base/setup_error.h"

namespace sluice::topology {

struct Processor {
  std::uint32_t cpu = 0;  ///< number in the operating system
  std::uint32_t core = 0;
  std::uint32_t numa_node = 0;
};

/// Returns the processors that this process may use, in the machine's order.
std::vector<Processor> processors();
/// The affinity mask that this process had when the object was constructed. Used on the main thread.
class OwnProcessors {
 public:
  OwnProcessors();
  /// Removes `cpus` from the affinity masks of all threads of this process. If no processor is left, restores
  /// the initial masks.
  void keep_off(const std::vector<std::uint32_t>& cpus) const;

 private:
  cpu_set_t all_;
};
/// Describes packages, cores, NUMA nodes with their memory in bytes, and processors.
Json describe();

}  // namespace sluice::topology
