// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin_methods.h"

#include <unistd.h>

#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "controlplane/admin/capture.h"
#include "controlplane/admin/changes.h"
#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/events.h"
#include "controlplane/admin/open_rpc.h"
#include "controlplane/admin/parameters.h"
#include "controlplane/admin/segment_views.h"
#include "controlplane/admin/slow_calls.h"
#include "controlplane/admin/trace.h"
#include "controlplane/admin/views/busiest.h"
#include "controlplane/admin/views/configuration.h"
#include "controlplane/admin/views/credits_job.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/control_plane.h"
#include "controlplane/topology.h"
#include "dataplane/base/function.h"
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
  admin::add_discovery(registry, kVersion);
  admin::add_changes(registry, plane, plane.layout(), plane.config());
  admin::add_events(registry, plane.journal());
  admin::add_slow_calls(registry, plane.layout(), plane.config());
  admin::add_trace(registry, plane, plane.layout(), plane.config());
  admin::add_capture(registry, plane.layout(), segment::capture_socket_of(plane.config().segment));
}

}  // namespace sluice::controlplane

namespace sluice::admin {

// --- Methods that change the state

namespace {

/// Parses an export by formatting it as a table of the configuration file, so that the file's keys, defaults
/// and checks apply.
segment::ExportConfig parse_export(const Json& parameters, const config::Config& running) {
  std::ostringstream text;
  text << "[[export]]\n";
  for (const auto& [key, value] : parameters.items())
    if (key != "save") text << key << " = " << value.dump() << '\n';
  try {
    return config::parse_export(text.str(), running);
  } catch (const config::ConfigError& error) {
    throw MethodError(error.what());
  }
}

void reload(Operations& operations, const Answer& answer) {
  operations.reload([answer](const ReloadResult& result) {
    if (result.problem.empty()) return answer.result(describe_changes(result.changes));
    answer.problem("The configuration was not reloaded, and the previous one stays in force:\n" +
                   result.problem);
  });
}

Json set_log_level(Operations& operations, const std::string& level) {
  operations.set_log_level(level);
  return {{"log_level", level}};
}

/// Calls `apply`, which applies the change and returns the result. With the parameter "save" the change is
/// saved first, and is not applied if that fails.
void carry_out(Operations& operations, const Json& parameters, const Answer& answer,
               const config::Change& change, const Function<Json(bool saved)>& apply) {
  if (!parameters.at("save").get<bool>()) return answer.result(apply(false));
  operations.save(change, [answer, apply](const std::string& problem) {
    if (!problem.empty()) return answer.problem("Nothing was saved, and nothing has changed. " + problem);
    try {
      answer.result(apply(true));
    } catch (const std::runtime_error& error) {
      answer.problem(std::string("The change is saved, but takes effect only after a restart. ") +
                     error.what());
    }
  });
}

void add_export(Operations& operations, const Json& parameters, const Answer& answer,
                const config::Config& running) {
  const segment::ExportConfig entry = parse_export(parameters, running);
  carry_out(operations, parameters, answer, entry, [&operations, entry](bool saved) -> Json {
    operations.set_export(entry);
    return {{"path", entry.path}, {"saved", saved}};
  });
}

void remove_export(Operations& operations, const Json& parameters, const Answer& answer) {
  const auto path = parameters.at("path").get<std::string>();
  carry_out(
      operations, parameters, answer, config::RemovedExport{path}, [&operations, path](bool saved) -> Json {
        // A saved export may have been removed before.
        if (!operations.remove_export(path) && !saved)
          throw MethodError("There is no export '" + path + "'. 'sluicectl exports' lists the exports.");
        return {{"path", path}, {"saved", saved}};
      });
}

Json close_connection(Operations& operations, const Json& parameters) {
  const std::uint32_t reactor = number_of(parameters, "reactor");
  const std::uint32_t connection = number_of(parameters, "connection");
  if (!operations.close_connection(reactor, connection)) throw no_such_connection(reactor, connection);
  return {{"closing", true}};
}

/// Adds drain_start, drain_stop and drain_status.
void add_drain(Registry& registry, Operations& operations, const segment::Layout& layout,
               const config::Config& config) {
  const auto status = [&] { return drain_status(layout, config, operations.draining()); };
  const auto add = [&](const char* name, bool on) {
    registry.add_later(
        declared(name), [&operations, status, on](const Json& parameters, const Answer& answer) {
          carry_out(operations, parameters, answer, config::Drain{on}, [&operations, status, on](bool) {
            operations.set_draining(on);
            return status();
          });
        });
  };
  add("drain_start", true);
  add("drain_stop", false);
  registry.add(declared("drain_status"), [status](const Json&) { return status(); });
}

}  // namespace

void add_changes(Registry& registry, Operations& operations, const segment::Layout& layout,
                 const config::Config& config) {
  registry.add_later(declared("config_reload"),
                     [&](const Json&, const Answer& answer) { reload(operations, answer); });
  registry.add(declared("log_level"), [&](const Json& parameters) {
    return set_log_level(operations, parameters.at("level").get<std::string>());
  });
  registry.add_later(declared("export_add"), [&](const Json& parameters, const Answer& answer) {
    add_export(operations, parameters, answer, config);
  });
  registry.add_later(declared("export_remove"), [&](const Json& parameters, const Answer& answer) {
    remove_export(operations, parameters, answer);
  });
  registry.add(declared("connection_close"),
               [&](const Json& parameters) { return close_connection(operations, parameters); });
  add_drain(registry, operations, layout, config);
}

}  // namespace sluice::admin
