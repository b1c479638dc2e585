// SPDX-License-Identifier: Apache-2.0
//
// Shared by tests of host authentication.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "controlplane/properties/psk.h"

namespace sluice::properties {

using Octets = std::vector<std::byte>;

inline const std::string kKey = "a key of sixteen bytes or more";

inline PskKey key_of(const std::string& text) {
  return psk_key(std::as_bytes(std::span(text)));
}

inline PskClient client_of(const std::string& name, const std::string& key = kKey) {
  return PskClient(name, {key_of(key)});
}

/// Returns hosts with one key each.
inline PskHosts hosts_of(const std::vector<std::pair<std::string, std::string>>& keys) {
  PskHosts hosts;
  for (const auto& [name, key] : keys) hosts[name].push_back(key_of(key));
  return hosts;
}

inline PskServer server_of(PskHosts hosts, const std::string& name = "gateway") {
  return PskServer(name, std::make_shared<const PskHosts>(std::move(hosts)));
}

inline std::unique_ptr<HostAuthentication> authentication_of(PskHosts hosts) {
  return std::make_unique<PskAuthentication>("gateway", std::move(hosts));
}

}  // namespace sluice::properties
