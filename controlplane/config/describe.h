// SPDX-License-Identifier: Apache-2.0
//
// A configuration as JSON. Pure; any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "controlplane/config/config.h"

namespace sluice::config {

/// Every key with its value, nested as in the file.
nlohmann::json describe(const Config& config);

}  // namespace sluice::config
