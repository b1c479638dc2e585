// SPDX-License-Identifier: Apache-2.0
//
// All upstream servers of one reactor, and the services that forward calls to them. The constructor is setup;
// afterwards only the owning reactor may call.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/base/thread_owner.h"
#include "dataplane/gateway/slots/program_services.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/upstream.h"
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
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
  /// Adds a member, which has a tag of its own. The member outlives the group.
  void add(ForwardService& member) noexcept;
  /// Removes a member. Calls in progress are not affected.
  void remove(const ForwardService& member) noexcept;
  bool empty() const noexcept { return count_ == 0; }

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;
  void call_abandoned(service::Call& call) noexcept override;

 private:
  ForwardService* find(std::uint32_t tag) const noexcept;
  service::Execution route(service::Call& call, const ulb::CallHandles& handles) noexcept;
  service::Execution refuse(service::Call& call, ulb::Nfs3Error error) noexcept;

  const service::Binding binding_;
  std::array<ForwardService*, segment::kMaxUpstreams> members_{};
  std::size_t count_ = 0;
};

/// Serves the upstream of a slot over TCP. Only the owning reactor may call.
class TcpSide final : public gateway::SlotSide {
 public:
  /// Setup. The references outlive this object. `groups` are the programs that several upstreams may serve.
  TcpSide(Upstream& upstream, service::ServiceRegistry& registry, std::span<const Owned<ExportGroup>> groups);

  void begin(const UpstreamSettings& settings, std::uint32_t number,
             segment::UpstreamArea& area) noexcept override;
  bool serve(const UpstreamSettings& settings) noexcept override;
  void withdraw() noexcept override;
  bool drain() noexcept override { return upstream_.drain(); }
  bool in_use() const noexcept override { return upstream_.in_use(); }

 private:
  /// Clients find a service in a group by the tags of file handles, or at a port.
  struct Place {
    ExportGroup* group = nullptr;
    std::uint32_t handle_tag = 0;
    std::uint32_t port = 0;
    bool operator==(const Place&) const = default;
  };

  Place place_of(const service::Binding& binding, const UpstreamSettings& settings) const noexcept;
  bool offer(ForwardService& service, const Place& place) noexcept;
  void withdraw(ForwardService& service, const Place& place) noexcept;

  Upstream& upstream_;
  service::ServiceRegistry& registry_;
  const std::span<const Owned<ExportGroup>> groups_;
  gateway::ProgramServices<ForwardService, Place> services_;
};

using service::Route;

/// Returns a sentence that says why no connection can be bound to a privileged port as the settings ask for;
/// empty if one can. Called on the main thread.
std::string privilege_problem(const UpstreamSettings& settings);

struct UpstreamSetup {
  UpstreamConfig config;
  std::uint32_t number = 0;  ///< number among all upstreams of the configuration
  /// Counters in shared memory, which are reset at setup. The area outlives the upstream.
  segment::UpstreamArea* area = nullptr;
};

struct UpstreamsConfig {
  std::vector<UpstreamSetup> upstreams;
  UringFeatures uring = UringFeatures::all();  ///< features to use if the kernel supports them
};

class Upstreams final : public service::Poller {
 public:
  /// Setup. The references and `clock` outlive this object. Serves the upstreams that have a name. Throws
  /// SetupError.
  Upstreams(rdma::Device& device, CreditLimits& credits, service::ServiceRegistry& registry,
            const UpstreamsConfig& config, std::uint64_t (*clock)() noexcept);

  /// Returns what serves the upstream of each slot over TCP. This object owns it.
  std::vector<gateway::SlotSide*> sides() const {
    std::vector<gateway::SlotSide*> all;
    for (const auto& side : sides_)
      if (side) all.push_back(side.get());
    return all;
  }

  bool poll(std::uint64_t now_ns) noexcept override;
  std::uint64_t held_bytes(std::uint16_t client) const noexcept override;

 private:
  tcp::Uring uring_;
  IterationClock clock_;
  std::vector<Owned<Upstream>> upstreams_;
  std::array<Upstream*, segment::kMaxUpstreams> by_number_{};
  std::vector<Owned<ExportGroup>> groups_;                    ///< one per program of several upstreams
  std::array<Owned<TcpSide>, segment::kMaxUpstreams> sides_;  ///< indexed by upstream number
  ThreadOwner owner_;                                         ///< thread that polls
};

}  // namespace sluice::tcp_upstream
