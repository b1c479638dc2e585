// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/readers.h"

#include <cctype>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/config/addresses.h"
#include "controlplane/config/key.h"
#include "controlplane/config/keys.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice::config {

namespace {

bool has_control_character(std::string_view text) {
  return has_match(text, [](unsigned char c) { return std::iscntrl(c) != 0; });
}

}  // namespace

bool has_odd_part(std::string_view path) {
  if (has_control_character(path)) return true;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = smaller_of(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part == "." || part == "..") return true;
    at = end + 1;
  }
  return false;
}

bool is_label(std::string_view name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == name.npos;
}

void Checker::defect(const toml::source_region& where, const std::string& what) {
  defects_ += file_of(where) + ':' + std::to_string(where.begin.line) + ": " + what + '\n';
  failed_ = true;
}

const toml::node* Checker::take(const toml::table& table, const std::string& key) {
  used_.insert(&table);
  known_[&table].insert(key);
  return table.get(key);
}

void Checker::text(const toml::table& table, const std::string& key, std::string& value,
                   std::size_t max_bytes, const std::vector<std::string>& allowed) {
  const toml::node* node = take(table, key);
  if (node == nullptr) return;
  const auto given = node->value_exact<std::string>();
  if (!given) return defect(node->source(), key + " has to be a string.");
  if (given->size() > max_bytes)
    return defect(node->source(), key + " has to be at most " + std::to_string(max_bytes) + " bytes long.");
  if (has_control_character(*given))
    return defect(node->source(), key + " has a control character. Remove the character.");
  if (!allowed.empty() && !has_element(allowed, *given)) {
    std::string list;
    for (const auto& word : allowed) list += (list.empty() ? "\"" : ", \"") + word + "\"";
    return defect(node->source(), key + " has to be one of " + list + ".");
  }
  value = *given;
}

void Checker::path(const toml::table& table, const std::string& key, std::string& value,
                   std::size_t max_bytes) {
  text(table, key, value, max_bytes);
  if (value.starts_with('/') && has_odd_part(value))
    defect(table.get(key)->source(), key + " has a '.' or '..' between slashes. Name the file itself.");
}

const toml::table* Checker::table(const toml::table& parent, const std::string& key) {
  const toml::node* node = take(parent, key);
  if (node == nullptr) return nullptr;
  if (!node->is_table())
    return defect(node->source(), key + " has to be a table. Write it as [" + key + "]."), nullptr;
  return node->as_table();
}

void Checker::reject_unknown() {
  for (const toml::table* table : used_)
    for (const auto& [key, node] : *table) {
      if (known_[table].count(std::string(key.str())) != 0) continue;
      std::string allowed;
      for (const std::string& word : known_[table]) allowed += (allowed.empty() ? "" : ", ") + word;
      defect(node.source(),
             "The key '" + std::string(key.str()) + "' is unknown. Allowed here are " + allowed + ".");
    }
}

void Checker::finish() {
  reject_unknown();
  if (failed_) throw ConfigError(defects_);
}

std::optional<std::uint64_t> Checker::integer_of(const toml::table& table, const std::string& key,
                                                 std::uint64_t low, std::uint64_t high) {
  const toml::node* node = take(table, key);
  if (node == nullptr) return std::nullopt;
  const auto given = node->value_exact<std::int64_t>();
  if (given && *given >= 0 && static_cast<std::uint64_t>(*given) >= low &&
      static_cast<std::uint64_t>(*given) <= high)
    return static_cast<std::uint64_t>(*given);
  defect(node->source(),
         key + " has to be a whole number from " + std::to_string(low) + " to " + std::to_string(high) + ".");
  return std::nullopt;
}

std::optional<bool> Checker::boolean_of(const toml::table& table, const std::string& key) {
  const toml::node* node = take(table, key);
  if (node == nullptr) return std::nullopt;
  const auto given = node->value_exact<bool>();
  if (!given) defect(node->source(), key + " has to be true or false.");
  return given;
}

toml::table parse_toml(const std::string& text, const std::string& name) {
  try {
    return toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(name + ':' + std::to_string(error.source().begin.line) + ": " +
                      std::string(error.description()) + '\n');
  }
}

std::uint32_t read_prefixes(Checker& check, const toml::table& table, const std::string& key,
                            std::span<segment::AllowedPrefix> out) {
  const toml::node* node = check.take(table, key);
  if (node == nullptr) return 0;
  const toml::array* list = node->as_array();
  if (list == nullptr || list->size() > out.size())
    return check.defect(node->source(),
                        key + " has to be a list of at most " + std::to_string(out.size()) + " addresses."),
           0;
  std::uint32_t count = 0;
  for (const toml::node& item : *list) {
    const auto text = item.value_exact<std::string>();
    if (text && text->find('%') != std::string::npos)
      check.defect(item.source(),
                   key + " has " + *text + ", and takes addresses without a zone. Remove the part from '%'.");
    else if (!text || !parse_prefix(*text, out[count]))
      check.defect(item.source(),
                   key + " takes addresses and prefixes such as \"192.0.2.0/24\" or \"2001:db8::1\".");
    else
      ++count;
  }
  return count;
}

namespace {

void add_named(std::set<std::string>& names, const std::string& prefix, const toml::table& table) {
  for (const auto& [key, value] : table) {
    const std::string name = prefix + std::string(key.str());
    names.insert(name);
    if (const toml::table* const part = value.as_table()) add_named(names, name + '.', *part);
    const toml::array* const list = value.as_array();
    if (list == nullptr) continue;
    for (const toml::node& entry : *list)
      if (const toml::table* const part = entry.as_table())
        add_named(names,
                  name + '.' + (*part)[name == "export" ? "path" : "name"].value_or(std::string()) + '.',
                  *part);
  }
}

}  // namespace

std::vector<std::string> named_keys(const toml::table& root) {
  std::set<std::string> names;
  add_named(names, "", root);
  return {names.begin(), names.end()};
}

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
    "An upstream that does not fit the slots of the running data plane waits for a restart of both planes.\n";

const char* name_of(Scope scope) {
  switch (scope) {
    case Scope::Live:
      return "reload";
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
