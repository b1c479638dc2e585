// SPDX-License-Identifier: Apache-2.0
//
// Functions that go through the table of keys.
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

}  // namespace

void read_class_limits(Checker& check, const toml::table& table, ClientClass& out) {
  read_keys(check, table, class_limits(), out);
}

Json describe_class_limits(const ClientClass& entry) {
  return describe_keys(class_limits(), entry);
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
