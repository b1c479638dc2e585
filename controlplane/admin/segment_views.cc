// SPDX-License-Identifier: Apache-2.0
#include "controlplane/admin/segment_views.h"

#include <string>
#include <utility>

#include "controlplane/admin/declarations/declarations.h"
#include "controlplane/admin/parameters.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/devices.h"
#include "controlplane/admin/views/exports.h"
#include "controlplane/admin/views/memory.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/upstreams.h"
#include "controlplane/config/describe.h"
#include "controlplane/config/saved_changes.h"

namespace sluice::admin {

void add_segment_views(Registry& registry, const segment::Layout& layout, const config::Config& config) {
  const auto read = [&registry](const std::string& name, Method method) {
    registry.add(declared(name), std::move(method));
  };
  read("connections", [&](const Json& parameters) {
    return connections(layout, config,
                       {parameters.at("peer").get<std::string>(), parameters.at("class").get<std::string>()});
  });
  read("connection_show", [&](const Json& parameters) {
    const std::uint32_t reactor = number_of(parameters, "reactor");
    return show_connection(layout, config, reactor, number_of(parameters, "connection"));
  });
  read("properties", [&](const Json&) { return connection_properties(layout, config.block); });
  read("exports", [&](const Json&) { return exports(layout); });
  read("export_stats", [&](const Json& parameters) {
    return export_statistics(layout, parameters.at("path").get<std::string>());
  });
  read("upstreams", [&](const Json&) { return upstreams(layout, config.block); });
  read("upstream_counters", [&](const Json&) { return upstream_counters(layout, config.block); });
  read("reverse", [&](const Json&) { return reverse(layout, config.block); });
  read("reverse_counters", [&](const Json&) { return reverse_counters(layout, config.block); });
  read("reactors", [&](const Json&) { return reactors(layout, config.block); });
  read("procedures", [&](const Json&) { return procedures(layout, config.block); });
  read("counters", [&](const Json&) { return counters(layout, config.block); });
  read("memory", [&](const Json&) { return memory(layout, config.block); });
  read("devices", [&](const Json&) { return devices(layout, config.block); });
  read("config_show", [&](const Json&) {
    Json shown = config::describe(config);
    shown["saved"] = config::describe(config.saved);
    return shown;
  });
}

}  // namespace sluice::admin
