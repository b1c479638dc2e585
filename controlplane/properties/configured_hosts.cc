// SPDX-License-Identifier: Apache-2.0
#include "controlplane/properties/configured_hosts.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "controlplane/properties/key_file.h"
#include "controlplane/properties/psk.h"

namespace sluice::properties {

std::unique_ptr<HostAuthentication> configured_authentication(const config::Config& config) {
  if (config.authentication_method == "none") return nullptr;
  try {
    PskHosts hosts;
    for (const config::HostEntry& host : config.authentication_hosts)
      for (const std::string& file : host.key_files) hosts[host.name].push_back(read_key_file(file));
    return std::make_unique<PskAuthentication>(config.authentication_name, std::move(hosts));
  } catch (const std::runtime_error& error) {
    throw config::ConfigError(std::string(error.what()) + '\n');
  }
}

}  // namespace sluice::properties
