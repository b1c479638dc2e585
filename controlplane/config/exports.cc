// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/exports.h"

#include <cstring>
#include <set>

#include "controlplane/config/host_authentication.h"

namespace sluice::config {
namespace {

void read_export(Checker& check, const toml::table& table, segment::ExportConfig& out) {
  out.in_use = 1;
  std::string path;
  check.text(table, "path", path, segment::kMaxPathBytes - 1);
  if (path.empty() || path[0] != '/')
    check.defect(table.source(), "path is needed and has to start with '/'.");
  else if (path.find("//") != std::string::npos || (path.size() > 1 && path.back() == '/'))
    check.defect(table.source(), "path has a '/' too many: clients name it without, as in \"/export\".");
  std::memcpy(out.path, path.c_str(), path.size() + 1);
  check.boolean(table, "read_only", out.read_only);
  check.boolean(table, "root_squash", out.root_squash);
  check.boolean(table, "all_squash", out.all_squash);
  check.integer(table, "anonuid", out.anonuid, 0, 0xffffffff);
  check.integer(table, "anongid", out.anongid, 0, 0xffffffff);
  check.integer(table, "quota_mib", out.quota_bytes, 0, kMaxQuotaMib);
  out.quota_bytes <<= 20;
  out.allowed_count = read_prefixes(check, table, "clients", out.allowed);
  out.host_count = read_export_hosts(check, table, out.hosts);
}

}  // namespace

bool overlap(const std::string& one, const std::string& other) {
  const std::string& outer = one.size() < other.size() ? one : other;
  const std::string& inner = one.size() < other.size() ? other : one;
  return !outer.empty() && inner.size() > outer.size() && inner.starts_with(outer) &&
         (outer.back() == '/' || inner[outer.size()] == '/');
}

std::string overlap_defect(const std::string& one, const std::string& other) {
  return "exports '" + one + "' and '" + other + "' overlap: rename one, so that neither lies in the other.";
}

void read_exports(Checker& check, const toml::table& root, segment::ConfigBlock& block) {
  const toml::node* node = check.take(root, "export");
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr || !list->is_array_of_tables() || list->size() > segment::kMaxExports)
    return check.defect(node->source(), "export has to be a list of at most " +
                                            std::to_string(segment::kMaxExports) + " tables: [[export]].");
  block.exports = {};
  std::uint32_t count = 0;
  std::set<std::string> paths;
  for (const toml::node& item : *list) {
    segment::ExportConfig entry;
    read_export(check, *item.as_table(), entry);
    if (!paths.insert(entry.path).second)
      check.defect(item.source(), "there is an export '" + std::string(entry.path) + "' already.");
    for (const std::string& other : paths)
      if (overlap(entry.path, other)) check.defect(item.source(), overlap_defect(entry.path, other));
    block.exports[count++] = entry;
  }
}

segment::ExportConfig parse_export(const std::string& text, const Config& running) {
  const toml::table root = parse_toml(text, "export");
  Checker check("export");
  segment::ConfigBlock block;
  read_exports(check, root, block);
  check_export_hosts(check, root, block, running);
  for (const segment::ExportConfig& other : running.block.exports)
    if (other.in_use != 0 && overlap(block.exports[0].path, other.path))
      check.defect(root.source(), overlap_defect(block.exports[0].path, other.path));
  check.finish();
  return block.exports[0];
}

Json describe_export(const segment::ExportConfig& entry) {
  Json clients = Json::array();
  for (std::uint32_t i = 0; i < entry.allowed_count; ++i) clients.push_back(to_text(entry.allowed[i]));
  Json hosts = Json::array();
  for (std::uint32_t i = 0; i < entry.host_count; ++i) hosts.push_back(entry.hosts[i].view());
  return {{"path", entry.path},
          {"read_only", entry.read_only != 0},
          {"root_squash", entry.root_squash != 0},
          {"all_squash", entry.all_squash != 0},
          {"anonuid", entry.anonuid},
          {"anongid", entry.anongid},
          {"quota_mib", entry.quota_bytes >> 20},
          {"clients", clients},
          {"hosts", hosts}};
}

}  // namespace sluice::config
