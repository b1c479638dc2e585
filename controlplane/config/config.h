// SPDX-License-Identifier: Apache-2.0
//
// The configuration: one TOML file for both planes, checked as a whole before anything starts.
// Values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "controlplane/config/saved_changes.h"
#include "controlplane/policy/client_classes.h"
#include "controlplane/policy/credit_settings.h"
#include "controlplane/policy/verdict.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Defects of a file: a line for each, with file, line number and a sentence that says what is allowed.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A host that may authenticate itself.
struct HostEntry {
  std::string name;
  std::vector<std::string> key_files;  ///< any of them is accepted
  std::string client_class{};          ///< of its connections; empty: that of their address
};

struct Config {
  segment::ConfigBlock block;  ///< the part that the data plane reads

  std::string segment = "sluice";
  std::string file{};  ///< absolute path; empty: built-in defaults
  /// Names of the keys in the file: "table.key", and "export./path.key" or "client_class.name.key" for entries of lists. The
  /// name of an empty list is among them. Sorted.
  std::vector<std::string> named{};
  std::string notes{};          ///< what a data plane like this process would refuse; a line each
  std::string saved_changes{};  ///< file of what is saved; empty: none
  SavedChanges saved{};         ///< its content, which `block` has, too
  std::string admin_socket = "/run/sluice/admin.sock";
  std::string admin_change_group{};                ///< access to all methods, as root has
  std::string admin_read_group{};                  ///< read access; empty: none
  std::string metrics_address = "127.0.0.1:9464";  ///< empty: no exporter
  std::string page_address{};                      ///< of the status page: "127.0.0.1:9465"; empty: none
  bool page_allow_remote = false;
  std::string page_name{};  ///< that browsers may come by, besides addresses and localhost; empty: none
  std::string log_level = "info";
  std::string events_file{};  ///< of JSON lines; empty: none
  bool events_journald = false;
  bool mount_enabled = true;
  std::uint16_t mount_port = 20048;
  bool mount_rpcbind = true;
  bool kerberos_enabled = false;
  std::uint16_t kerberos_port = 2049;
  bool locks_enabled = false;
  std::uint16_t locks_port = 20050;  ///< zero: any
  bool locks_rpcbind = true;
  std::string locks_name{};                    ///< caller_name at the upstream; empty: the host's name
  std::string locks_state{};                   ///< file that locks are recorded in; empty: none
  std::string authentication_method = "none";  ///< of hosts, in version 2
  bool authentication_required = false;
  std::vector<HostEntry> authentication_hosts;
  std::string authentication_name = "sluice";  ///< ours
  std::uint32_t authentication_timeout_s = 10;

  // Policy.
  std::vector<policy::ClientClass> classes{1};  ///< the first is "default"
  std::uint64_t policy_slots = 0;               ///< call slots to divide, per reactor; zero: all
  std::uint32_t policy_idle_s = 30;
  std::uint32_t policy_interval_ms = 500;
  std::uint32_t max_connections = 0;  ///< in total; zero: as many as there is room for
  std::uint32_t max_requests_per_second = 200;
  std::uint32_t max_requests_per_second_per_client = 50;

  /// Returns whether the file has this key (see `named`).
  bool has_key(const std::string& name) const;
  policy::CreditSettings credit_settings() const;
  policy::AdmissionLimits admission_limits() const;
};

/// Number of the class that the entry names; none if it names none.
std::optional<std::uint32_t> class_of_host(const Config& config, const HostEntry& host);
/// Null when the name is not configured.
const HostEntry* find_host(const Config& config, std::string_view name);
/// Sets the members of `block` that follow from the others: classes and log level.
void fill_derived(Config& config);
/// Returns what holds without a file: every key has its default value, and nothing is exported or forwarded.
Config defaults();
/// Checks what a start of either plane on this machine would refuse, and an export whose table was cut. Throws ConfigError.
void check_for_start(Config& config);
/// Reads a file for a start or a reload: check_for_start(), and with what is saved. Throws ConfigError, with all defects of the file.
Config load_file(const std::string& path);
/// Without what is saved.
Config parse(const std::string& text, const std::string& name);
/// `text` is one table [[export]]; the hosts that it names have to be those of `running`. Throws ConfigError.
segment::ExportConfig parse_export(const std::string& text, const Config& running);

}  // namespace sluice::config
