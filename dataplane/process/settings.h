// SPDX-License-Identifier: Apache-2.0
//
// What the published configuration means to each part of the data plane. Pure functions; any thread, setup.
// Throw SetupError for a pool that is too small for any call.
#pragma once

#include <vector>

#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/tcp_clients/ingress.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/engine_settings.h"
#include "dataplane/reactor/config.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/config_block.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/memory/memory_service.h"

namespace sluice::process {

/// By their numbers, up to the last that is in use: the number is part of file handles.
std::vector<service::memory::ExportOptions> export_options(const segment::ConfigBlock& config);
service::memory::MemoryServiceConfig memory_config(const segment::ConfigBlock& config);
reactor::ReactorConfig reactor_config(const segment::ConfigBlock& config, std::uint32_t number);
reactor::DialConfig dial_config(const segment::ConfigBlock& config);
tcp_clients::IngressConfig ingress_config(const segment::ConfigBlock& config);
/// Null without the reverse gateway.
Owned<tcp_clients::Listener> make_listener(const segment::ConfigBlock& config);
/// By number of the upstream, spare ones included, for all reactors; null for those over RDMA.
tcp_upstream::RequestCaches request_caches(const segment::ConfigBlock& config);
struct RelaySetup {
  rdma_upstream::RelayConfig config;
  /// At which its services are by themselves; zero: they are with the others. service::kNoPort: it is spare.
  std::uint32_t listen_port = 0;
  segment::UpstreamArea* area = nullptr;  ///< outlives the relay
};
/// The upstreams that are reached over RDMA, and behind them the spare ones if these are, for the reactor of `area`. `addresses`
/// and the area outlive them.
std::vector<RelaySetup> relays_config(const segment::ConfigBlock& config, segment::ReactorArea& area,
                                      const segment::SharedUpstreamAddresses& addresses);
/// The others, and behind them the spare ones if these are reached over TCP, for the reactor of `area`. `addresses` and the area
/// outlive the upstreams.
tcp_upstream::UpstreamsConfig upstreams_config(const segment::ConfigBlock& config, segment::ReactorArea& area,
                                               const segment::SharedUpstreamAddresses& addresses,
                                               const tcp_upstream::RequestCaches& caches);

}  // namespace sluice::process
