// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/describe.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "controlplane/config/export_groups.h"
#include "controlplane/config/exports.h"
#include "controlplane/config/host_authentication.h"
#include "controlplane/config/reverse.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/net_address.h"

namespace sluice::config {
namespace {

using nlohmann::json;

template <typename Prefixes>
json to_json(const Prefixes& prefixes, std::size_t count) {
  json list = json::array();
  for (std::size_t i = 0; i < count; ++i) list.push_back(to_text(prefixes[i]));
  return list;
}

json describe_class(const policy::ClientClass& entry) {
  return {{"weight", static_cast<std::uint64_t>(entry.credits.weight)},
          {"min_credits", entry.credits.min_credits},
          {"max_credits", entry.credits.max_credits},
          {"max_connections_per_client", entry.max_connections_per_client}};
}

const char* to_string(segment::Driver driver) {
  switch (driver) {
    case segment::Driver::Loopback:
      return "loopback";
    case segment::Driver::SoftRoce:
      return "softroce";
    case segment::Driver::Verbs:
      return "verbs";
  }
  return "?";
}

json describe_device(const segment::ConfigBlock& block) {
  json gateways = json::array();
  for (std::uint32_t i = 0; i < block.gateway_count; ++i) gateways.push_back(to_string(block.gateways[i]));
  json devices = json::array();
  for (std::uint32_t i = 0; i < block.verbs_port_count; ++i)
    devices.push_back(block.verbs_ports[i].device + ('/' + std::to_string(block.verbs_ports[i].port)));
  json device = {{"driver", to_string(block.driver)},
                 {"devices", devices},
                 {"shared_receives", block.shared_receives},
                 {"traffic_class", block.traffic_class},
                 {"cnp_traffic_class", block.cnp_traffic_class},
                 {"loopback_path", block.loopback_path},
                 {"loopback_links", block.loopback_links},
                 {"loopback_arena_mib", block.loopback_arena_bytes >> 20},
                 {"ethdev", block.ethdev},
                 {"addresses", to_json(block.addresses, block.address_count)},
                 {"gateways", gateways},
                 {"mtu", block.mtu},
                 {"hardware_queues", block.hardware_queues},
                 {"hugepages", block.hugepages != 0},
                 {"dpdk_memory_mib", block.dpdk_memory_mib}};
  if (block.vlan <= 4094) device["vlan"] = block.vlan;
  if (block.service_level <= segment::kMaxServiceLevel) device["service_level"] = block.service_level;
  return device;
}

/// Adds every key under its full name: "table.key", and "table.name" for an entry of a list of tables.
void add_flat(std::map<std::string, json>& keys, const std::string& prefix, const json& table) {
  for (const auto& [key, value] : table.items()) {
    const std::string name = prefix + key;
    if (value.is_object()) {
      add_flat(keys, name + '.', value);
    } else if (value.is_array() && (value.empty() || value[0].is_object())) {
      for (const json& entry : value)
        keys[name + '.' + entry[name == "export" ? "path" : "name"].get<std::string>()] = entry;
    } else {
      keys[name] = value;
    }
  }
}

/// What can be changed without the rest of its upstream: "upstream.name.address". No name has a dot.
bool is_part_of_upstream(const std::string& key) {
  constexpr std::string_view kUpstream = "upstream.";
  return key.starts_with(kUpstream) && key.find('.', kUpstream.size()) != std::string::npos;
}

/// Makes keys of their own of each upstream's address and port, and of its exports and what MOUNT does with them where it has
/// its own: whether it has is for the data plane to know.
void split_upstreams(std::map<std::string, json>& keys) {
  std::map<std::string, json> parts;
  for (auto& [key, value] : keys) {
    if (!key.starts_with("upstream.") || !value.is_object()) continue;
    const auto split = [&, name = key, entry = &value](const char* part) {
      parts[name + '.' + part] = (*entry)[part];
      entry->erase(part);
    };
    const bool by_export = !value["exports"].empty() || value["prefix"] != "";
    split("address");
    split("port");
    if (!by_export) continue;
    for (const char* const part : {"exports", "prefix", "clients", "mount_port"}) split(part);
  }
  keys.merge(parts);
}

/// Tables and keys whose changes take effect without a restart.
bool is_live(const std::string& key) {
  if (is_part_of_upstream(key)) return true;
  static const char* kLive[] = {"log_level",
                                "saved_changes",
                                "observability",
                                "export",
                                "client_class",
                                "policy",
                                "admission",
                                "host_authentication.timeout_s",
                                "host_authentication.host"};
  return std::any_of(std::begin(kLive), std::end(kLive), [&](const std::string& live) {
    return key == live ||
           (key.size() > live.size() && key.compare(0, live.size(), live) == 0 && key[live.size()] == '.');
  });
}

/// Whether only the control plane uses the key.
bool is_control(const std::string& key) {
  return key.rfind("admin.", 0) == 0 || key.rfind("metrics.", 0) == 0 || key.rfind("events.", 0) == 0 ||
         key.rfind("page.", 0) == 0 || key.rfind("mount.", 0) == 0 || key.rfind("locks.", 0) == 0 ||
         (key.rfind("host_authentication.", 0) == 0 && key != "host_authentication.required");
}

void take_live_parts(segment::UpstreamConfig& upstream, const segment::ConfigBlock& next,
                     std::uint32_t generation) {
  const segment::UpstreamConfig* const entry = upstream_named(next, upstream.name);
  if (entry == nullptr) {
    if (upstream.removed == 0 && serves_only_exports(upstream)) upstream.removed = generation;
    return;
  }
  upstream.removed = 0;
  upstream.host_count = entry->host_count;
  upstream.hosts = entry->hosts;
  upstream.port = entry->port;
  if (!changes_live(upstream, *entry)) return;
  upstream.export_count = entry->export_count;
  upstream.exports = entry->exports;
  upstream.mount_port = entry->mount_port;
  upstream.allowed_count = entry->allowed_count;
  upstream.allowed = entry->allowed;
  std::memcpy(upstream.prefix, entry->prefix, sizeof upstream.prefix);
}

/// Keys of upstreams that come, go, or come back.
struct Movements {
  std::set<std::string> live;
  std::set<std::string> back;
};

Movements movements(const segment::ConfigBlock& running, const segment::ConfigBlock& next,
                    const segment::UpstreamPlaces& places) {
  Movements found;
  const auto key = [](const segment::UpstreamConfig& entry) { return "upstream." + std::string(entry.name); };
  for (const Newcomer& newcomer : newcomers(running, next, places))
    found.live.insert(key(*newcomer.upstream));
  for (std::uint32_t i = 0; i < running.upstream_count; ++i) {
    const segment::UpstreamConfig& entry = running.upstreams[i];
    const bool stays = upstream_named(next, entry.name) != nullptr;
    if (!stays && serves_only_exports(entry)) found.live.insert(key(entry));
    if (stays && entry.removed != 0) found.back.insert(key(entry));
  }
  return found;
}

/// As if none of the upstreams that `next` has was removed.
Config with_those_of(Config running, const segment::ConfigBlock& next) {
  for (segment::UpstreamConfig& entry : running.block.upstreams)
    if (upstream_named(next, entry.name) != nullptr) entry.removed = 0;
  return running;
}

}  // namespace

json describe(const Config& config) {
  const segment::ConfigBlock& block = config.block;
  json result = {
      {"segment", config.segment},
      {"log_level", config.log_level},
      {"saved_changes", config.saved_changes},
      {"reactor",
       {{"count", block.reactors}, {"idle", block.idle == segment::IdlePolicy::Spin ? "spin" : "backoff"}}},
      {"transport",
       {{"port", block.port},
        {"credits", block.credits},
        {"inline_bytes", block.inline_bytes},
        {"max_version", block.max_version},
        {"max_segments", block.max_segments},
        {"keep_alive_s", block.keep_alive_s},
        {"probe_after_s", block.probe_after_s},
        {"progress_timeout_s", block.progress_timeout_s},
        {"version_1_memory_s", block.version_1_memory_s},
        {"max_connections", block.max_connections},
        {"call_buffers", block.call_buffers},
        {"large_reply_buffers", block.large_reply_buffers},
        {"reply_chunks", block.reply_chunks_if_needed != 0 ? "if-needed" : "always"}}},
      {"host_authentication", describe_host_authentication(config)},
      {"device", describe_device(block)},
      {"memory", {{"size_mib", block.memory_bytes >> 20}, {"max_files", block.max_files}}},
      {"admin",
       {{"socket", config.admin_socket},
        {"change_group", config.admin_change_group},
        {"read_group", config.admin_read_group}}},
      {"metrics", {{"address", config.metrics_address}}},
      {"page",
       {{"address", config.page_address},
        {"allow_remote", config.page_allow_remote},
        {"name", config.page_name}}},
      {"events", {{"file", config.events_file}, {"journald", config.events_journald}}},
      {"observability", {{"slow_call_ms", block.slow_call_ms}}},
      {"mount",
       {{"enabled", config.mount_enabled}, {"port", config.mount_port}, {"rpcbind", config.mount_rpcbind}}},
      {"kerberos", {{"enabled", config.kerberos_enabled}, {"port", config.kerberos_port}}},
      {"locks",
       {{"enabled", config.locks_enabled},
        {"port", config.locks_port},
        {"rpcbind", config.locks_rpcbind},
        {"name", config.locks_name},
        {"state", config.locks_state}}},
      {"policy", describe_class(config.classes[0])},
      {"admission",
       {{"max_connections", config.max_connections},
        {"max_requests_per_second", config.max_requests_per_second},
        {"max_requests_per_second_per_client", config.max_requests_per_second_per_client}}},
      {"forward",
       {{"record_buffers", block.record_buffers},
        {"item_buffers", block.item_buffers},
        {"request_cache", block.request_cache},
        {"callback_clients", block.callback_clients},
        {"spare_upstreams", block.spare_upstreams}}},
      {"upstream", describe_upstreams(block)},
      {"reverse", describe_reverse(block)},
      {"client_class", json::array()},
      {"export", json::array()}};
  result["policy"]["slots"] = config.policy_slots;
  result["policy"]["idle_s"] = config.policy_idle_s;
  result["policy"]["interval_ms"] = config.policy_interval_ms;
  if (!config.choose_cpus)
    result["reactor"]["cpus"] =
        std::vector<std::uint32_t>(block.cpus.begin(), block.cpus.begin() + block.reactors);
  for (std::size_t i = 1; i < config.classes.size(); ++i) {
    if (config.classes[i].gone) continue;
    json entry = describe_class(config.classes[i]);
    entry["name"] = config.classes[i].name;
    entry["clients"] = to_json(config.classes[i].clients, config.classes[i].clients.size());
    result["client_class"].push_back(entry);
  }
  for (const segment::ExportConfig& entry : block.exports)
    if (entry.in_use != 0) result["export"].push_back(describe_export(entry));
  return result;
}

Changes compare(const Config& running, const Config& next, const segment::UpstreamPlaces& places) {
  // Entries of lists are compared by name, not by position.
  const auto flat = [](const Config& config) {
    std::map<std::string, json> keys;
    add_flat(keys, "", describe(config));
    split_upstreams(keys);
    return keys;
  };
  Movements upstreams = movements(running.block, next.block, places);
  const auto before = flat(with_those_of(running, next.block));
  const auto after = flat(next);
  std::set<std::string> names;
  for (const auto& [key, value] : before)
    if (const auto at = after.find(key); at == after.end() || at->second != value) names.insert(key);
  for (const auto& [key, value] : after)
    if (before.count(key) == 0) names.insert(key);
  // Those of an upstream that comes or goes are not changes of their own.
  std::erase_if(names, [&](const std::string& key) {
    return is_part_of_upstream(key) && !(before.count(key) != 0 && after.count(key) != 0);
  });
  for (const std::string& key : upstreams.back)
    if (names.insert(key).second) upstreams.live.insert(key);
  Changes changes;
  for (const std::string& key : names)
    (is_live(key) || upstreams.live.count(key) != 0 ? changes.live
     : is_control(key)                              ? changes.restart_control
                                                    : changes.restart_both)
        .push_back(key);
  return changes;
}

Config live_part(const Config& running, const Config& next, const segment::UpstreamPlaces& places) {
  Config result = running;
  result.log_level = next.log_level;
  result.saved_changes = next.saved_changes;
  result.saved = next.saved;
  result.authentication_timeout_s = next.authentication_timeout_s;
  result.authentication_hosts = next.authentication_hosts;
  result.classes = next.classes;
  for (policy::ClientClass& entry : result.classes) {
    // Connections that are open have room for the old maximum.
    entry.credits.max_credits = std::min(entry.credits.max_credits, running.block.credits);
    entry.credits.min_credits = std::min(entry.credits.min_credits, entry.credits.max_credits);
  }
  result.policy_slots = next.policy_slots;
  result.policy_idle_s = next.policy_idle_s;
  result.policy_interval_ms = next.policy_interval_ms;
  result.max_connections = next.max_connections;
  result.max_requests_per_second = next.max_requests_per_second;
  result.max_requests_per_second_per_client = next.max_requests_per_second_per_client;
  const auto generation = static_cast<std::uint32_t>(running.block.generation) + 1;
  for (std::uint32_t i = 0; i < result.block.upstream_count; ++i)
    take_live_parts(result.block.upstreams[i], next.block, generation);
  for (const auto& [place, upstream] : newcomers(running.block, next.block, places)) {
    result.block.upstreams[place] = *upstream;
    result.block.upstream_count = std::max(result.block.upstream_count, place + 1);
  }
  result.block.exports = next.block.exports;
  result.block.class_count = next.block.class_count;
  result.block.class_names = next.block.class_names;
  result.block.log_level = next.block.log_level;
  result.block.slow_call_ms = next.block.slow_call_ms;
  return result;
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
      throw ConfigError("There is no place for export " + std::string(entry.path) + ": " +
                        std::to_string(block.exports.size()) +
                        " paths were exported since the data plane was started. Start it again to free those "
                        "that are gone.\n");
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
