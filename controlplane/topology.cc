// SPDX-License-Identifier: Apache-2.0
#include "controlplane/topology.h"

#include <hwloc.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "dataplane/base/setup_error.h"

namespace sluice::topology {
namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Topology load() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0 || hwloc_topology_load(topology) != 0)
    throw SetupError("hwloc cannot read this machine's topology.");
  return {topology, &hwloc_topology_destroy};
}

std::uint32_t numa_node_of(hwloc_topology_t topology, hwloc_obj_t unit) {
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr)
    if (hwloc_bitmap_isset(node->cpuset, unit->os_index)) return node->os_index;
  return 0;
}

}  // namespace

std::vector<Processor> processors() {
  const Topology topology = load();
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
  std::error_code ignored;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", ignored))
    ::sched_setaffinity(std::atoi(thread.path().filename().c_str()), sizeof allowed, &allowed);
}

Json describe() {
  const Topology topology = load();
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
