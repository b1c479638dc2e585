// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/upstreams.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "controlplane/config/changes.h"
#include "controlplane/config/readers.h"
#include "dataplane/base/net_address.h"
#include "dataplane/ulb/bindings.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::config {
namespace {

/// Parses "nfs3", or a program and a version as numbers: "100003.3".
std::optional<segment::RouteConfig> parse_route(const std::string& text) {
  for (const ulb::NamedProgram& named : ulb::named_programs())
    if (named.name == text) return segment::RouteConfig{named.program, named.version};
  segment::RouteConfig route;
  const char* const end = text.data() + text.size();
  const auto [dot, program_error] = std::from_chars(text.data(), end, route.program);
  if (program_error != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  const auto [rest, version_error] = std::from_chars(dot + 1, end, route.version);
  if (version_error != std::errc{} || rest != end) return std::nullopt;
  return route;
}

std::string named_programs() {
  std::string list;
  for (const ulb::NamedProgram& named : ulb::named_programs())
    list += (list.empty() ? "\"" : ", \"") + std::string(named.name) + '"';
  return list;
}

bool is_host(const std::string& text) {
  if (text.size() < segment::kMaxHostBytes && parse_address(text.substr(0, text.find('%')))) return true;
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const bool digits_and_dots =
      text.find_first_not_of("0123456789.") == std::string::npos;  // a mistyped address
  return !digits_and_dots && text.size() < segment::kMaxHostBytes &&
         text.find_first_not_of(std::string(kLetters) + "0123456789.-") == std::string::npos;
}

/// Checks limits that apply to all RDMA upstreams together.
void check_rdma(Checker& check, const toml::node& node, const segment::ConfigBlock& block) {
  const std::uint32_t connections = block.connections_to_servers();
  if (connections == 0) return;
  if (block.driver == segment::Driver::Loopback)
    check.defect(
        node.source(),
        "The loopback driver reaches no server. transport = \"rdma\" requires another driver in [device].");
  if (block.calls_to_servers() > kMaxCallsToServers)
    check.defect(node.source(),
                 "The connections to RDMA upstreams times transport.credits exceed " +
                     std::to_string(kMaxCallsToServers) +
                     ", the limit that the memory windows of a device set. Lower one of them.");
  if (block.all_connections() > segment::kMaxConnections)
    check.defect(node.source(), "The connections to RDMA upstreams and transport.max_connections exceed " +
                                    std::to_string(segment::kMaxConnections) +
                                    " together. Lower one of them.");
}

/// Checks that the configured numbers of slots suffice for the upstreams of the file.
void check_slots(Checker& check, const toml::table& root, const segment::ConfigBlock& block) {
  const toml::node* const where = root.get("forward");
  if (where == nullptr) return;
  std::uint32_t over_rdma = 0;
  for (std::uint32_t i = 0; i < block.upstream_count; ++i)
    over_rdma += block.upstreams[i].transport == segment::Transport::Rdma ? 1 : 0;
  if (block.upstreams_max != 0 && block.upstream_count > block.upstreams_max)
    check.defect(where->source(),
                 "There are more [[upstream]] tables than upstreams_max allows. Raise upstreams_max.");
  if (block.rdma_upstreams_max != 0 && over_rdma > block.rdma_upstreams_max)
    check.defect(
        where->source(),
        "There are more upstreams over RDMA than rdma_upstreams_max allows. Raise rdma_upstreams_max.");
  if (block.rdma_upstreams_max > std::max(block.upstreams_max, block.upstream_count))
    check.defect(where->source(),
                 "rdma_upstreams_max exceeds the number of slots. Raise upstreams_max as well.");
}

}  // namespace

void read_routes(Checker& check, const toml::table& table, const KeyRow& row, segment::UpstreamConfig& out) {
  const toml::node* node = check.take(table, row.name);
  if (node == nullptr)
    return check.defect(table.source(), "programs is needed. List the programs that this upstream serves.");
  const toml::array* list = node->as_array();
  if (list == nullptr || list->empty() || list->size() > out.routes.size())
    return check.defect(node->source(), "programs has to be a list of 1 to " +
                                            std::to_string(out.routes.size()) + " programs.");
  for (const toml::node& item : *list) {
    const auto text = item.value_exact<std::string>();
    const auto route = text ? parse_route(*text) : std::nullopt;
    if (!route)
      check.defect(item.source(), "programs takes " + named_programs() +
                                      ", or numbers of a program and version such as \"100003.3\".");
    else if (takes(out, *route))
      check.defect(item.source(), "programs has " + *text + " twice. Remove one.");
    else
      out.routes[out.route_count++] = *route;
  }
}

void read_addresses_of_upstream(Checker& check, const toml::table& table, const KeyRow& row,
                                segment::UpstreamConfig& out) {
  const toml::node* const node = check.take(table, row.name);
  const std::string what = "an IPv4 or IPv6 address such as \"192.0.2.10\", or a host name";
  if (node == nullptr)
    return check.defect(table.source(), "address is needed. Write " + what + ", or a list of them.");
  const toml::array one = node->is_array() ? toml::array{} : toml::array{*node};
  const toml::array& list = node->is_array() ? *node->as_array() : one;
  if (list.empty() || list.size() > out.hosts.size())
    return check.defect(node->source(), "address takes 1 to " + std::to_string(out.hosts.size()) +
                                            " addresses and host names.");
  for (const toml::node& item : list) {
    const auto text = item.value_exact<std::string>();
    if (!text || !is_host(*text))
      return check.defect(node->source(), "address has to be " + what + ", or a list of them.");
    std::memcpy(out.hosts[out.host_count++].data(), text->c_str(), text->size() + 1);
  }
}

void read_upstream_name(Checker& check, const toml::table& table, const KeyRow& row,
                        segment::UpstreamConfig& out) {
  std::string name;
  check.text(table, row.name, name, segment::kMaxNameBytes - 1);
  if (!is_label(name))
    check.defect(table.source(), "name is needed. It consists of small letters, digits, '-' and '_'.");
  std::memcpy(out.name, name.c_str(), name.size() + 1);
}

void set_defaults_of_transport(Checker& check, const toml::table& table, segment::UpstreamConfig& out) {
  if (out.transport != segment::Transport::Rdma) return;
  out.port = 20049;
  out.connections = 16;
  if (out.host_count > 1)
    check.defect(table.source(), "An upstream with transport = \"rdma\" has one address. Remove the others.");
  if (table.contains("privileged_port"))
    check.defect(table.source(), "privileged_port is for an upstream over TCP. Remove it.");
}

void read_upstreams(Checker& check, const toml::table& root, Config& config) {
  if (const toml::table* const forward = root["forward"].as_table())
    if (check.take(*forward, "spare_upstreams") != nullptr)
      check.defect(forward->source(),
                   "spare_upstreams has become upstreams_max, which counts the slots of all upstreams.");
  read_section(check, root, "forward", config);
  segment::ConfigBlock& block = config.block;
  const toml::node* node = check.take(root, "upstream");
  if (node == nullptr) return check_slots(check, root, block);
  const toml::array* list = node->as_array();
  if (list == nullptr || !(list->empty() || list->is_array_of_tables()) ||
      list->size() > segment::kMaxUpstreams)
    return check.defect(node->source(), "upstream has to be a list of at most " +
                                            std::to_string(segment::kMaxUpstreams) +
                                            " tables: [[upstream]].");
  for (const toml::node& item : *list) {
    segment::UpstreamConfig entry;
    if (check.take(*item.as_table(), "max_calls") != nullptr)
      check.defect(item.source(), "max_calls is a key of [forward] now, for every upstream. Move it there.");
    read_entry(check, *item.as_table(), entry);
    check_own_exports(check, *item.as_table(), entry);
    check_own_port(check, *item.as_table(), entry);
    if (entry.listen_port == block.port)
      check.defect(item.source(),
                   "listen_port is the port of the other upstreams. Remove it, or choose another port.");
    for (std::uint32_t i = 0; i < block.upstream_count; ++i) {
      const segment::UpstreamConfig& other = block.upstreams[i];
      if (std::string_view(other.name) == entry.name)
        check.defect(item.source(),
                     "There is an upstream '" + std::string(entry.name) + "' already. Choose another name.");
      check_beside(check, item.source(), other, entry);
    }
    block.upstreams[block.upstream_count++] = entry;
  }
  check_rdma(check, *node, block);
  check_slots(check, root, block);
  if (!serves_exports_beside_upstreams(block)) {
    if (root.contains("export"))
      check.defect(node->source(), "An upstream has nfs3, and so has [[export]]. Remove one of them.");
    block.exports = {};
  }
}

bool serves_exports(const segment::ConfigBlock& block) {
  return block.reverse.in_use == 0 && serves_exports_beside_upstreams(block);
}

bool serves_exports_beside_upstreams(const segment::ConfigBlock& block) {
  return upstream_of(block, {ulb::kNfsProgram, ulb::kNfs3Version}) == nullptr;
}

const segment::UpstreamConfig* upstream_of(const segment::ConfigBlock& block,
                                           const segment::RouteConfig& route) {
  for (std::uint32_t i = 0; i < block.upstream_count; ++i)
    if (block.upstreams[i].listen_port == 0 && takes(block.upstreams[i], route)) return &block.upstreams[i];
  return nullptr;
}

Json describe_upstreams(const segment::ConfigBlock& block) {
  Json list = Json::array();
  for (std::uint32_t i = 0; i < block.upstream_count; ++i)
    if (block.upstreams[i].removed == 0) list.push_back(describe_entry(block.upstreams[i]));
  return list;
}

bool is_same(const segment::RouteConfig& one, const segment::RouteConfig& other) {
  return one.program == other.program && one.version == other.version;
}

bool takes(const segment::UpstreamConfig& upstream, const segment::RouteConfig& route) {
  const auto* const end = upstream.routes.begin() + std::min(upstream.route_count, segment::kMaxRoutes);
  return std::any_of(upstream.routes.begin(), end,
                     [&](const segment::RouteConfig& known) { return is_same(known, route); });
}

std::string to_text(const segment::RouteConfig& route) {
  for (const ulb::NamedProgram& named : ulb::named_programs())
    if (named.program == route.program && named.version == route.version) return std::string(named.name);
  return std::to_string(route.program) + '.' + std::to_string(route.version);
}

void keep_places(const segment::ConfigBlock& before, segment::ConfigBlock& block) {
  const auto wanted = block.exports;
  block.exports = before.exports;
  for (segment::ExportConfig& entry : block.exports) entry.in_use = 0;
  const auto place_of = [&](const segment::ExportConfig& entry) -> segment::ExportConfig* {
    segment::ExportConfig* unused = nullptr;
    for (segment::ExportConfig& place : block.exports) {
      if (std::string_view(place.path) == entry.path) return &place;
      if (unused == nullptr && place.path[0] == '\0') unused = &place;
    }
    return unused;
  };
  for (const segment::ExportConfig& entry : wanted) {
    if (entry.in_use == 0) continue;
    segment::ExportConfig* const place = place_of(entry);
    if (place == nullptr)
      throw ConfigError("There is no slot for export " + std::string(entry.path) + ". " +
                        std::to_string(block.exports.size()) +
                        " paths have been exported since the data plane started. Restart it to free those "
                        "that are no longer exported.\n");
    *place = entry;
  }
}

void keep_upstreams(const segment::ConfigBlock& before, segment::ConfigBlock& block) {
  std::vector<std::pair<std::uint32_t, segment::UpstreamConfig>> placed;
  std::uint32_t free = 0;
  const auto is_free = [&](std::uint32_t place) {
    return place >= before.upstream_count || upstream_named(block, before.upstreams[place].name) == nullptr;
  };
  for (std::uint32_t i = 0; i < block.upstream_count; ++i) {
    const segment::UpstreamConfig& entry = block.upstreams[i];
    if (const segment::UpstreamConfig* const known = upstream_named(before, entry.name)) {
      placed.emplace_back(static_cast<std::uint32_t>(known - before.upstreams.data()), entry);
      continue;
    }
    while (!is_free(free)) ++free;
    placed.emplace_back(free++, entry);
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  for (std::uint32_t i = 0; i < placed.size(); ++i) block.upstreams[i] = placed[i].second;
}

void keep_classes(const segment::ConfigBlock& before, Config& config) {
  const auto name_of = [](const auto& name) {
    return std::string(name.data(), ::strnlen(name.data(), name.size()));
  };
  std::vector<policy::ClientClass> placed = {config.classes[0]};
  std::vector<policy::ClientClass> left(config.classes.begin() + 1, config.classes.end());
  for (std::uint32_t i = 1; i < std::min(before.class_count, segment::kMaxClasses); ++i) {
    const std::string name = name_of(before.class_names[i]);
    const auto at =
        std::find_if(left.begin(), left.end(), [&](const auto& entry) { return entry.name == name; });
    if (at == left.end()) {
      placed.push_back({.name = name, .clients = {}, .credits = config.classes[0].credits, .gone = true});
    } else {
      placed.push_back(*at);
      left.erase(at);
    }
  }
  for (const policy::ClientClass& entry : left) {
    const auto gone =
        std::find_if(placed.begin() + 1, placed.end(), [](const auto& old) { return old.gone; });
    if (placed.size() < segment::kMaxClasses)
      placed.push_back(entry);
    else if (gone != placed.end())
      *gone = entry;
  }
  config.classes = std::move(placed);
  fill_derived(config);
}

}  // namespace sluice::config
