// SPDX-License-Identifier: Apache-2.0
#include "controlplane/topology.h"

#include <dirent.h>
#include <hwloc.h>

#include <cstdlib>

#include "dataplane/base/setup_error.h"

namespace sluice::topology {
namespace {

class Topology {
 public:
  Topology() {
    if (hwloc_topology_init(&topology_) != 0) throw_unreadable();
    if (hwloc_topology_load(topology_) == 0) return;
    hwloc_topology_destroy(topology_);
    throw_unreadable();
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  hwloc_topology_t get() const { return topology_; }

 private:
  [[noreturn]] static void throw_unreadable() {
    throw SetupError("hwloc cannot read this machine's topology.");
  }
  hwloc_topology_t topology_ = nullptr;
};

std::uint32_t numa_node_of(hwloc_topology_t topology, hwloc_obj_t unit) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr)
    if (hwloc_bitmap_isset(node->cpuset, unit->os_index)) return node->os_index;
  return 0;
}

}  // namespace

std::vector<Processor> processors() {
  const Topology topology;
  std::vector<Processor> result;
  hwloc_obj_t unit = nullptr;
  while ((unit = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, unit)) != nullptr) {
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, unit);
    result.push_back({unit->os_index, core != nullptr ? core->logical_index : unit->logical_index,
                      numa_node_of(topology.get(), unit)});
  }
  return result;
}

OwnProcessors::OwnProcessors() {
  CPU_ZERO(&all_);
  ::sched_getaffinity(0, sizeof all_, &all_);
}

void OwnProcessors::keep_off(const std::vector<std::uint32_t>& cpus) const {
  cpu_set_t left = all_;
  for (const std::uint32_t cpu : cpus)
    if (cpu < CPU_SETSIZE) CPU_CLR(cpu, &left);
  const cpu_set_t& allowed = CPU_COUNT(&left) > 0 ? left : all_;
  DIR* const threads = ::opendir("/proc/self/task");
  if (threads == nullptr) return;
  while (const dirent* const entry = ::readdir(threads))
    if (const pid_t thread = std::atoi(entry->d_name); thread != 0)
      ::sched_setaffinity(thread, sizeof allowed, &allowed);
  ::closedir(threads);
}

Json describe() {
  const Topology topology;
  Json result;
  result["packages"] = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_PACKAGE);
  result["cores"] = hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE);
  result["numa_nodes"] = Json::array();
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node)) != nullptr)
    result["numa_nodes"].push_back(
        {{"node", node->os_index}, {"memory_bytes", node->attr->numanode.local_memory}});
  result["processors"] = Json::array();
  for (const Processor& processor : processors())
    result["processors"].push_back(
        {{"cpu", processor.cpu}, {"core", processor.core}, {"numa_node", processor.numa_node}});
  return result;
}

}  // namespace sluice::topology
