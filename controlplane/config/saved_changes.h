// SPDX-License-Identifier: Apache-2.0
//
// What 'sluicectl ... --save' keeps over restarts: a file that the key saved_changes names, read after the configuration.
// The control plane writes it as a whole; people may edit it. System calls that may wait for a disk.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

struct Config;

struct SavedChanges {
  std::vector<segment::ExportConfig> exports;  ///< beside those of the configuration, or in their place
  std::vector<std::string> removed_exports;    ///< paths of the configuration that are not exported
  bool drain = false;                          ///< from the start on
};

struct RemovedExport {
  std::string path;
};
struct Drain {
  bool on = false;
};
/// One that an administrator makes. An export is added, or takes the place of that with its path.
using Change = std::variant<segment::ExportConfig, RemovedExport, Drain>;

/// Adds what is kept in the file `text` to `config`, of which it is a part. Throws ConfigError with all defects of the file.
void add_saved_changes(Config& config, const std::string& text, const std::string& name);
/// The same with the file that `config` names, if there is one. Throws std::runtime_error.
void load_saved_changes(Config& config);
/// Keeps one more change, and returns all that are kept now. The file of `running` is read again: with what is kept, it has
/// to be a configuration that can be started. Throws std::runtime_error: the file stays as it was.
SavedChanges save_change(const Change& change, const Config& running);

/// The file that add_saved_changes() reads.
std::string to_toml(const SavedChanges& saved);
/// Exports by their paths.
Json describe(const SavedChanges& saved);

}  // namespace sluice::config
