// SPDX-License-Identifier: Apache-2.0
//
// A configuration as JSON. Pure; any thread.
#pragma once

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::config {

/// Every key with its value, nested as in the file.
Json describe(const Config& config);

}  // namespace sluice::config
