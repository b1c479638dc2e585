// SPDX-License-Identifier: Apache-2.0
//
// Functions that go through the table of keys, and the reference page that is made from it.
#include <optional>

#include "controlplane/config/key.h"
#include "controlplane/config/readers.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::config {
namespace {

using policy::ClientClass;
using segment::ConfigBlock;

template <typename Owner, typename Whole>
auto& part_of(Whole& config) {
  if constexpr (std::is_same_v<Owner, Config>)
    return config;
  else if constexpr (std::is_same_v<Owner, ConfigBlock>)
    return config.block;
  else
    return config.classes[0];
}

/// Calls `use` with the keys of a section and with the part of each configuration that has them.
template <typename Use, typename... Configs>
void visit(const Section& section, const Use& use, Configs&... configs) {
  std::visit([&]<typename Owner>(std::span<const Key<Owner>> keys) { use(keys, part_of<Owner>(configs)...); },
             section.keys);
}

template <typename Owner>
void add_keys(std::vector<KnownKey>& known, const char* table, bool in_list, Keys<Owner> keys,
              const Owner& usual) {
  for (const Key<Owner>& key : keys)
    known.push_back({.table = table, .in_list = in_list, .row = &key.row, .usual = key.show(key.row, usual)});
}

}  // namespace

std::vector<KnownKey> known_keys() {
  std::vector<KnownKey> known;
  const Config usual = defaults();
  for (const Section& section : sections())
    visit(
        section, [&](auto keys, auto& part) { add_keys(known, section.name, false, keys, part); }, usual);
  for (const ListTable& list : list_tables()) {
    std::visit(
        [&]<typename Owner>(std::span<const Key<Owner>> keys) {
          add_keys(known, list.name, true, keys, Owner{});
          if constexpr (std::is_same_v<Owner, ClientClass>)
            add_keys(known, list.name, true, class_limits(), usual.classes[0]);
        },
        list.keys);
  }
  return known;
}

Scope scope_of(std::string_view name) {
  static const std::vector<KnownKey> kKnown = known_keys();
  // A change of an entry takes effect when all of its keys do.
  std::optional<Scope> of_entry;
  for (const KnownKey& key : kKnown)
    if (key.in_list && name.starts_with(key.table + '.'))
      of_entry = larger_of(of_entry.value_or(key.row->scope), key.row->scope);
  if (of_entry) return *of_entry;
  for (const KnownKey& key : kKnown)
    if (!key.in_list && name == (key.table.empty() ? "" : key.table + '.') + key.row->name)
      return key.row->scope;
  return Scope::BothPlanes;
}

const toml::table* read_section(Checker& check, const toml::table& root, std::string_view name,
                                Config& config) {
  const toml::table* const table = name.empty() ? &root : check.table(root, std::string(name));
  if (table == nullptr) return nullptr;
  for (const Section& section : sections())
    if (section.name == name)
      visit(
          section, [&](auto keys, auto& part) { read_keys(check, *table, keys, part); }, config);
  return table;
}

Json describe_sections(const Config& config) {
  Json result = Json::object();
  for (const Section& section : sections()) {
    Json& table = std::string_view(section.name).empty() ? result : result[section.name];
    visit(
        section, [&](auto keys, auto& part) { table.update(describe_keys(keys, part)); }, config);
  }
  return result;
}

Json describe(const Config& config) {
  Json result = describe_sections(config);
  result["upstream"] = describe_upstreams(config.block);
  for (const char* const list : {"client_class", "export"}) result[list] = Json::array();
  for (std::size_t i = 1; i < config.classes.size(); ++i)
    if (!config.classes[i].gone) result["client_class"].push_back(describe_entry(config.classes[i]));
  for (const segment::ExportConfig& entry : config.block.exports)
    if (entry.in_use != 0) result["export"].push_back(describe_entry(entry));
  Json& hosts = result["host_authentication"]["host"] = Json::array();
  for (const HostEntry& host : config.authentication_hosts) hosts.push_back(describe_entry(host));
  return result;
}

void copy_live_keys(Config& running, const Config& next) {
  for (const Section& section : sections())
    visit(
        section, [](auto keys, auto& to, auto& from) { copy_keys(keys, Scope::Live, to, from); }, running,
        next);
}

namespace {

constexpr const char* kHead =
    "# Configuration keys\n\n"
    "All keys of this release; `sluice-reference keys` prints this page. The page configuration.md "
    "has recipes and explains checks and reloads.\n"
    "A change of a key takes effect after a reload (`sluicectl config reload`, SIGHUP), a restart of the "
    "control plane, or a restart of both planes.\n"
    "\"reload *\": a reload suffices if the upstream has and keeps `exports` or a `prefix`; it applies to "
    "new "
    "mounts. Otherwise both planes are restarted.\n";

const char* name_of(Scope scope) {
  switch (scope) {
    case Scope::Live:
      return "reload";
    case Scope::LiveWithExports:
      return "reload *";
    case Scope::ControlPlane:
      return "control plane";
    case Scope::BothPlanes:
      return "both planes";
  }
  return "?";
}

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::Integer:
      return "integer";
    case Kind::Boolean:
      return "boolean";
    case Kind::Text:
      return "text";
    case Kind::List:
      return "list";
    case Kind::IntegerList:
      return "list of integers";
    case Kind::TextOrList:
      return "text or list";
  }
  return "?";
}

std::string heading_of(const KnownKey& key) {
  if (key.table.empty()) return "Keys without a table";
  return key.in_list ? "`[[" + key.table + "]]`" : "`[" + key.table + "]`";
}

}  // namespace

std::string range_of(const KeyRow& row) {
  if (row.range[0] != '\0') return row.range;
  if (!row.words.empty()) {
    std::string list;
    for (const Word& word : row.words)
      list.append(list.empty() ? "\"" : ", \"").append(word.text).append("\"");
    return list;
  }
  const std::string most = std::to_string(row.limits.most);
  if (row.kind == Kind::Integer)
    return std::to_string(row.limits.least) + " to " + most +
           (row.is_power_of_two ? ", rounded up to a power of two" : "");
  if (row.kind == Kind::Text) return "at most " + most + " bytes";
  return row.kind == Kind::List ? "at most " + most + " prefixes" : "";
}

std::string default_of(const KnownKey& key) {
  return key.row->preset[0] != '\0' ? key.row->preset : key.usual.dump();
}

std::string keys_reference() {
  std::string page = kHead;
  std::string heading;
  for (const KnownKey& key : known_keys()) {
    const KeyRow& row = *key.row;
    if (const std::string own = heading_of(key); own != heading) {
      heading = own;
      page += "\n## " + heading +
              "\n\n| key | kind | default | range | takes effect after | what it does |\n"
              "|---|---|---|---|---|---|\n";
    }
    page += std::string("| `") + row.name + "` | " + name_of(row.kind) + " | " + default_of(key) + " | " +
            range_of(row) + " | " + name_of(row.scope) + " | " + row.sentence + " |\n";
  }
  return page;
}

}  // namespace sluice::config
