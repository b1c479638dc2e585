// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "controlplane/properties/host_handshake.h"

namespace sluice::config {
struct Config;
}

namespace sluice::properties {

/// With the keys as they are in their files now; null where the configuration has no method. It waits for the files. Any
/// thread. Throws config::ConfigError.
std::unique_ptr<HostAuthentication> configured_authentication(const config::Config& config);

}  // namespace sluice::properties
