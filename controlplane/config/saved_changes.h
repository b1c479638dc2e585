// SPDX-License-Identifier: Apache-2.0
//
// Changes that 'sluicectl ... --save' preserves over restarts. They are stored in the file that the key
// saved_changes names, which is read after the configuration. The control plane rewrites the file as a whole;
// administrators may edit it. System calls may block on a disk.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

struct Config;

struct SavedChanges {
  std::vector<segment::ExportConfig> exports;  ///< exports to add to the configured ones or to replace
  std::vector<std::string> removed_exports;    ///< paths of the configuration that are not exported
  bool drain = false;                          ///< true to drain from the start on
};

struct RemovedExport {
  std::string path;
};
struct Drain {
  bool on = false;
};
/// A change by an administrator. An export is added, or replaces the export with its path.
using Change = std::variant<segment::ExportConfig, RemovedExport, Drain>;

/// Adds the saved changes in `text` to `config`, which names their file. Throws ConfigError with all defects
/// of the file.
void add_saved_changes(Config& config, const std::string& text, const std::string& name);
/// Calls add_saved_changes() with the file that `config` names, if it exists. Throws std::runtime_error.
void load_saved_changes(Config& config);
/// Saves one more change and returns all saved changes. Reads the file of `running` again, because the
/// configuration and the saved changes together must be valid for a start. Throws std::runtime_error; the
/// file is unchanged in this case.
SavedChanges save_change(const Change& change, const Config& running);

/// Formats the file that add_saved_changes() reads.
std::string to_toml(const SavedChanges& saved);
/// Describes the saved changes; exports are listed by their paths.
Json describe(const SavedChanges& saved);

}  // namespace sluice::config
