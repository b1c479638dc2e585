// SPDX-License-Identifier: Apache-2.0
//
// The busiest connections and clients, for 'sluicectl top'. The control plane's thread.
#pragma once

#include <cstdint>

#include "controlplane/config/config.h"
#include "controlplane/json/json.h"
#include "controlplane/policy/client_monitor.h"

namespace sluice::admin {

/// Returns the sums of `round`, and at most `count` of its busiest connections and of its busiest clients.
Json busiest(const policy::Round& round, const config::Config& config, std::uint32_t count);

}  // namespace sluice::admin
