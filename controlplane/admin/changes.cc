// SPDX-License-Identifier: Apache-2.0
//
// Methods that change the state of the gateway.
#include <memory>
#include <string>
#include <utility>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/methods.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/status.h"

namespace sluice::admin {
namespace {

/// Parses an export by formatting it as a table of the configuration file, so that the file's keys, defaults
/// and checks apply.
segment::ExportConfig parse_export(const Json& parameters, const config::Config& running) {
  std::string text = "[[export]]\n";
  for (const auto& [key, value] : parameters.items())
    if (key != "save") text.append(key).append(" = ").append(value.dump()).append("\n");
  try {
    return config::parse_export(text, running);
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

/// Calls `apply`, which applies the change and returns the result. With the parameter "save" the export, or
/// its removal if it is not in use, is saved first, and is not applied if that fails.
void carry_out(Operations& operations, const Json& parameters, const Answer& answer,
               const segment::ExportConfig& entry, const Function<Json(bool saved)>& apply) {
  if (!parameters.at("save").get<bool>()) return answer.result(apply(false));
  operations.save_export(entry, [answer, apply](const std::string& problem) {
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

MethodError no_such_export(const std::string& path) {
  return MethodError("There is no export '" + path + "'. 'sluicectl exports' lists the exports.");
}

void remove_export(Operations& operations, const Json& parameters, const Answer& answer) {
  const auto path = parameters.at("path").get<std::string>();
  segment::ExportConfig removed;
  if (path.size() >= sizeof removed.path || path.find('\0') != path.npos) throw no_such_export(path);
  path.copy(removed.path, path.size());
  carry_out(operations, parameters, answer, removed, [&operations, path](bool saved) -> Json {
    // An export that a file defines may have been removed from the running planes before.
    if (!operations.remove_export(path) && !saved) throw no_such_export(path);
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
    registry.add(declared(name), [&operations, status, on](const Json&) {
      operations.set_draining(on);
      return status();
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
