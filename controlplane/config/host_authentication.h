// SPDX-License-Identifier: Apache-2.0
//
// The [host_authentication] table of the configuration, with its [[host_authentication.host]] entries. Used
// at setup and reload; single-threaded.
#pragma once

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::config {

Json describe_host_authentication(const Config& config);

}  // namespace sluice::config
