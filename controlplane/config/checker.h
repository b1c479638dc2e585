// SPDX-License-Identifier: Apache-2.0
//
// Reads a parsed configuration and collects its defects. Setup; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "controlplane/config/config.h"

namespace sluice::config {

/// Reads keys of tables and records every defect. finish() adds the keys that were never read, and throws.
class Checker {
 public:
  explicit Checker(std::string name) : name_(std::move(name)) {}

  void defect(const toml::source_region& where, const std::string& what) {
    defects_ << name_ << ':' << where.begin.line << ": " << what << '\n';
    failed_ = true;
  }

  const toml::node* take(const toml::table& table, const std::string& key) {
    used_.insert(&table);
    known_[&table].insert(key);
    return table.get(key);
  }

  template <typename T>
  void integer(const toml::table& table, const std::string& key, T& value, std::uint64_t low,
               std::uint64_t high) {
    const toml::node* node = take(table, key);
    if (node == nullptr) return;
    const auto given = node->value_exact<std::int64_t>();
    if (!given || *given < 0 || static_cast<std::uint64_t>(*given) < low ||
        static_cast<std::uint64_t>(*given) > high)
      return defect(node->source(), key + " has to be a whole number from " + std::to_string(low) + " to " +
                                        std::to_string(high) + ".");
    value = static_cast<T>(*given);
  }

  template <typename T>
  void boolean(const toml::table& table, const std::string& key, T& value) {
    const toml::node* node = take(table, key);
    if (node == nullptr) return;
    const auto given = node->value_exact<bool>();
    if (!given) return defect(node->source(), key + " has to be true or false.");
    value = static_cast<T>(*given);
  }

  void text(const toml::table& table, const std::string& key, std::string& value, std::size_t max_bytes,
            const std::vector<std::string>& allowed = {}) {
    const toml::node* node = take(table, key);
    if (node == nullptr) return;
    const auto given = node->value_exact<std::string>();
    if (!given) return defect(node->source(), key + " has to be a string.");
    if (given->size() > max_bytes)
      return defect(node->source(), key + " has to be at most " + std::to_string(max_bytes) + " bytes long.");
    if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), *given) == allowed.end()) {
      std::string list;
      for (const auto& word : allowed) list += (list.empty() ? "\"" : ", \"") + word + "\"";
      return defect(node->source(), key + " has to be one of " + list + ".");
    }
    value = *given;
  }

  const toml::table* table(const toml::table& parent, const std::string& key) {
    const toml::node* node = take(parent, key);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) return defect(node->source(), key + " has to be a table: [" + key + "]."), nullptr;
    return node->as_table();
  }

  void reject_unknown() {
    for (const toml::table* table : used_)
      for (const auto& [key, node] : *table) {
        if (known_[table].count(std::string(key.str())) != 0) continue;
        std::string allowed;
        for (const std::string& word : known_[table]) allowed += (allowed.empty() ? "" : ", ") + word;
        defect(node.source(), "unknown key '" + std::string(key.str()) + "'; allowed here: " + allowed + ".");
      }
  }

  void finish() {
    reject_unknown();
    if (failed_) throw ConfigError(defects_.str());
  }

 private:
  std::string name_;
  std::ostringstream defects_;
  bool failed_ = false;
  std::set<const toml::table*> used_;
  std::map<const toml::table*, std::set<std::string>> known_;
};

/// Throws ConfigError.
toml::table parse_toml(const std::string& text, const std::string& name);
/// "10.0.0.0/8", "192.0.2.7", "2001:db8::/32".
bool parse_prefix(const std::string& text, segment::AllowedPrefix& prefix);
/// Inverse of parse_prefix().
std::string to_text(const segment::AllowedPrefix& prefix);
/// HOST:PORT, where a host of IPv6 stands in brackets.
bool is_host_and_port(const std::string& address);
/// A list of prefixes. Returns how many of `out` it has filled.
std::uint32_t read_prefixes(Checker& check, const toml::table& table, const std::string& key,
                            std::span<segment::AllowedPrefix> out);

}  // namespace sluice::config
