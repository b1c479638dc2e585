// SPDX-License-Identifier: Apache-2.0
//
// The configuration: one TOML file for both planes, with the files of its exports_directory, all of which are
// checked as a whole before anything starts. Value types; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controlplane/policy/credit_policy.h"
#include "controlplane/policy/verdicts.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

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
  /// Path of each export with the file that defines it.
  std::vector<std::pair<std::string, std::string>> export_files{};
  std::string notes{};              ///< settings with which a data plane in this process's environment would
                                    ///< refuse to start; a line each
  std::string exports_directory{};  ///< directory with files of further exports; empty for none
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
  /// Returns the file that defines the export; empty if none does.
  std::string file_of_export(const std::string& path) const;
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
/// Reads a file and its exports_directory for a start or a reload, and calls check_for_start(). Throws
/// ConfigError with all defects of the first step that finds any: the file, its directory, the machine.
Config load_file(const std::string& path);

/// A file of exports_directory, which consists of tables [[export]].
struct ExportFile {
  std::string name;  ///< path
  std::string text;
};
/// Parses a configuration with the files of its exports_directory, which have equal rank.
Config parse(const std::string& text, const std::string& name, std::span<const ExportFile> files = {});
/// Reads the files *.toml of a directory in the order of their names, except for hidden files. Returns none
/// if `directory` is empty. Throws std::runtime_error if the directory or one of the files cannot be read.
std::vector<ExportFile> read_export_files(const std::string& directory);
/// Writes the export to its own file in exports_directory, or removes this file if the entry is not in use.
/// Reads the files of `running` again, because all of them together must be valid for a start. Returns the
/// new configuration. Throws std::runtime_error, in particular if another file defines the export; the
/// directory is unchanged in this case.
Config save_export(const segment::ExportConfig& entry, const Config& running);
/// Parses `text`, which is one table [[export]]. The hosts that it names must be hosts of `running`. Throws
/// ConfigError.
segment::ExportConfig parse_export(const std::string& text, const Config& running);

}  // namespace sluice::config
