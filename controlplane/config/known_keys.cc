// SPDX-License-Identifier: Apache-2.0
//
// Functions that go through the table of keys.
#include <algorithm>
#include <optional>

#include "controlplane/config/key.h"
#include "controlplane/config/readers.h"

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
      of_entry = std::max(of_entry.value_or(key.row->scope), key.row->scope);
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

void copy_live_keys(Config& running, const Config& next) {
  for (const Section& section : sections())
    visit(
        section, [](auto keys, auto& to, auto& from) { copy_keys(keys, Scope::Live, to, from); }, running,
        next);
}

}  // namespace sluice::config
