// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin_methods.h"

#include <functional>
#include <string>
#include <utility>

#include "controlplane/admin/capture.h"
#include "controlplane/admin/changes.h"
#include "controlplane/admin/events.h"
#include "controlplane/admin/parameters.h"
#include "controlplane/admin/slow_calls.h"
#include "controlplane/admin/trace.h"
#include "controlplane/admin/views/configuration.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/credits.h"
#include "controlplane/admin/views/devices.h"
#include "controlplane/admin/views/exports.h"
#include "controlplane/admin/views/memory.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/admin/views/upstreams.h"
#include "controlplane/control_plane.h"
#include "controlplane/topology.h"
#include "dataplane/segment/capture_channel.h"

namespace sluice::controlplane {
namespace {

using nlohmann::json;

/// Views of the segment and of the configuration in force.
void add_segment_views(admin::Registry& registry, const segment::Layout& layout,
                       const config::Config& config) {
  const auto read = [&registry](const std::string& name, admin::Method method) {
    registry.add(name, admin::Access::Read, std::move(method));
  };
  read("connections", [&](const json& parameters) {
    return admin::connections(layout, config, {parameters.value("peer", ""), parameters.value("class", "")});
  });
  read("connection_show", [&](const json& parameters) {
    const std::uint32_t reactor = admin::number_of(parameters, "reactor");
    return admin::show_connection(layout, config, reactor, admin::number_of(parameters, "connection"));
  });
  read("properties", [&](const json&) { return admin::connection_properties(layout, config.block); });
  read("exports", [&](const json&) { return admin::exports(layout); });
  read("export_stats", [&](const json& parameters) {
    return admin::export_statistics(layout, parameters.value("path", ""));
  });
  read("upstreams", [&](const json&) { return admin::upstreams(layout, config.block); });
  read("upstream_counters", [&](const json&) { return admin::upstream_counters(layout, config.block); });
  read("reverse", [&](const json&) { return admin::reverse(layout, config.block); });
  read("reverse_counters", [&](const json&) { return admin::reverse_counters(layout, config.block); });
  read("reactors", [&](const json&) { return admin::reactors(layout, config.block); });
  read("procedures", [&](const json&) { return admin::procedures(layout, config.block); });
  read("counters", [&](const json&) { return admin::counters(layout, config.block); });
  read("memory", [&](const json&) { return admin::memory(layout, config.block); });
  read("devices", [&](const json&) { return admin::devices(layout, config.block); });
  read("config_show", [&](const json&) {
    json shown = config::describe(config);
    shown["saved"] = config::describe(config.saved);
    return shown;
  });
}

/// Answers with what `work` returns, on a thread of the arena. It has nothing but copies.
void answer_by_task(tasks::Arena& arena, const admin::Answer& answer, std::function<json()> work) {
  const bool started = arena.start([answer, work = std::move(work)]() -> tasks::Arena::Done {
    try {
      return [answer, result = work()] { answer.result(result); };
    } catch (const std::exception& error) {
      return [answer, problem = std::string(error.what())] { answer.problem(problem); };
    }
  });
  if (!started) answer.problem("The control plane has too much to do at the moment: try again later.");
}

/// What reads hundreds of files below /sys, or a text that a client has sent.
void add_slow_views(admin::Registry& registry, ControlPlane& plane) {
  registry.add_later("topology", admin::Access::Read, [&](const json&, const admin::Answer& answer) {
    answer_by_task(plane.tasks(), answer,
                   [block = plane.config().block] { return admin::topology(topology::describe(), block); });
  });
  registry.add_later(
      "config_check", admin::Access::Read, [&](const json& parameters, const admin::Answer& answer) {
        answer_by_task(plane.tasks(), answer,
                       [text = parameters.value("text", ""), name = parameters.value("name", "configuration"),
                        running = plane.config(), places = plane.configuration().upstream_places()] {
                         return admin::check_configuration(text, name, running, places);
                       });
      });
}

/// Views that also show what the control plane's own parts keep.
void add_control_views(admin::Registry& registry, ControlPlane& plane) {
  registry.add("status", admin::Access::Read, [&](const json&) {
    json status = admin::status(plane.layout(), plane.config(),
                                {.admission = plane.keeper().admission(),
                                 .data_plane_alive = plane.data_plane_alive(),
                                 .in_force = plane.in_force(),
                                 .pending = plane.configuration().pending()});
    status["events"] = to_json(plane.event_counts());
    return status;
  });
  registry.add("credits", admin::Access::Read, [&](const json&) {
    return admin::credits(plane.layout(), plane.config(), plane.credits(), segment::monotonic_ns());
  });
  registry.add("version", admin::Access::Read, [](const json&) { return admin::version(); });
}

}  // namespace

void add_admin_methods(admin::Registry& registry, ControlPlane& plane) {
  add_segment_views(registry, plane.layout(), plane.config());
  add_control_views(registry, plane);
  add_slow_views(registry, plane);
  admin::add_changes(registry, plane, plane.layout(), plane.config());
  admin::add_events(registry, plane.journal());
  admin::add_slow_calls(registry, plane.layout(), plane.config());
  admin::add_trace(registry, plane, plane.layout(), plane.config());
  admin::add_capture(registry, plane.layout(), segment::capture_socket_of(plane.config().segment));
}

}  // namespace sluice::controlplane
