// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/upstreams.h"

#include <algorithm>
#include <cstring>

#include "controlplane/config/readers.h"
#include "dataplane/base/export_path.h"
#include "dataplane/base/siphash.h"
#include "dataplane/ulb/nfs3.h"

namespace sluice::config {

void read_export_path(Checker& check, const toml::table& table, const KeyRow& row,
                      segment::ExportConfig& out) {
  std::string path;
  check.text(table, row.name, path, row.limits.most);
  if (path.empty() || path[0] != '/')
    check.defect(table.source(), "path is needed and has to start with '/'.");
  else if (path.find("//") != std::string::npos || (path.size() > 1 && path.back() == '/'))
    check.defect(table.source(), "path has a '/' too many. Write it as clients name it, as in \"/export\".");
  else if (!is_plain_path(path))
    check.defect(table.source(), "path has a '.' or '..' between slashes. Name the folder itself.");
  std::memcpy(out.path, path.c_str(), path.size() + 1);
}

bool overlap(const std::string& one, const std::string& other) {
  const std::string& outer = one.size() < other.size() ? one : other;
  const std::string& inner = one.size() < other.size() ? other : one;
  return !outer.empty() && inner.size() > outer.size() && inner.starts_with(outer) &&
         (outer.back() == '/' || inner[outer.size()] == '/');
}

namespace {

/// `in` is the file that has the other export; empty if it is the file of the defect.
std::string overlap_defect(const std::string& one, const std::string& other, const std::string& in = {}) {
  return "The exports '" + one + "' and '" + other + "'" + in +
         " overlap. Rename one, so that neither lies in the other.";
}

/// Returns the message for a path that another export has. `where` names that export's file if it is another.
std::string repeated_path(const std::string& path, const std::string& where) {
  return "There is an export '" + path + "' already" + where + ". Remove one.";
}

/// Returns the line for an export whose configuration names no clients.
std::string without_clients(const std::string& path, const std::string& file) {
  return file + ": The [[export]] '" + path +
         "' has no clients. Name the addresses that may mount it, or write 'clients = []' if all may.\n";
}

}  // namespace

void add_exports(Checker& check, toml::table& root, const ExportFile& file) {
  toml::table part = parse_toml(file.text, file.name);
  for (const auto& [key, node] : part)
    if (key != "export")
      check.defect(node.source(),
                   "The key '" + std::string(key.str()) +
                       "' is not allowed here. Files of exports_directory have [[export]] only.");
  toml::array* const more = part["export"].as_array();
  if (more == nullptr || more->empty() || !more->is_array_of_tables())
    return check.defect(part.source(),
                        "The file has no [[export]], so it may have been truncated. Complete or remove it.");
  if (!root.contains("export")) {
    root.insert("export", std::move(*more));
    return;
  }
  if (toml::array* const all = root["export"].as_array())
    for (toml::node& table : *more) all->push_back(std::move(*table.as_table()));
}

std::vector<std::pair<std::string, std::string>> read_exports(Checker& check, const toml::table& root,
                                                              segment::ConfigBlock& block) {
  std::vector<std::pair<std::string, std::string>> found;
  const toml::node* node = check.take(root, "export");
  if (node == nullptr) return found;
  const toml::array* list = node->as_array();
  if (list == nullptr || !(list->empty() || list->is_array_of_tables()) ||
      list->size() > segment::kMaxExports) {
    check.defect(node->source(), "export has to be a list of at most " +
                                     std::to_string(segment::kMaxExports) + " tables: [[export]].");
    return found;
  }
  block.exports = {};
  for (const toml::node& item : *list) {
    segment::ExportConfig entry;
    entry.in_use = 1;
    read_entry(check, *item.as_table(), entry);
    const std::string& file = check.file_of(item.source());
    for (const auto& [other, its_file] : found) {
      const std::string in = its_file == file ? "" : " in " + its_file;
      if (other == entry.path)
        check.defect(item.source(), repeated_path(other, in));
      else if (overlap(entry.path, other))
        check.defect(item.source(), overlap_defect(entry.path, other, in));
    }
    block.exports[found.size()] = entry;
    found.emplace_back(entry.path, file);
  }
  return found;
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

void check_clients_of_exports(const Config& config) {
  std::string defects;
  for (const auto& [path, file] : config.export_files)
    if (!config.has_key("export." + path + ".clients")) defects += without_clients(path, file);
  if (!defects.empty()) throw ConfigError(defects);
}

namespace {

constexpr segment::RouteConfig kNfs3{ulb::kNfsProgram, ulb::kNfs3Version};
constexpr segment::RouteConfig kNfsAcl3{ulb::kNfsAclProgram, ulb::kNfs3Version};
constexpr std::uint32_t kLockProgram = 100021;

/// Returns the tag for file handles of an upstream. Clients keep handles while they have mounted, over
/// restarts and changes of the configuration. Therefore the tag depends on the name only and is always
/// computed with the same key.
std::uint32_t tag_of(std::string_view name) {
  constexpr HashKey kKey{};
  const auto tag = static_cast<std::uint32_t>(siphash(kKey, std::as_bytes(std::span(name))));
  return tag != 0 ? tag : 1;
}

/// Returns true for programs with file handles of NFS version 2 or 3 that the gateway forwards unchanged.
bool passes_handles(const segment::RouteConfig& route) {
  const bool version_2 = route.program == ulb::kNfsProgram || route.program == ulb::kNfsAclProgram;
  return route.program == ulb::kMountProgram || route.program == kLockProgram ||
         (version_2 && route.version == 2);
}

/// Returns the paths at which clients see the upstream's exports.
std::vector<std::string> roots_of(const segment::UpstreamConfig& upstream) {
  const std::string prefix = upstream.prefix;
  std::vector<std::string> roots;
  for (std::uint32_t i = 0; i < upstream.export_count; ++i) {
    const std::string path = upstream.exports[i].data();
    roots.push_back(prefix.empty() || path != "/" ? prefix + path : prefix);
  }
  if (roots.empty()) roots.push_back(prefix);
  return roots;
}

}  // namespace

void check_own_port(Checker& check, const toml::table& table, const segment::UpstreamConfig& entry) {
  if (entry.listen_port == 0) return;
  for (std::uint32_t r = 0; r < entry.route_count; ++r) {
    const segment::RouteConfig& route = entry.routes[r];
    if (passes_handles(route) || is_same(route, kNfs3) || is_same(route, kNfsAcl3))
      check.defect(table.source(),
                   "listen_port supports only programs whose clients do not call MOUNT, because MOUNT "
                   "returns no port. Remove " +
                       to_text(route) +
                       " from programs. Several upstreams can have nfs3 by exports or prefix.");
  }
}

void read_paths(Checker& check, const toml::table& table, const KeyRow& row, segment::UpstreamConfig& out) {
  const toml::node* const node = check.take(table, row.name);
  if (node == nullptr) return;
  const toml::array* const list = node->as_array();
  if (list == nullptr || list->size() > out.exports.size())
    return check.defect(node->source(), "exports has to be a list of at most " +
                                            std::to_string(out.exports.size()) + " paths.");
  for (const toml::node& item : *list) {
    const auto text = item.value_exact<std::string>();
    if (!text || !is_plain_path(*text) || has_odd_part(*text) || text->size() >= segment::kMaxPathBytes) {
      check.defect(item.source(), "exports takes paths of the upstream such as \"/vol1\", of at most " +
                                      std::to_string(segment::kMaxPathBytes - 1) + " bytes.");
      continue;
    }
    std::memcpy(out.exports[out.export_count++].data(), text->c_str(), text->size() + 1);
  }
}

void read_prefix(Checker& check, const toml::table& table, const KeyRow& row, segment::UpstreamConfig& out) {
  std::string prefix;
  check.text(table, row.name, prefix, segment::kMaxPathBytes - 1);
  if (!prefix.empty() && (!is_plain_path(prefix) || prefix == "/"))
    return check.defect(table.get(row.name)->source(), "prefix has to be a path such as \"/nas1\".");
  std::memcpy(out.prefix, prefix.c_str(), prefix.size() + 1);
}

void check_own_exports(Checker& check, const toml::table& table, segment::UpstreamConfig& out) {
  if (out.export_count == 0 && out.prefix[0] == '\0') return;
  out.handle_tag = tag_of(out.name);
  const std::string what = "exports and prefix require an upstream ";
  if (!takes(out, kNfs3)) check.defect(table.source(), what + "whose programs include \"nfs3\".");
  if (out.transport == segment::Transport::Rdma)
    check.defect(table.source(), what + "over TCP. Remove them, or transport = \"rdma\".");
  for (std::uint32_t r = 0; r < out.route_count; ++r)
    if (passes_handles(out.routes[r]))
      check.defect(table.source(),
                   what +
                       "that serves no other program with file handles of version 2 or 3 than nfs3 and "
                       "nfsacl3. Remove " +
                       to_text(out.routes[r]) + " from programs.");
}

void check_beside(Checker& check, const toml::source_region& where, const segment::UpstreamConfig& other,
                  const segment::UpstreamConfig& entry) {
  if (other.listen_port != entry.listen_port) return;
  const std::string its_name = "upstream '" + std::string(other.name) + "'";
  const bool both_by_export = other.handle_tag != 0 && entry.handle_tag != 0;
  for (std::uint32_t r = 0; r < entry.route_count; ++r) {
    const segment::RouteConfig& route = entry.routes[r];
    const bool shared = is_same(route, kNfs3) || is_same(route, kNfsAcl3);
    if (!takes(other, route) || (shared && both_by_export)) continue;
    check.defect(where,
                 its_name + " has " + to_text(route) + " already" +
                     (shared ? ". Several upstreams may have it if each has exports or a prefix."
                             : ". Several upstreams may have it if each has a listen_port of its own."));
  }
  if (!both_by_export) return;
  if (takes(other, kNfsAcl3) != takes(entry, kNfsAcl3))
    check.defect(where,
                 "nfsacl3 has to be in programs of all upstreams with exports or prefix, or of none. It is "
                 "in those of " +
                     (takes(entry, kNfsAcl3) ? "this one" : its_name) + " only.");
  if (other.handle_tag == entry.handle_tag)
    check.defect(
        where, "The name has the same tag in file handles as that of " + its_name + ". Choose another name.");
  for (const std::string& mine : roots_of(entry))
    for (const std::string& its : roots_of(other))
      if (is_at_or_below(mine, its) || is_at_or_below(its, mine))
        check.defect(where, std::string("Clients would find ")
                                .append(its)
                                .append(" of ")
                                .append(its_name)
                                .append(" and ")
                                .append(mine)
                                .append(" of this one at the same path. Give one of them a prefix."));
}

const segment::UpstreamConfig* upstream_named(const segment::ConfigBlock& block, std::string_view name) {
  for (std::uint32_t i = 0; i < block.upstream_count; ++i)
    if (block.upstreams[i].name == name) return &block.upstreams[i];
  return nullptr;
}

namespace {

/// Returns whether both upstreams have services that clients would find at the same place.
bool clash(const segment::UpstreamConfig& one, const segment::UpstreamConfig& other) {
  if (one.listen_port != other.listen_port) return false;
  for (std::uint32_t r = 0; r < one.route_count; ++r) {
    const segment::RouteConfig& route = one.routes[r];
    const bool shared = is_same(route, kNfs3) || is_same(route, kNfsAcl3);
    const bool by_tags =
        shared && one.handle_tag != 0 && other.handle_tag != 0 && one.handle_tag != other.handle_tag;
    if (takes(other, route) && !by_tags) return true;
  }
  return false;
}

bool is_unchanged(const segment::UpstreamConfig& now, const segment::UpstreamConfig& then) {
  return now.removed == 0 && describe_entry(now) == describe_entry(then);
}

/// Returns the slot for an upstream that the running data plane does not serve yet, or null if none is left.
/// A removed upstream that clients would find at the same place gives its slot. Otherwise a free slot is
/// used, and then that of the upstream that was removed first.
PlannedSlot* slot_for(std::vector<PlannedSlot>& slots, const segment::UpstreamConfig& entry,
                      const segment::ConfigBlock& next) {
  constexpr std::uint32_t kNow = ~std::uint32_t{0};
  PlannedSlot* free = nullptr;
  PlannedSlot* first_removed = nullptr;
  const auto since = [](const PlannedSlot& slot) {
    return slot.now->removed != 0 ? slot.now->removed : kNow;
  };
  for (PlannedSlot& slot : slots) {
    if (slot.then != nullptr) continue;
    if (slot.now == nullptr) {
      if (free == nullptr) free = &slot;
    } else if (upstream_named(next, slot.now->name) == nullptr) {
      if (clash(*slot.now, entry)) return &slot;
      if (first_removed == nullptr || since(slot) < since(*first_removed)) first_removed = &slot;
    }
  }
  return free != nullptr ? free : first_removed;
}

/// Leaves the slot with its upstream until the next start.
void postpone(UpstreamPlan& plan, PlannedSlot& slot) {
  plan.later.emplace_back(slot.then->name);
  slot.then = nullptr;
}

/// Postpones the last changes to RDMA for which the data plane has nothing left.
void bound_over_rdma(UpstreamPlan& plan, const segment::UpstreamSlots& made) {
  const auto over_rdma = [](const segment::UpstreamConfig* upstream) {
    return upstream != nullptr && upstream->transport == segment::Transport::Rdma;
  };
  auto count = std::count_if(plan.slots.begin(), plan.slots.end(),
                             [&](const PlannedSlot& slot) { return over_rdma(slot.served()); });
  for (auto slot = plan.slots.rbegin(); slot != plan.slots.rend() && count > made.over_rdma; ++slot) {
    if (!over_rdma(slot->then) || over_rdma(slot->now)) continue;
    postpone(plan, *slot);
    --count;
  }
}

/// Postpones changes to a place where clients find an upstream that stays.
void postpone_clashes(UpstreamPlan& plan) {
  const auto clashes = [&](const PlannedSlot& slot) {
    return slot.then != nullptr &&
           std::any_of(plan.slots.begin(), plan.slots.end(), [&](const PlannedSlot& other) {
             return &other != &slot && other.served() != nullptr && clash(*slot.then, *other.served());
           });
  };
  for (auto at = plan.slots.begin();
       (at = std::find_if(plan.slots.begin(), plan.slots.end(), clashes)) != plan.slots.end();)
    postpone(plan, *at);
}

}  // namespace

UpstreamPlan plan_upstreams(const segment::ConfigBlock& running, const segment::ConfigBlock& next,
                            const segment::UpstreamPlaces& places) {
  UpstreamPlan plan;
  for (std::uint32_t i = 0; i < running.upstream_count; ++i) {
    const segment::UpstreamConfig& now = running.upstreams[i];
    const segment::UpstreamConfig* const then = upstream_named(next, now.name);
    plan.slots.push_back({.now = &now, .then = then});
    if (then != nullptr && !is_unchanged(now, *then) && !segment::may_serve(running, *then))
      postpone(plan, plan.slots.back());
  }
  plan.slots.resize(std::max<std::size_t>(plan.slots.size(), std::min(running.slots().count, places.count)));
  for (std::uint32_t i = 0; i < next.upstream_count; ++i) {
    const segment::UpstreamConfig& entry = next.upstreams[i];
    if (upstream_named(running, entry.name) != nullptr) continue;
    PlannedSlot* const slot =
        places.count > 0 && segment::may_serve(running, entry) ? slot_for(plan.slots, entry, next) : nullptr;
    if (slot != nullptr)
      slot->then = &entry;
    else
      plan.later.emplace_back(entry.name);
  }
  bound_over_rdma(plan, running.slots());
  postpone_clashes(plan);
  return plan;
}

}  // namespace sluice::config
