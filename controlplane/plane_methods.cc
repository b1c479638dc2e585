// SPDX-License-Identifier: Apache-2.0
//
// The methods that sluicectl calls, each with the part of the control plane that it shows or changes.
#include <unistd.h>

#include <dirent.h>
#include <hwloc.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/methods.h"
#include "controlplane/admin/registry.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/control_plane.h"
#include "controlplane/topology.h"
#include "dataplane/base/function.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/text_file.h"
#include "dataplane/segment/channels.h"
#include "dataplane/segment/version.h"

namespace sluice::controlplane {
namespace {

/// Runs `work` on a thread of the arena and replies with its result. `work` must refer to copies only.
void answer_by_task(tasks::Arena& arena, const admin::Answer& answer, Function<Json()> work) {
  const bool started = arena.start([answer, work = std::move(work)]() -> tasks::Arena::Done {
    try {
      return [answer, result = work()] { answer.result(result); };
    } catch (const std::exception& error) {
      return [answer, problem = std::string(error.what())] { answer.problem(problem); };
    }
  });
  if (!started) answer.problem("The control plane is overloaded. Try again later.");
}

/// Adds the views that read hundreds of files below /sys, or parse a text from a client.
void add_slow_views(admin::Registry& registry, ControlPlane& plane) {
  registry.add_later(admin::declared("topology"), [&](const Json&, const admin::Answer& answer) {
    answer_by_task(plane.tasks(), answer,
                   [cpus = admin::reactor_cpus(plane.layout(), plane.config().block.reactors)] {
                     return admin::topology(topology::describe(), cpus);
                   });
  });
  registry.add_later_with_descriptor(
      admin::declared("config_check"),
      [&](const Json& parameters, const FileDescriptor& passed, const admin::Answer& answer) {
        const bool by_descriptor = parameters.at("descriptor").get<bool>();
        if (by_descriptor && !passed)
          return answer.problem(
              "descriptor is true, but no descriptor was passed with the request (SCM_RIGHTS).");
        const auto file = std::make_shared<FileDescriptor>(by_descriptor ? ::dup(passed.get()) : -1);
        answer_by_task(plane.tasks(), answer,
                       [file, by_descriptor, text = parameters.at("text").get<std::string>(),
                        name = parameters.at("name").get<std::string>(), running = plane.config(),
                        places = plane.configuration().upstream_places()] {
                         return admin::check_configuration(
                             by_descriptor ? read_text_file(file->get(), name) : text, name, running, places);
                       });
      });
}

/// Adds the views that also show state of the control plane's own parts.
void add_control_views(admin::Registry& registry, ControlPlane& plane) {
  registry.add(admin::declared("status"), [&](const Json&) {
    Json status = admin::status(plane.layout(), plane.config(),
                                {.admission = plane.keeper().admission(),
                                 .refusals = plane.keeper().refusals(),
                                 .data_plane_alive = plane.data_plane_alive(),
                                 .in_force = plane.in_force(),
                                 .pending = plane.configuration().pending(),
                                 .pending_control = plane.configuration().pending_control()});
    status["events"] = to_json(plane.event_counts());
    status["admin"] = {{"clients_cut_off", plane.admin_server().cut_off()},
                       {"requests_queued", plane.admin_server().queued()}};
    return status;
  });
  registry.add_later(admin::declared("credits"), [&](const Json&, const admin::Answer& answer) {
    admin::answer_credits(plane.admin_limits().work, answer,
                          {plane.layout(), plane.config(), plane.credits(), segment::monotonic_ns()});
  });
  registry.add(admin::declared("busiest"), [&](const Json& parameters) {
    return admin::busiest(plane.client_watch().last_round(), plane.config(),
                          admin::number_of(parameters, "count"));
  });
  registry.add(admin::declared("version"), [](const Json&) { return admin::version(); });
}

}  // namespace

void add_admin_methods(admin::Registry& registry, ControlPlane& plane) {
  admin::add_segment_views(registry, plane.layout(), plane.config(), plane.admin_limits());
  add_control_views(registry, plane);
  add_slow_views(registry, plane);
  admin::add_changes(registry, plane, plane.layout(), plane.config());
  admin::add_events(registry, plane.journal());
  admin::add_slow_calls(registry, plane.layout(), plane.config());
  admin::add_trace(registry, plane, plane.layout(), plane.config());
  admin::add_capture(registry, plane.layout(), segment::capture_socket_of(plane.config().segment));
}

}  // namespace sluice::controlplane

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
