// SPDX-License-Identifier: Apache-2.0
//
// The configuration file: one TOML file for both planes, checked as a whole before anything starts.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "controlplane/policy/admission.h"
#include "controlplane/policy/client_classes.h"
#include "controlplane/policy/credit_settings.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// What is wrong with a file: one sentence per defect, each with file and line.
class ConfigError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Config {
  segment::ConfigBlock block;  ///< what the data plane gets
  bool choose_cpus = true;     ///< reactor.cpus is not given: the topology decides

  std::string segment = "sluice";
  std::string file{};  ///< it was read from; empty: built-in defaults
  std::string admin_socket = "/run/sluice/admin.sock";
  std::string admin_change_group{};                ///< may do everything; root always may
  std::string admin_read_group{};                  ///< may look; empty: nobody
  std::string metrics_address = "127.0.0.1:9464";  ///< empty: no exporter
  std::string log_level = "info";
  bool mount_enabled = true;
  std::uint16_t mount_port = 20048;
  bool mount_rpcbind = true;
  std::string authentication_method = "none";  ///< of hosts, in version 2
  bool authentication_required = false;
  std::string authentication_key_file;
  std::string authentication_name = "sluice";  ///< ours
  std::uint32_t authentication_timeout_s = 10;

  // Policy.
  std::vector<policy::ClientClass> classes{1};  ///< the first is "default"
  std::uint64_t policy_slots = 0;               ///< of one reactor; zero: all there are
  std::uint32_t policy_idle_s = 30;
  std::uint32_t policy_interval_ms = 500;
  std::uint32_t max_connections = 0;  ///< in all; zero: all there is room for
  std::uint32_t max_requests_per_second = 200;
  std::uint32_t max_requests_per_second_per_client = 50;

  policy::CreditSettings credit_settings() const;
  policy::AdmissionLimits admission_limits() const;
};

/// What the data plane's block says of classes and log level follows from the rest.
void fill_derived(Config& config);
/// The built-in defaults: one export /export, served from memory.
Config defaults();
/// Throws ConfigError.
Config load_file(const std::string& path);
Config parse(const std::string& text, const std::string& name);

}  // namespace sluice::config
