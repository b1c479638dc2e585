// SPDX-License-Identifier: Apache-2.0
//
// Limits of the agent, derived from the configured numbers of connections. Pure functions; any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "controlplane/cm/agent.h"

namespace sluice::cm {

/// Minimum number of half-open slots for one source, and for all others beside a source that has used up its
/// share.
inline constexpr std::uint32_t kLeastHalfOpen = 8;

/// Sets the limits for `connections` connections of all reactors, of which one client may have `per_client`.
/// The table has twice this number of slots, because connections that have ended stay in it for some seconds.
inline AgentConfig with_limits(AgentConfig config, std::uint32_t connections, std::uint32_t per_client) {
  config.max_connections = 2 * connections;
  // Each unconfirmed request holds a queue pair, so at most half of the slots are for unconfirmed requests. A
  // client may open all of its connections at the same time (nconnect), and leaves kLeastHalfOpen slots to
  // other clients.
  const std::uint32_t of_source = std::min(per_client, connections);
  config.max_half_open = std::max(std::clamp(connections / 2, kLeastHalfOpen, AgentConfig{}.max_half_open),
                                  of_source + kLeastHalfOpen);
  config.max_half_open_per_source = std::max({config.max_half_open / 2, kLeastHalfOpen, of_source});
  // A client may close all of its connections at the same time.
  config.max_ended_per_source = std::max(connections / 2, per_client);
  return config;
}

}  // namespace sluice::cm
