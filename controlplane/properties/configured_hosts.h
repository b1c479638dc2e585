// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "controlplane/properties/host_handshake.h"

namespace sluice::config {
struct Config;
}

namespace sluice::properties {

/// Creates the configured authentication method with the current content of the key files. Returns null if
/// the configuration has no method. Blocks on file access. Any thread. Throws config::ConfigError.
std::unique_ptr<HostAuthentication> configured_authentication(const config::Config& config);

}  // namespace sluice::properties
