// SPDX-License-Identifier: Apache-2.0
//
// Reads a parsed configuration and collects its defects. Used at setup; single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include "controlplane/config/config.h"
#include "controlplane/config/prefix.h"

namespace sluice::config {

/// Reads keys of tables and records every defect. finish() adds the keys that were never read, and throws.
class Checker {
 public:
  explicit Checker(std::string name) : name_(std::move(name)) {}

  void defect(const toml::source_region& where, const std::string& what);

  const toml::node* take(const toml::table& table, const std::string& key);

  template <typename T>
  void integer(const toml::table& table, const std::string& key, T& value, std::uint64_t low,
               std::uint64_t high) {
    if (const auto given = integer_of(table, key, low, high)) value = static_cast<T>(*given);
  }

  template <typename T>
  void boolean(const toml::table& table, const std::string& key, T& value) {
    if (const auto given = boolean_of(table, key)) value = static_cast<T>(*given);
  }

  void text(const toml::table& table, const std::string& key, std::string& value, std::size_t max_bytes,
            const std::vector<std::string>& allowed = {});

  /// Reads a text that names a file: '.' and '..' between slashes are a defect.
  void path(const toml::table& table, const std::string& key, std::string& value, std::size_t max_bytes);

  const toml::table* table(const toml::table& parent, const std::string& key);

  void reject_unknown();

  void finish();

 private:
  std::optional<std::uint64_t> integer_of(const toml::table& table, const std::string& key, std::uint64_t low,
                                          std::uint64_t high);
  std::optional<bool> boolean_of(const toml::table& table, const std::string& key);

  std::string name_;
  std::string defects_;
  bool failed_ = false;
  std::set<const toml::table*> used_;
  std::map<const toml::table*, std::set<std::string>> known_;
};

/// Returns true if the path has a '.' or '..' component, or a control character.
bool has_odd_part(std::string_view path);
/// Returns true for a name of a class or an upstream: small letters, digits, '-' and '_'.
bool is_label(std::string_view name);
/// Parses TOML. Throws ConfigError.
toml::table parse_toml(const std::string& text, const std::string& name);
/// Reads a list of prefixes. Returns how many elements of `out` it has filled.
std::uint32_t read_prefixes(Checker& check, const toml::table& table, const std::string& key,
                            std::span<segment::AllowedPrefix> out);

}  // namespace sluice::config
