// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/readers.h"

#include <cctype>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/config/addresses.h"
#include "controlplane/config/keys.h"
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
  defects_ += name_ + ':' + std::to_string(where.begin.line) + ": " + what + '\n';
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

}  // namespace sluice::config
