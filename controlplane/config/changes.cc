// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/changes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "controlplane/config/keys.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::config {
namespace {

/// Adds every key with its full name: "table.key", and "table.name" for an entry of a list of tables.
void add_flat(std::map<std::string, Json>& keys, const std::string& prefix, const Json& table) {
  for (const auto& [key, value] : table.items()) {
    const std::string name = prefix + key;
    if (value.is_object()) {
      add_flat(keys, name + '.', value);
    } else if (value.is_array() && (value.empty() || value[0].is_object())) {
      for (const Json& entry : value)
        keys[name + '.' + entry[name == "export" ? "path" : "name"].get<std::string>()] = entry;
    } else {
      keys[name] = value;
    }
  }
}

constexpr std::string_view kUpstream = "upstream.";

/// Returns the name of the upstream that a key is of, or nothing. Names contain no dots.
std::optional<std::string_view> upstream_of_key(std::string_view key) {
  if (!key.starts_with(kUpstream)) return std::nullopt;
  key.remove_prefix(kUpstream.size());
  return key.substr(0, key.find('.'));
}

/// Returns true for a key such as "upstream.name.address".
bool is_part_of_upstream(const std::string& key) {
  return key.starts_with(kUpstream) && key.find('.', kUpstream.size()) != std::string::npos;
}

/// Returns true if the servers for locks and Kerberos contexts have to start again for a change of the key,
/// because they read it at the start of the control plane. All other parts of both planes follow a reload.
bool is_read_at_start(const Config& config, const std::string& key) {
  if (!config.locks_enabled && !config.kerberos_enabled) return false;
  if (!is_part_of_upstream(key)) return upstream_of_key(key).has_value();
  for (const char* const part : {".clients", ".privileged_port", ".programs", ".transport", ".listen_port"})
    if (key.ends_with(part)) return true;
  return false;
}

/// Splits off the keys of each upstream as separate keys.
void split_upstreams(std::map<std::string, Json>& keys) {
  std::map<std::string, Json> parts;
  for (auto& [key, value] : keys) {
    if (!key.starts_with(kUpstream) || !value.is_object()) continue;
    for (const auto& [part, of_entry] : value.items()) {
      if (part == "name") continue;
      std::string name = key;
      name.append(".").append(part);
      parts[name] = of_entry;
    }
    value = value["name"];
  }
  keys.merge(parts);
}

/// Returns `running` with all upstreams that are in `next` marked as not removed.
Config with_those_of(Config running, const segment::ConfigBlock& next) {
  for (segment::UpstreamConfig& entry : running.block.upstreams)
    if (upstream_named(next, entry.name) != nullptr) entry.removed = 0;
  return running;
}

/// Returns when a change of the key takes effect.
Scope scope_of_change(const std::string& key, const segment::ConfigBlock& running, const UpstreamPlan& plan) {
  if (const auto upstream = upstream_of_key(key))
    return has_element(plan.later, *upstream) ? Scope::BothPlanes : Scope::Live;
  // NFS 3 of a data plane that has started with an upstream for it is not served from memory.
  if (key.starts_with("export.") && !running.slots().memory_exports) return Scope::BothPlanes;
  return scope_of(key);
}

}  // namespace

Changes compare(const Config& running, const Config& next, const segment::UpstreamPlaces& places) {
  // Entries of lists are compared by name, not by position.
  const auto flat = [](const Config& config) {
    std::map<std::string, Json> keys;
    add_flat(keys, "", describe(config));
    split_upstreams(keys);
    return keys;
  };
  const UpstreamPlan plan = plan_upstreams(running.block, next.block, places);
  const auto before = flat(with_those_of(running, next.block));
  const auto after = flat(next);
  std::set<std::string> names;
  for (const auto& [key, value] : before)
    if (const auto at = after.find(key); at == after.end() || at->second != value) names.insert(key);
  for (const auto& [key, value] : after)
    if (before.count(key) == 0) names.insert(key);
  // The parts of an upstream that is added or removed are not separate changes.
  std::erase_if(names, [&](const std::string& key) {
    return is_part_of_upstream(key) && !(before.count(key) != 0 && after.count(key) != 0);
  });
  for (const segment::UpstreamConfig& entry :
       std::span(running.block.upstreams).first(running.block.upstream_count))
    if (entry.removed != 0 && upstream_named(next.block, entry.name) != nullptr)
      names.insert(std::string(kUpstream) + entry.name);  // it is back
  Changes changes;
  for (const std::string& key : names) {
    switch (scope_of_change(key, running.block, plan)) {
      case Scope::Live:
        changes.live.push_back(key);
        if (is_read_at_start(next, key)) changes.restart_control.push_back(key);
        break;
      case Scope::ControlPlane:
        changes.restart_control.push_back(key);
        break;
      case Scope::BothPlanes:
        changes.restart_both.push_back(key);
    }
  }
  return changes;
}

namespace {

/// Returns true for a key that limits connections, or access to an export or upstream. Credits are shares and
/// not limits.
bool is_restriction(const std::string& key) {
  for (const char* const table : {"admission.", "export.", "host_authentication.", "upstream."})
    if (key.starts_with(table)) return true;
  return key.ends_with(".max_connections_per_client");
}

/// Returns true if the key's default allows more than `value`: a larger number or zero, an empty list instead
/// of a list with entries, or a condition that is off.
bool allows_more(const std::string& key, const Json& usual, const Json& value) {
  if (usual == value || key.ends_with(".anonuid") || key.ends_with(".anongid")) return false;
  if (value.is_boolean()) return value.get<bool>() && !usual.get<bool>();
  if (value.is_number()) return usual.get<double>() == 0 || usual.get<double>() > value.get<double>();
  if (value.is_array()) return usual.empty() && !value.empty();
  return key == "host_authentication.method" && usual != value;
}

/// Adds the keys of restrictions with their full names, including those inside of entries.
void add_restrictions(std::map<std::string, Json>& keys, const Config& config) {
  std::map<std::string, Json> all;
  add_flat(all, "", describe(config));
  for (const auto& [key, value] : all) {
    if (!value.is_object() && is_restriction(key)) keys[key] = value;
    if (!value.is_object()) continue;
    for (const auto& [part, of_entry] : value.items()) {
      std::string name = key;
      name.append(".").append(part);
      if (is_restriction(name)) keys[name] = of_entry;
    }
  }
}

}  // namespace

std::string unsaid_removals(const Config& running, const Config& next) {
  const auto exports_of = [](const Config& config) {
    return std::count_if(config.block.exports.begin(), config.block.exports.end(),
                         [](const segment::ExportConfig& entry) { return entry.in_use != 0; });
  };
  const auto upstreams_of = [](const Config& config) {
    return std::count_if(config.block.upstreams.begin(),
                         config.block.upstreams.begin() + config.block.upstream_count,
                         [](const segment::UpstreamConfig& entry) { return entry.removed == 0; });
  };
  // A reload drops changes that were made by sluicectl without --save. The output of sluicectl mentions this
  // at the time of the change.
  const auto gone = [&](const std::string& key) { return running.has_key(key) && !next.has_key(key); };
  std::string problems;
  if (gone("export") && exports_of(running) > 0 && exports_of(next) == 0)
    problems +=
        "The file has no [[export]], so the last export would be removed. Write 'export = []' if that is "
        "intended.\n";
  if (gone("upstream") && upstreams_of(running) > 0 && upstreams_of(next) == 0)
    problems +=
        "The file has no [[upstream]], so the last upstream would be removed. Write 'upstream = []' if that "
        "is intended.\n";
  std::map<std::string, Json> before;
  std::map<std::string, Json> after;
  add_restrictions(before, running);
  add_restrictions(after, next);
  for (const auto& [key, value] : before) {
    const auto then = after.find(key);
    // A removed entry takes its restrictions along. Keys that the file does not name have their default
    // values.
    if (then == after.end() || !gone(key) || !allows_more(key, then->second, value)) continue;
    problems += key + " is " + value.dump() +
                " now, and the file does not name it. Write it with this value, or with its default, " +
                then->second.dump() + ", to lift the limit.\n";
  }
  return problems;
}

Config live_part(const Config& running, const Config& next, const segment::UpstreamPlaces& places) {
  Config result = running;
  result.named = next.named;
  result.export_files = next.export_files;
  copy_live_keys(result, next);
  result.authentication_hosts = next.authentication_hosts;
  result.classes = next.classes;
  for (policy::ClientClass& entry : result.classes) {
    // Open connections have buffers for the old maximum only.
    entry.credits.max_credits = std::min(entry.credits.max_credits, running.block.credits);
    entry.credits.min_credits = std::min(entry.credits.min_credits, entry.credits.max_credits);
  }
  const auto generation = static_cast<std::uint32_t>(running.block.generation) + 1;
  const UpstreamPlan plan = plan_upstreams(running.block, next.block, places);
  for (std::uint32_t i = 0; i < plan.slots.size(); ++i) {
    const PlannedSlot& slot = plan.slots[i];
    segment::UpstreamConfig& entry = result.block.upstreams[i];
    if (slot.then != nullptr)
      entry = *slot.then;
    else if (slot.now != nullptr && slot.now->removed == 0 &&
             upstream_named(next.block, slot.now->name) == nullptr)
      entry.removed = generation;
    if (slot.served() != nullptr) result.block.upstream_count = std::max(result.block.upstream_count, i + 1);
  }
  if (running.block.slots().memory_exports) result.block.exports = next.block.exports;
  fill_derived(result);
  return result;
}

BesideDataPlane beside_data_plane(const Config& read, const segment::ConfigBlock& started,
                                  const segment::UpstreamPlaces& places) {
  Config running = read;
  running.block = started;
  running.authentication_required = started.hold_calls != 0;
  return {.config = live_part(running, read, places), .later = compare(running, read, places).restart_both};
}

}  // namespace sluice::config
