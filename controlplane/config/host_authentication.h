// SPDX-License-Identifier: Apache-2.0
//
// The [host_authentication] table of the configuration, with its [[host_authentication.host]] entries. Used
// at setup and reload; single-threaded.
#pragma once

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::config {

/// Describes the [[host_authentication.host]] entries.
Json describe_hosts(const Config& config);

}  // namespace sluice::config
