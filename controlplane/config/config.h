// SPDX-License-Identifier: Apache-2.0
//
// The configuration file: one TOML file for both planes, checked as a whole before anything starts.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

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
  std::string admin_socket = "/run/sluice/admin.sock";
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
  std::uint32_t max_connections_per_client = 16;
  std::uint32_t max_connection_requests_per_second = 200;
};

/// The built-in defaults: one export /export, served from memory.
Config defaults();
/// Throws ConfigError.
Config load_file(const std::string& path);
Config parse(const std::string& text, const std::string& name);

}  // namespace sluice::config
