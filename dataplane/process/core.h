// SPDX-License-Identifier: Apache-2.0
//
// One reactor and everything that it polls. The main thread constructs it; after run() starts, everything in
// it belongs to the reactor's thread.
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
  /// Objects that all cores of a process share.
  struct Shared {
    tcp_clients::Listener* listener = nullptr;           ///< null without the reverse gateway
    const tcp_upstream::DuplicateRequestCaches& caches;  ///< caches of the upstreams; outlive the core
  };
  /// Builds a reactor at setup. Throws SetupError. `devices`, the listener, `layout` and the
  /// data that `clock` reads outlive the core.
  Core(const segment::ConfigBlock& config, std::uint32_t number, Devices& devices, const Shared& shared,
       segment::Layout& layout, Clock clock);

  /// Returns the slot of the upstream with this number, for the main thread; null if a reload cannot reassign
  /// the slot.
  tcp_upstream::UpstreamSlot* place(std::uint32_t upstream) const noexcept;

  // Built in order and destroyed in reverse.
  std::unique_ptr<rdma::Device> device;
  rpcrdma::Engine engine;
  service::NullService null;
  tcp_upstream::CreditLimits credits;                  ///< credit limits that upstreams set for clients
  std::unique_ptr<tcp_upstream::Upstreams> upstreams;  ///< null without upstreams
  reactor::Reactor reactor;
  std::vector<std::unique_ptr<rdma_upstream::Relay>> relays;  ///< upstreams over RDMA
  std::unique_ptr<tcp_clients::Ingress> ingress;              ///< null without the reverse gateway
};

}  // namespace sluice::process
