// SPDX-License-Identifier: Apache-2.0
//
// The keys of the configuration. keys.cc has a table with one row for each key. The parser, the comparison
// at a reload, the description and the reference page are made from this table. Constants and pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::config {

/// When a change of a key takes effect.
enum class Scope : std::uint8_t {
  Live,          ///< at a reload
  ControlPlane,  ///< at a restart of the control plane
  BothPlanes,    ///< at a restart of both planes
};

enum class Kind : std::uint8_t { Integer, Boolean, Text, List, IntegerList, TextOrList };

/// One of the texts that a key takes, and the value of its member.
struct Word {
  const char* text;
  std::uint32_t value;
};

struct Limits {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};

/// A key without the functions that access its member.
struct KeyRow {
  const char* name = "";
  Kind kind = Kind::Text;
  Limits limits{};                ///< of an integer; `most` is the maximum length of a text
  bool is_power_of_two = false;   ///< other integers are rounded up
  std::span<const Word> words{};  ///< texts that the key takes; empty: any text
  const char* range = "";         ///< describes the range if the members above do not
  const char* preset = "";        ///< describes the default if the member's default value does not
  Scope scope = Scope::BothPlanes;
  const char* sentence = "";
};

/// A key with the table that it belongs to.
struct KnownKey {
  std::string table;     ///< "transport", "export", "host_authentication.host"; empty for the top level
  bool in_list = false;  ///< true if the table is a list of tables
  const KeyRow* row = nullptr;
  Json usual{};  ///< default value; null if the key has none
};
/// Returns every key, table by table.
std::vector<KnownKey> known_keys();
/// Describes a key's range and default, as the reference page has them.
std::string range_of(const KeyRow& row);
std::string default_of(const KnownKey& key);
/// Returns the page of all keys. The build writes it to deploy/configuration-keys.md.
std::string keys_reference();
/// Returns the scope of a change that compare() names: "table.key", or "table.entry" for an entry of a list.
Scope scope_of(std::string_view name);

/// Describes the tables that are no lists, nested as in the file.
Json describe_sections(const Config& config);
// Descriptions of entries of lists, as in the file.
Json describe_entry(const segment::ExportConfig& entry);
Json describe_entry(const HostEntry& entry);
Json describe_entry(const policy::ClientClass& entry);
Json describe_entry(const segment::UpstreamConfig& entry);
/// Copies the keys with Scope::Live from `next`, except for entries of lists.
void copy_live_keys(Config& running, const Config& next);
/// Returns every key of the configuration with its value, nested as in the file.
Json describe(const Config& config);

}  // namespace sluice::config
