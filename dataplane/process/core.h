// SPDX-License-Identifier: Apache-2.0
//
// One reactor with all that it polls. Made by the main thread; from run() on everything in it belongs to the
// reactor's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/gateway/rdma_upstream/relay.h"
#include "dataplane/gateway/tcp_clients/ingress.h"
#include "dataplane/gateway/tcp_upstream/upstreams.h"
#include "dataplane/process/devices.h"
#include "dataplane/reactor/reactor.h"
#include "dataplane/segment/segment.h"
#include "dataplane/service/api/null.h"

namespace sluice::process {

struct Core {
  /// What the cores of a process have in common.
  struct Shared {
    tcp_clients::Listener* listener = nullptr;  ///< null without the reverse gateway
    const tcp_upstream::RequestCaches& caches;  ///< of the upstreams; outlives the core
  };
  /// Setup; throws SetupError. `devices`, the listener, `layout` and what `clock` needs outlive the core.
  Core(const segment::ConfigBlock& config, std::uint32_t number, Devices& devices, const Shared& shared,
       segment::Layout& layout, Clock clock);

  /// Of the upstream with this number, for the main thread. Null: a reload does not change which upstream that is.
  tcp_upstream::UpstreamPlace* place(std::uint32_t upstream) const noexcept;

  // Built in order and destroyed in reverse.
  std::unique_ptr<rdma::Device> device;
  rpcrdma::Engine engine;
  service::NullService null;
  tcp_upstream::CreditLimits credits;                  ///< that upstreams leave to clients
  std::unique_ptr<tcp_upstream::Upstreams> upstreams;  ///< null without upstreams
  reactor::Reactor reactor;
  std::vector<std::unique_ptr<rdma_upstream::Relay>> relays;  ///< upstreams over RDMA
  std::unique_ptr<tcp_clients::Ingress> ingress;              ///< null without the reverse gateway
};

}  // namespace sluice::process
