// SPDX-License-Identifier: Apache-2.0
//
// The [[upstream]] tables of the configuration. Used at setup; single-threaded.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// Limit of concurrent calls to RPC-over-RDMA servers. Each call takes two memory windows, whose number a
/// device limits.
inline constexpr std::uint32_t kMaxCallsToServers = 2048;

/// Returns the upstream to which `route` is forwarded for clients of the gateway's own port, or null. Points
/// into `block`.
const segment::UpstreamConfig* upstream_of(const segment::ConfigBlock& block,
                                           const segment::RouteConfig& route);
/// Returns true if NFS version 3 is served from the exports in memory.
bool serves_exports(const segment::ConfigBlock& block);
/// Returns true if NFS version 3 is served from the exports in memory when [reverse] is ignored.
bool serves_exports_beside_upstreams(const segment::ConfigBlock& block);
Json describe_upstreams(const segment::ConfigBlock& block);

}  // namespace sluice::config
