// SPDX-License-Identifier: Apache-2.0
//
// The [host_authentication] table of the configuration, with its [[host_authentication.host]] entries.
// Setup and reload; one thread.
#pragma once

#include <nlohmann/json.hpp>

#include "controlplane/config/checker.h"

namespace sluice::config {

/// Call after the client classes have been read. Defects go to `check`.
void read_host_authentication(Checker& check, const toml::table& root, Config& config);
nlohmann::json describe_host_authentication(const Config& config);

}  // namespace sluice::config
