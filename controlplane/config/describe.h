// SPDX-License-Identifier: Apache-2.0
//
// A configuration as JSON. Pure function; any thread.
#pragma once

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"

namespace sluice::config {

/// Returns every key with its value, nested as in the file.
Json describe(const Config& config);

}  // namespace sluice::config
