// SPDX-License-Identifier: Apache-2.0
//
// Limits of the agent that follow from the configured numbers of connections. Pure; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "controlplane/cm/agent.h"

namespace sluice::cm {

/// Fewest half-open places, whatever the configuration says.
inline constexpr std::uint32_t kLeastHalfOpen = 8;

/// Sets the limits for `connections` connections of all reactors, of which one client may have `per_client`. The table has
/// twice the places, because connections that have ended stay in it for some seconds.
inline AgentConfig with_limits(AgentConfig config, std::uint32_t connections, std::uint32_t per_client) {
  config.max_connections = 2 * connections;
  // A half-open connection has a queue pair: requests that are never confirmed hold half of the places at most.
  config.max_half_open = std::clamp(connections / 2, kLeastHalfOpen, AgentConfig{}.max_half_open);
  config.max_half_open_per_source = std::max(config.max_half_open / 2, kLeastHalfOpen);
  // A host that restarts ends all of its connections at once.
  config.max_ended_per_source = std::max(connections / 2, per_client);
  return config;
}

}  // namespace sluice::cm
