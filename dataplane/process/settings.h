// SPDX-License-Identifier: Apache-2.0
//
// Conversion of the published configuration to the settings of each part of the data plane. Pure functions;
// any thread, at setup. They throw SetupError if a pool is too small for any call.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/gateway/tcp_upstream/duplicate_request_cache.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/memory/exports.h"

// Complete where a setting is used.
namespace sluice::gateway {
struct UpstreamSettings;
}  // namespace sluice::gateway

namespace sluice::rdma_upstream {
struct RelayConfig;
}  // namespace sluice::rdma_upstream

namespace sluice::reactor {
struct DialConfig;
struct ReactorConfig;
}  // namespace sluice::reactor

namespace sluice::rpcrdma {
struct EngineConfig;
struct Version2Config;
}  // namespace sluice::rpcrdma

namespace sluice::service::memory {
struct MemoryServiceConfig;
}  // namespace sluice::service::memory

namespace sluice::tcp_clients {
class Listener;
struct ReverseGatewayConfig;
}  // namespace sluice::tcp_clients

namespace sluice::tcp_upstream {
struct UpstreamsConfig;
}  // namespace sluice::tcp_upstream

namespace sluice::process {

/// Returns the exports, indexed by their numbers, up to the last one in use. The number is part of file
/// handles.
std::vector<service::memory::ExportOptions> export_options(const segment::ConfigBlock& config);
service::memory::MemoryServiceConfig memory_config(const segment::ConfigBlock& config);
reactor::ReactorConfig reactor_config(const segment::ConfigBlock& config, std::uint32_t number);
reactor::DialConfig dial_config(const segment::ConfigBlock& config);
tcp_clients::ReverseGatewayConfig reverse_gateway_config(const segment::ConfigBlock& config);
/// Creates the listener of the reverse gateway; null without a reverse gateway.
Owned<tcp_clients::Listener> make_listener(const segment::ConfigBlock& config);
/// Creates the request caches of all reactors, indexed by upstream slot; none if no slot is for TCP.
tcp_upstream::DuplicateRequestCaches request_caches(const segment::ConfigBlock& config);
/// Returns the settings of an upstream.
gateway::UpstreamSettings upstream_settings(const segment::UpstreamConfig& from);
/// Returns the configuration of a relay, which serves the upstream of any slot over RDMA. `addresses` outlive
/// the relay.
rdma_upstream::RelayConfig relay_config(const segment::ConfigBlock& config,
                                        const segment::SharedUpstreamAddresses& addresses);
/// Returns the configuration of each slot over TCP, for the reactor of `area`. `addresses`, the area and the
/// caches outlive the upstreams.
tcp_upstream::UpstreamsConfig upstreams_config(const segment::ConfigBlock& config, segment::ReactorArea& area,
                                               const segment::SharedUpstreamAddresses& addresses,
                                               const tcp_upstream::DuplicateRequestCaches& caches);

rpcrdma::Version2Config version_2_config(const segment::ConfigBlock& config);
rpcrdma::EngineConfig engine_config(const segment::ConfigBlock& config);
/// Returns whether memory exports are served: not by the reverse gateway, and not if NFS 3 is forwarded to an
/// upstream.
bool serves_memory(const segment::ConfigBlock& config);
/// Returns the bytes reserved for the memory exports; a minimum if memory exports are not served.
std::uint64_t export_bytes(const segment::ConfigBlock& config);

}  // namespace sluice::process
