// SPDX-License-Identifier: Apache-2.0
//
// The reference page of all keys, made from the table of keys.
#include "controlplane/config/keys.h"

namespace sluice::config {
namespace {

constexpr const char* kHead =
    "# Configuration keys\n\n"
    "All keys of this release; `sluice-configuration-reference` prints this page. The page configuration.md "
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
