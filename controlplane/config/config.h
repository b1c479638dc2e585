// SPDX-License-Identifier: Apache-2.0
//
// The configuration: one TOML file for both planes, which is checked as a whole before anything starts, and
// the file of saved changes, which is read after it. Value types; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "controlplane/json/json.h"
#include "controlplane/policy/credit_policy.h"
#include "controlplane/policy/verdicts.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

struct Config;

/// Changes that 'sluicectl ... --save' preserves over restarts. They are stored in the file that the key
/// saved_changes names, which is read after the configuration. The control plane rewrites the file as a
/// whole; administrators may edit it.
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

/// Defects of a file, one line each, with file, line number and a sentence that states what is allowed.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A host that may authenticate itself.
struct HostEntry {
  std::string name;
  std::vector<std::string> key_files;  ///< any of these keys is accepted
  std::string client_class{};          ///< class of the connections; empty for the address's class
};

struct Config {
  segment::ConfigBlock block;  ///< part that the data plane reads

  std::string segment = "sluice";
  std::string file{};  ///< absolute path; empty for the built-in defaults
  /// Names of the keys in the file, sorted: "table.key", and "export./path.key" or "client_class.name.key"
  /// for entries of lists. The name of an empty list is included.
  std::vector<std::string> named{};
  std::string notes{};          ///< settings with which a data plane in this process's environment would
                                ///< refuse to start; a line each
  std::string saved_changes{};  ///< file of saved changes; empty for none
  SavedChanges saved{};         ///< content of saved_changes; already merged into `block`
  std::string admin_socket = "/run/sluice/admin.sock";
  std::string admin_change_group{};                ///< group with access to all methods, like root
  std::string admin_read_group{};                  ///< group with read access; empty for none
  std::string metrics_address = "127.0.0.1:9464";  ///< empty disables the exporter
  std::string page_address{};                      ///< address of the status page, such as "127.0.0.1:9465";
                                                   ///< empty for none
  bool page_allow_remote = false;
  std::string page_name{};  ///< host name by which browsers may reach the page, besides addresses and
                            ///< localhost; empty for none
  std::string log_level = "info";
  std::string events_file{};  ///< file of JSON lines; empty for none
  bool events_journald = false;
  bool mount_enabled = true;
  std::uint16_t mount_port = 20048;
  bool mount_rpcbind = true;
  bool kerberos_enabled = false;
  std::uint16_t kerberos_port = 2049;
  bool locks_enabled = false;
  std::uint16_t locks_port = 20050;  ///< zero for any free port
  bool locks_rpcbind = true;
  std::string locks_name{};                    ///< caller_name at the upstream; empty for the host's name
  std::string locks_state{};                   ///< file in which locks are recorded; empty for none
  std::string authentication_method = "none";  ///< authentication method for hosts of version 2
  bool authentication_required = false;
  std::vector<HostEntry> authentication_hosts;
  std::string authentication_name = "sluice";  ///< the gateway's own name
  std::uint32_t authentication_timeout_s = 10;

  // Policy.
  std::vector<policy::ClientClass> classes{1};  ///< the first class is "default"
  std::uint64_t policy_slots = 0;               ///< call slots to divide per reactor; zero for all
  std::uint32_t policy_idle_s = 30;
  std::uint32_t policy_interval_ms = 500;
  std::uint32_t max_connections = 0;  ///< total limit; zero for the capacity of the tables
  std::uint32_t max_requests_per_second = 200;
  std::uint32_t max_requests_per_second_per_client = 50;

  /// Returns true if the file has this key (see `named`).
  bool has_key(const std::string& name) const;
  policy::CreditSettings credit_settings() const;
  policy::AdmissionLimits admission_limits() const;
};

/// Returns the number of the class that the entry names, or nothing if it names none.
std::optional<std::uint32_t> class_of_host(const Config& config, const HostEntry& host);
/// Returns null if the name is not configured.
const HostEntry* find_host(const Config& config, std::string_view name);
/// Sets the members of `block` that are derived from other members: classes and log level.
void fill_derived(Config& config);
/// Returns the configuration without a file: every key has its default value, and nothing is exported or
/// forwarded.
Config defaults();
/// Checks for conditions under which either plane would refuse to start on this machine, and for an export
/// whose table was truncated. Throws ConfigError.
void check_for_start(Config& config);
/// Reads a file and its saved changes for a start or a reload, and calls check_for_start(). Throws
/// ConfigError with all defects of the file.
Config load_file(const std::string& path);
/// Parses a configuration without its saved changes.
Config parse(const std::string& text, const std::string& name);
/// Parses `text`, which is one table [[export]]. The hosts that it names must be hosts of `running`. Throws
/// ConfigError.
segment::ExportConfig parse_export(const std::string& text, const Config& running);

}  // namespace sluice::config
