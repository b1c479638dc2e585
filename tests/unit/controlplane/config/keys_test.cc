// SPDX-License-Identifier: Apache-2.0
//
// The table of keys: every row is read, shown, compared and copied as it says.
#include "controlplane/config/keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "controlplane/config/changes.h"
#include "tests/unit/controlplane/config/every_key.h"

namespace sluice::config {
namespace {

std::string full_name(const KnownKey& key) {
  return (key.table.empty() ? "" : key.table + '.') + key.row->name;
}

/// Returns a file that has the key with this value.
std::string file_with(const KnownKey& key, const Json& value) {
  return (key.table.empty() ? "" : '[' + key.table + "]\n") + key.row->name + " = " + value.dump() + '\n';
}

/// Returns a value other than the default; nothing for kinds without an obvious one.
std::optional<Json> another_value(const KnownKey& key) {
  const KeyRow& row = *key.row;
  if (row.kind == Kind::Boolean) return !key.usual.get<bool>();
  if (!row.words.empty())
    return row.words.front().text == key.usual ? row.words.back().text : row.words.front().text;
  if (row.kind != Kind::Integer) return std::nullopt;
  if (row.limits.most == 0) return std::nullopt;  // the limit depends on another key
  return key.usual == row.limits.least ? row.limits.least + 1 : row.limits.least;
}

const Json* shown(const Json& described, const KnownKey& key) {
  const Json& table = key.table.empty() ? described : described.at(key.table);
  return table.find(key.row->name);
}

TEST(Keys, a_change_takes_effect_as_the_row_says) {
  // These values need other keys besides.
  const std::set<std::string> incomplete = {"forward.rdma_upstreams_max", "host_authentication.method",
                                            "host_authentication.required", "locks.enabled"};
  const Config usual = parse("", "f");
  std::size_t tried = 0;
  for (const KnownKey& key : known_keys()) {
    const std::optional<Json> value = key.in_list ? std::nullopt : another_value(key);
    if (!value || incomplete.count(full_name(key)) != 0) continue;
    const Config next = parse(file_with(key, *value), "f");
    EXPECT_EQ(*shown(describe(next), key), *value) << full_name(key);
    const Changes changes = compare(usual, next);
    const auto& list = key.row->scope == Scope::Live           ? changes.live
                       : key.row->scope == Scope::ControlPlane ? changes.restart_control
                                                               : changes.restart_both;
    EXPECT_NE(std::find(list.begin(), list.end(), full_name(key)), list.end()) << full_name(key);
    const Json live = describe(live_part(usual, next));
    EXPECT_EQ(shown(live, key) != nullptr && *shown(live, key) == *value, key.row->scope == Scope::Live)
        << full_name(key);
    ++tried;
  }
  EXPECT_GT(tried, 65u);
}

TEST(Keys, an_integer_outside_of_its_range_is_refused) {
  for (const KnownKey& key : known_keys()) {
    const Limits& limits = key.row->limits;
    if (key.in_list || key.row->kind != Kind::Integer || limits.most == 0) continue;
    EXPECT_THROW(parse(file_with(key, limits.most + 1), "f"), ConfigError) << full_name(key);
    if (limits.least == 0) continue;
    EXPECT_THROW(parse(file_with(key, limits.least - 1), "f"), ConfigError) << full_name(key);
  }
}

TEST(Keys, the_description_has_every_key_and_no_other) {
  std::set<std::string> described;
  const auto add = [&](const std::string& table, const Json& keys) {
    for (const auto& [name, value] : keys.items())
      if (!value.is_object() && !(value.is_array() && !value.empty() && value[0].is_object()))
        described.insert(table + name);
  };
  const Json all = describe(parse(std::string(lab::kEveryKey), "f"));
  add("", all);
  for (const auto& [name, value] : all.items()) {
    if (value.is_object()) add(name + '.', value);
    if (value.is_array() && !value.empty() && value[0].is_object()) add(name + '.', value[0]);
  }
  add("host_authentication.host.", all["host_authentication"]["host"][0]);
  std::set<std::string> known = {"device.service_level"};  // kEveryKey leaves it out
  described.insert("device.service_level");
  for (const KnownKey& key : known_keys()) known.insert(full_name(key));
  EXPECT_EQ(described, known);
}

/// Returns the lines of the sample from `heading` to the next empty line, without their comment characters.
std::string part_of_sample(const std::string& heading) {
  std::ifstream file(SLUICE_SAMPLE_CONFIG);
  std::string part;
  bool within = false;
  for (std::string line; std::getline(file, line);) {
    within = within || line.starts_with(heading) || line.starts_with("# " + heading);
    if (line.starts_with("# ")) line.erase(0, 2);
    within = within && !line.empty();
    // The programs of the sample cannot be served at the port of the sample.
    if (within && !line.starts_with("listen_port")) part += line + '\n';
  }
  return part;
}

TEST(Keys, entries_in_the_sample_have_the_default_values) {
  for (const std::string list : {"export", "upstream"}) {
    const Json entry = describe(parse(part_of_sample("[[" + list + "]]"), "sample"))[list][0];
    for (const KnownKey& key : known_keys()) {
      if (key.table != list || !std::string(key.row->preset).empty()) continue;
      EXPECT_EQ(entry[key.row->name], key.usual) << full_name(key);
    }
  }
}

TEST(Keys, the_head_of_the_sample_names_the_tables_by_scope) {
  const std::string head = part_of_sample("Sluice: sample");
  const std::size_t middle = head.find("For [admin]");
  ASSERT_NE(middle, std::string::npos);
  std::map<std::string, std::set<Scope>> scopes;
  for (const KnownKey& key : known_keys())
    scopes[key.table.empty() ? key.row->name
           : key.in_list     ? "[[" + key.table + "]]"
                             : '[' + key.table + ']']
        .insert(key.row->scope);
  for (const auto& [name, of] : scopes) {
    if (of.size() > 1 || name == "[[host_authentication.host]]") continue;  // described in words
    const std::size_t at = head.find(name);
    EXPECT_EQ(at < middle, *of.begin() == Scope::Live) << name;
    EXPECT_EQ(at != std::string::npos && at >= middle, *of.begin() == Scope::ControlPlane) << name;
  }
}

TEST(Keys, the_reference_has_a_row_for_each_key) {
  const std::string page = keys_reference();
  for (const char* const row :
       {"| `credits` | integer | 64 | 1 to 1024 | both planes | ",
        "| `log_level` | text | \"info\" | \"debug\", "
        "\"info\", \"warn\", \"error\" | reload | ",
        "| `vlan` | integer | untagged | 0 to 4094 | both planes | ",
        "| `port` | integer | 2049; rdma: 20049 | 1 to 65535 | reload | ",
        "| `prefix` | text | \"\" | a path | reload | ",
        "| `max_calls` | integer | 1024 | 16 to 65536, rounded up to a power of two | both planes | ",
        "| `enabled` | boolean | true |  | control plane | ",
        "| `size_mib` | integer | 1024 | 16 to 1048576 | "})
    EXPECT_NE(page.find(row), std::string::npos) << row;
  for (const KnownKey& key : known_keys()) {
    EXPECT_NE(page.find(std::string("| `") + key.row->name + "` | "), std::string::npos) << full_name(key);
    EXPECT_NE(default_of(key), "null") << full_name(key);
  }
}

TEST(Keys, every_row_has_a_sentence) {
  for (const KnownKey& key : known_keys())
    EXPECT_GT(std::string(key.row->sentence).size(), 4u) << full_name(key);
}

}  // namespace
}  // namespace sluice::config
