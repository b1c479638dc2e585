// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "controlplane/config/keys.h"
#include "controlplane/config/readers.h"
#include "controlplane/config/upstreams.h"
#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/text_file.h"
#include "dataplane/log/log.h"

namespace sluice::config {
namespace {

using Exports = std::vector<segment::ExportConfig>;

constexpr const char* kFirstLine =
    "# Written by sluice-controlplane for 'sluicectl ... --save'. Edit it if you like: comments are lost "
    "with the next "
    "change.\n";

Exports exports_of(const segment::ConfigBlock& block) {
  Exports exports;
  for (const segment::ExportConfig& entry : block.exports)
    if (entry.in_use != 0) exports.push_back(entry);
  return exports;
}

bool has_path(const Exports& exports, std::string_view path) {
  return has_match(exports, [&](const segment::ExportConfig& entry) { return path == entry.path; });
}

void erase_path(Exports& exports, std::string_view path) {
  std::erase_if(exports, [&](const segment::ExportConfig& entry) { return path == entry.path; });
}

toml::table parse_saved(const std::string& text, const std::string& name) {
  try {
    return parse_toml(text, name);
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    throw ConfigError(what.substr(0, what.find_last_not_of('\n') + 1) +
                      " Correct this line, or move the file away, which discards what was saved.\n");
  }
}

void read_removed(Checker& check, const toml::table& root, SavedChanges& saved) {
  const toml::node* node = check.take(root, "removed_exports");
  if (node == nullptr) return;
  const toml::array* list = node->as_array();
  if (list == nullptr)
    return check.defect(node->source(), "removed_exports has to be a list of paths, as in [\"/export\"].");
  for (const toml::node& item : *list) {
    const std::string path = item.value_exact<std::string>().value_or("");
    if (!path.starts_with('/'))
      check.defect(item.source(), "removed_exports takes paths of exports, which start with '/'.");
    else if (has_path(saved.exports, path))
      check.defect(item.source(), "There is an [[export]] with path '" + path +
                                      "' in this file, too. Remove it from one of the two.");
    saved.removed_exports.push_back(path);
  }
}

/// Merges saved exports into `block`, which contains the configured exports.
void merge_exports(Checker& check, const toml::table& root, const SavedChanges& saved,
                   segment::ConfigBlock& block) {
  if (!serves_exports(block)) {
    if (!saved.exports.empty())
      check.defect(root["export"].node()->source(),
                   "NFS version 3 is forwarded to another server. Remove the exports here.");
    return;
  }
  Exports merged = exports_of(block);
  for (const std::string& path : saved.removed_exports) erase_path(merged, path);
  for (const segment::ExportConfig& entry : saved.exports) erase_path(merged, entry.path);
  for (std::size_t i = 0; i < saved.exports.size(); ++i)
    for (const segment::ExportConfig& other : merged)
      if (overlap(saved.exports[i].path, other.path))
        check.defect(root["export"][i].node()->source(), overlap_defect(saved.exports[i].path, other.path));
  merged.insert(merged.end(), saved.exports.begin(), saved.exports.end());
  if (merged.size() > block.exports.size())
    return check.defect(root["export"].node()->source(),
                        "Together with those of the configuration there are " +
                            std::to_string(merged.size()) + " exports. Remove some, because the limit is " +
                            std::to_string(block.exports.size()) + ".");
  block.exports = {};
  for (std::size_t i = 0; i < merged.size(); ++i) block.exports[i] = merged[i];
}

void apply(SavedChanges& saved, const segment::ExportConfig& entry, const Exports&) {
  std::erase(saved.removed_exports, entry.path);
  erase_path(saved.exports, entry.path);
  saved.exports.push_back(entry);
}

void apply(SavedChanges& saved, const RemovedExport& removed, const Exports& configured) {
  erase_path(saved.exports, removed.path);
  std::erase(saved.removed_exports, removed.path);
  if (has_path(configured, removed.path)) saved.removed_exports.push_back(removed.path);
}

void apply(SavedChanges& saved, const Drain& drain, const Exports&) {
  saved.drain = drain.on;
}

/// Throws ConfigError if a removed export is neither in the configuration nor in force.
void check_known(const Change& change, const Config& whole, const Config& running) {
  const auto* const removed = std::get_if<RemovedExport>(&change);
  if (removed == nullptr || has_path(exports_of(whole.block), removed->path) ||
      has_path(exports_of(running.block), removed->path))
    return;
  throw ConfigError("There is no export '" + removed->path + "'. 'sluicectl exports' lists the exports.");
}

mode_t mode_of(const std::string& path) {
  struct stat found {};
  return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 0666 : 0600;
}

toml::table to_toml(const Json& object) {
  toml::table table;
  for (const auto& [key, value] : object.items()) {
    if (value.is_boolean()) {
      table.insert(key, value.get<bool>());
    } else if (value.is_number()) {
      table.insert(key, value.get<std::int64_t>());
    } else if (value.is_string()) {
      table.insert(key, value.get<std::string>());
    } else {
      toml::array list;
      for (const auto& item : value) list.push_back(item.get<std::string>());
      table.insert(key, std::move(list));
    }
  }
  return table;
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t bytes = ::write(fd, text.data(), text.size());
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(bytes));
  }
  return true;
}

bool write_new(const std::string& path, const std::string& text, mode_t mode) {
  // Removes the file of a process that was killed. The name may lead to another file by now.
  ::unlink(path.c_str());
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  return file && ::fchmod(file.get(), mode) == 0 && write_all(file.get(), text) && ::fsync(file.get()) == 0;
}

/// Writes `text` to a new file in the same folder, with the suffix ".new", and renames it to `path`. A reader
/// finds either the old or the new text, also after a power failure. Blocks on the disk. Throws
/// std::runtime_error with a sentence.
void replace_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string fresh = path + ".new";
  const std::string folder = path.substr(0, larger_of(path.rfind('/'), std::size_t{1}));  // "/" of "/file"
  const FileDescriptor in(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (in && write_new(fresh, text, mode) && ::rename(fresh.c_str(), path.c_str()) == 0) {
    // The file has been replaced, so this failure must not be reported as if the old text were still there.
    if (::fsync(in.get()) != 0)
      log::warn("{} is written, but its folder may not be on the disk ({}). Check the disk, and save again",
                path, std::strerror(errno));
    return;
  }
  const int error = errno;
  if (in) ::unlink(fresh.c_str());
  throw std::runtime_error("Cannot write " + path + " (" + std::strerror(error) +
                           "). Let the control plane's user write to " + folder + ", and free space there.");
}

}  // namespace

void add_saved_changes(Config& config, const std::string& text, const std::string& name) {
  const toml::table root = parse_saved(text, name);
  Checker check(name);
  SavedChanges saved;
  check.boolean(root, "drain", saved.drain);
  segment::ConfigBlock own;
  read_exports(check, root, own);
  check_export_hosts(check, root, own, config);
  saved.exports = exports_of(own);
  read_removed(check, root, saved);
  merge_exports(check, root, saved, config.block);
  check.finish();
  config.saved = std::move(saved);
}

void load_saved_changes(Config& config) {
  const std::string& path = config.saved_changes;
  struct stat ignored {};
  if (path.empty() || (::stat(path.c_str(), &ignored) != 0 && errno == ENOENT)) return;
  add_saved_changes(config, read_text_file(path), path);
}

SavedChanges save_change(const Change& change, const Config& running) {
  Config configured = parse(read_text_file(running.file), running.file);
  if (configured.saved_changes != running.saved_changes)
    throw ConfigError("The key saved_changes in " + running.file +
                      " has changed since it was read. Run 'sluicectl config reload' to apply it.");
  Config whole = configured;
  load_saved_changes(whole);
  check_known(change, whole, running);
  SavedChanges saved = whole.saved;
  std::visit([&](const auto& one) { apply(saved, one, exports_of(configured.block)); }, change);
  const std::string text = to_toml(saved);
  if (text == to_toml(whole.saved)) return saved;
  add_saved_changes(configured, text, running.saved_changes);
  replace_file(running.saved_changes, text, mode_of(running.file));
  return saved;
}

std::string to_toml(const SavedChanges& saved) {
  toml::table root;
  if (saved.drain) root.insert("drain", true);
  if (!saved.removed_exports.empty()) {
    toml::array paths;
    for (const std::string& path : saved.removed_exports) paths.push_back(path);
    root.insert("removed_exports", std::move(paths));
  }
  if (!saved.exports.empty()) {
    toml::array tables;
    for (const segment::ExportConfig& entry : saved.exports) tables.push_back(to_toml(describe_entry(entry)));
    root.insert("export", std::move(tables));
  }
  std::ostringstream text;
  text << kFirstLine << root << '\n';
  return text.str();
}

Json describe(const SavedChanges& saved) {
  Json paths = Json::array();
  for (const segment::ExportConfig& entry : saved.exports) paths.push_back(entry.path);
  return {{"drain", saved.drain}, {"export", paths}, {"removed_exports", saved.removed_exports}};
}

}  // namespace sluice::config
