// SPDX-License-Identifier: Apache-2.0
//
// All upstream servers of one reactor, and the services that forward calls to them. The constructor is setup;
// afterwards only the owning reactor may call.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/owned.h"
#include "dataplane/gateway/tcp_upstream/export_group.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/tcp_slot.h"
#include "dataplane/gateway/tcp_upstream/upstream.h"
#include "dataplane/service/api/service_ports.h"
#include "dataplane/tcp/uring.h"
#include "pmd/device.h"

namespace sluice::tcp_upstream {

using service::Route;

struct UpstreamSetup {
  UpstreamConfig config;
  std::uint32_t number = 0;  ///< number among all upstreams of the configuration
  std::vector<Route> routes;
  /// Port at which only the services of this upstream are available. Zero: they use the common ports.
  /// service::kNoPort, for a spare slot: its services that are not shared have no port until an upstream with
  /// its own port is assigned.
  std::uint32_t listen_port = 0;
  /// Counters in shared memory, which are reset at setup. The area outlives the upstream.
  segment::UpstreamArea* area = nullptr;
};

struct UpstreamsConfig {
  std::vector<UpstreamSetup> upstreams;
  UringFeatures uring = UringFeatures::all();  ///< features to use if the kernel supports them
  service::ServicePorts* ports = nullptr;      ///< assigns ports to spare slots; outlives the upstreams
};

class Upstreams final : public service::Poller {
 public:
  /// Setup. `device`, `credits` and `clock` outlive this object. Throws SetupError.
  Upstreams(rdma::Device& device, CreditLimits& credits, const UpstreamsConfig& config,
            std::uint64_t (*clock)() noexcept);

  struct Served {
    service::Service* service = nullptr;
    std::uint32_t port = 0;
  };
  /// Returns the services to add to the engine of the same reactor. This object owns them.
  const std::vector<Served>& services() const noexcept { return services_; }

  /// Returns the slot of the upstream with this number, for the main thread. Returns null if a reload cannot
  /// reassign the slot.
  UpstreamSlot* place(std::uint32_t number) const noexcept { return places_[number].get(); }

  bool poll(std::uint64_t now_ns) noexcept override;
  std::uint64_t held_bytes(std::uint16_t client) const noexcept override;

 private:
  static bool is_by_export(const UpstreamConfig& config, const Route& route);
  /// Creates the services of an upstream. Returns its slot, or null if the slot cannot be reassigned.
  Owned<TcpSlot> add_routes(Upstream& upstream, const UpstreamSetup& setup, service::ServicePorts* ports);
  ForwardService& add_shared(Upstream& upstream, const Route& route);
  ForwardService& add_alone(Upstream& upstream, const Route& route, std::uint32_t port);

  tcp::Uring uring_;
  IterationClock clock_;
  std::vector<Owned<Upstream>> upstreams_;
  std::array<Upstream*, segment::kMaxUpstreams> by_number_{};
  std::vector<Owned<ForwardService>> forwarding_;              ///< one per program and upstream
  std::vector<Owned<ExportGroup>> groups_;                     ///< one per program of several upstreams
  std::array<Owned<TcpSlot>, segment::kMaxUpstreams> places_;  ///< indexed by upstream number
  std::vector<Served> services_;
};

}  // namespace sluice::tcp_upstream
