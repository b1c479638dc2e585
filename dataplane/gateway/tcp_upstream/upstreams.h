// SPDX-License-Identifier: Apache-2.0
//
// All upstream servers of one reactor, and the services that forward calls to them. The constructor is setup;
// afterwards only the owning reactor may call.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/upstream.h"
#include "dataplane/gateway/tcp_upstream/upstream_slot.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/uring.h"
#include "dataplane/ulb/tagged_handles.h"
#include "pmd/device.h"

namespace sluice::tcp_upstream {

/// An NFS 3 program that several upstreams serve, each with its own exports. MOUNT queries the upstream that
/// exports a path and prepends its tag to the file handle. Each handle that a client receives later carries
/// the tag of the upstream that returned it. The handles of a call therefore select its upstream, also after
/// a restart of either plane. The tag only selects the upstream, which alone decides whether a handle is
/// valid and for which client.
///
/// Only the owning reactor may call.
class ExportGroup final : public service::Service {
 public:
  /// Returns whether several upstreams may serve the program.
  static bool shares(const service::Binding& binding) noexcept;

  /// Setup.
  explicit ExportGroup(const service::Binding& binding) : binding_(binding) {}
  /// Adds a member at setup. A group has 1 to segment::kMaxUpstreams members. Each has a unique tag, or no
  /// tag while it is spare, and outlives the group.
  void add(ForwardService& member) noexcept {
    if (SLUICE_INVARIANT(count_ < members_.size(), table_index)) members_[count_++] = &member;
  }

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;
  void call_abandoned(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override;

 private:
  ForwardService* find(std::uint32_t tag) const noexcept;
  service::Execution route(service::Call& call, const ulb::CallHandles& handles) noexcept;
  service::Execution refuse(service::Call& call, ulb::Nfs3Error error) noexcept;

  const service::Binding binding_;
  std::array<ForwardService*, segment::kMaxUpstreams> members_{};
  std::size_t count_ = 0;
};

/// Slot of an upstream over TCP. Only the owning reactor may call, except where upstream_slot.h permits other
/// threads.
class TcpSlot final : public UpstreamSlot {
 public:
  /// Setup. The upstream and its services outlive this object. Calls select the `shared` services by the tag
  /// of a handle, and the `alone` services by the upstream's listen port. `ports` outlives this object, and
  /// is null if no upstream with a listen port can be assigned.
  TcpSlot(Upstream& upstream, std::vector<ForwardService*> shared, std::vector<ForwardService*> alone,
          service::ServicePorts* ports)
      : UpstreamSlot(upstream.shared().config),
        upstream_(upstream),
        shared_(std::move(shared)),
        alone_(std::move(alone)),
        ports_(ports) {}

 private:
  void apply(const UpstreamSettings& settings) noexcept override {
    upstream_.apply(settings);
    withhold(settings.withheld);
  }
  bool drain() noexcept override {
    set_handle_tag(0);
    return upstream_.drain();
  }
  void assign(const UpstreamSettings& settings) noexcept override {
    upstream_.assign(settings);
    withhold(settings.withheld);
    set_handle_tag(settings.handle_tag);
    if (settings.listen_port != 0) listen(settings.listen_port);
  }
  void withhold(const service::Withheld& withheld) noexcept {
    for (ForwardService* const service : shared_) service->withhold(withheld);
    for (ForwardService* const service : alone_) service->withhold(withheld);
  }
  void set_handle_tag(std::uint32_t tag) noexcept {
    for (ForwardService* const service : shared_) service->set_handle_tag(tag);
  }
  void listen(std::uint16_t port) noexcept {
    if (ports_ == nullptr) return;
    for (const ForwardService* const service : alone_) ports_->move(*service, port);
  }

  Upstream& upstream_;
  const std::vector<ForwardService*> shared_;
  const std::vector<ForwardService*> alone_;
  service::ServicePorts* const ports_;
};

using service::Route;

/// Returns a sentence that says why no connection can be bound to a privileged port as the settings ask for;
/// empty if one can. Called on the main thread.
std::string privilege_problem(const UpstreamSettings& settings);

struct UpstreamSetup {
  UpstreamConfig config;
  std::uint32_t number = 0;  ///< number among all upstreams of the configuration
  /// Programs to serve. If the slot is spare, those that are not shared have no port until an upstream with
  /// its own port is assigned.
  std::vector<Route> routes;
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

  /// Returns the slot of the upstream with this number, for the main thread. Returns null if there is none.
  UpstreamSlot* place(std::uint32_t number) const noexcept { return places_[number].get(); }

  bool poll(std::uint64_t now_ns) noexcept override;
  std::uint64_t held_bytes(std::uint16_t client) const noexcept override;

 private:
  static bool is_by_export(const UpstreamConfig& config, const Route& route);
  /// Creates the services of an upstream. Returns its slot.
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
  ThreadOwner owner_;  ///< thread that polls
};

}  // namespace sluice::tcp_upstream
