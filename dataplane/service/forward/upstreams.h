// SPDX-License-Identifier: Apache-2.0
//
// All upstream servers of one reactor, and the services that forward to them. The constructor is setup; then
// only the owning reactor may call.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/service/forward/export_group.h"
#include "dataplane/service/forward/forward_service.h"
#include "dataplane/service/forward/upstream.h"
#include "dataplane/service/forward/upstream_place.h"
#include "dataplane/tcp/uring.h"
#include "pmd/device.h"

namespace sluice::forward {

using service::Route;

struct UpstreamSetup {
  UpstreamConfig config;
  std::uint32_t number = 0;  ///< among all upstreams of the configuration
  std::vector<Route> routes;
  /// At which its services are by themselves; zero: they are with the others.
  std::uint16_t listen_port = 0;
  segment::UpstreamArea* area = nullptr;  ///< counters in shared memory, reset at setup; outlives it
};

struct UpstreamsConfig {
  std::vector<UpstreamSetup> upstreams;
  UringFeatures uring = UringFeatures::all();  ///< used if the kernel has them
};

class Upstreams final : public service::Poller {
 public:
  /// Setup. `device`, `credits` and `clock` outlive it. Throws SetupError.
  Upstreams(rdma::Device& device, CreditLimits& credits, const UpstreamsConfig& config,
            std::uint64_t (*clock)() noexcept);

  struct Served {
    service::Service* service = nullptr;
    std::uint16_t port = 0;
  };
  /// To be added to the engine of the same reactor; owned here.
  const std::vector<Served>& services() const noexcept { return services_; }

  /// Of the upstream with this number, for the main thread. Null: a reload does not change which upstream that is.
  UpstreamPlace* place(std::uint32_t number) const noexcept { return places_[number].get(); }

  bool poll(std::uint64_t now_ns) noexcept override;
  std::uint64_t held_bytes(std::uint16_t client) const noexcept override;

 private:
  static bool is_by_export(const UpstreamConfig& config, const Route& route);
  ForwardService& add_route(Upstream& upstream, const Route& route, std::uint16_t port);

  tcp::Uring uring_;
  TurnClock clock_;
  std::vector<std::unique_ptr<Upstream>> upstreams_;
  std::vector<std::unique_ptr<ForwardService>> forwarding_;                    ///< a program to an upstream
  std::vector<std::unique_ptr<ExportGroup>> groups_;                           ///< a program to several
  std::array<std::unique_ptr<UpstreamPlace>, segment::kMaxUpstreams> places_;  ///< by number
  std::vector<Served> services_;
};

}  // namespace sluice::forward
