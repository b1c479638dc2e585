// SPDX-License-Identifier: Apache-2.0
//
// The [[upstream]] tables of the configuration. Setup; one thread.
#pragma once

#include "controlplane/json/json.h"
#include "dataplane/segment/config_block.h"

namespace sluice::config {

/// At RPC-over-RDMA servers, limited by the memory windows of a device: each call takes two.
inline constexpr std::uint32_t kMaxCallsToServers = 2048;

/// The upstream that `route` is forwarded to for clients at the gateway's own port; null when there is none. Points into
/// `block`.
const segment::UpstreamConfig* upstream_of(const segment::ConfigBlock& block,
                                           const segment::RouteConfig& route);
/// Whether NFS version 3 is served from the exports in memory.
bool serves_exports(const segment::ConfigBlock& block);
/// The same, without regard to [reverse].
bool serves_exports_beside_upstreams(const segment::ConfigBlock& block);
Json describe_upstreams(const segment::ConfigBlock& block);

}  // namespace sluice::config
