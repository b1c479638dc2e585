// SPDX-License-Identifier: Apache-2.0
//
// One reactor's part of an upstream that is reached over RPC-over-RDMA. Calls of RDMA clients are forwarded
// with their data in place: data from a client's Read chunks is offered to the server as Read chunks, and
// data that the server writes is written to the client from the same buffer. The processor touches neither.
// Both sides negotiate their RPC-over-RDMA version independently.
//
// Each client that has calls is assigned a connection to the server (dataplane/gateway/rdma_server). Callable
// only on the owning reactor; the constructor is for setup.
#pragma once

#include <cstdint>
#include <vector>

#include "dataplane/base/invariant.h"
#include "dataplane/base/owned.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/rdma_upstream/relay_client.h"
#include "dataplane/gateway/slots/program_services.h"
#include "dataplane/gateway/slots/upstream_slot.h"
#include "dataplane/gateway/tcp_upstream/upstream_addresses.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_upstream {

/// Period in nanoseconds for checking connections and the server's address and for publishing gauges.
inline constexpr std::uint64_t kTickNs = 20'000'000;

struct RelayConfig {
  const segment::SharedUpstreamAddresses* addresses = nullptr;  ///< outlives the relay
  rdma_server::ServerSideConfig server_side{};
};

class RelayService;

/// A relay serves the upstream of any slot, and that of another one after it has been drained.
class Relay final : public service::Poller, public gateway::SlotSide {
 public:
  using Counter = segment::UpstreamCounter;

  /// Setup only. The references and `clock` outlive this object.
  Relay(rpcrdma::Engine& engine, rdma_server::Dialer& dialer, tcp_upstream::CreditLimits& credits,
        const RelayConfig& config, Clock clock);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay() override;

  void begin(const gateway::UpstreamSettings& settings, std::uint32_t number,
             segment::UpstreamArea& area) noexcept override;
  bool serve(const gateway::UpstreamSettings& settings) noexcept override;
  void withdraw() noexcept override;
  bool drain() noexcept override;
  bool in_use() const noexcept override { return area_ != &unused_area_; }

  bool poll(std::uint64_t now_ns) noexcept override;
  std::uint64_t held_bytes(std::uint16_t client) const noexcept override;

  // Called by the services and clients.
  RelayClient& client(const service::Client& client) noexcept {
    SLUICE_INVARIANT_DEBUG(client.number() < clients_.size(), table_index);
    return *clients_[client.number()];
  }
  rdma_server::ServerSide& server() noexcept { return server_; }
  segment::UpstreamArea& area() noexcept { return *area_; }
  /// Limits a client's credits after its first call to the calls that one connection to the server takes,
  /// because more calls would only wait here.
  void limit_credits(service::Client& client) noexcept {
    credits_.set(client, number_, server_.config().calls, 0);
  }
  void forget_credits(service::Client& client) noexcept { credits_.forget(client.number(), number_); }
  void count(Counter counter) noexcept {
    rdma_server::ServerSide::count(area_->counters[static_cast<std::size_t>(counter)]);
  }
  void schedule(RelayClient& client) noexcept {
    if (!client.scheduled_link.linked()) scheduled_.push_back(client);
  }
  void schedule_resume(RelayClient& client) noexcept { waiting_.push_back(client); }
  /// Adjusts the number of waiting calls by 1 or -1.
  void count_waiting(int more) noexcept {
    SLUICE_INVARIANT_DEBUG(more > 0 || calls_waiting_ > 0, pool_balance);
    calls_waiting_ += static_cast<std::uint32_t>(more);
  }
  void schedule_closing(RelayClient& client) noexcept {
    if (!client.closing_link.linked()) closing_.push_back(client);
  }

 private:
  void tick(std::uint64_t now_ns) noexcept;
  void resume_waiting() noexcept;
  void finish_closing() noexcept;
  void follow_address() noexcept;
  void publish() noexcept;

  tcp_upstream::CreditLimits& credits_;
  service::ServiceRegistry& registry_;
  segment::UpstreamArea unused_area_;  ///< counters while no upstream is served
  segment::UpstreamArea* area_ = &unused_area_;
  std::uint32_t number_ = 0;  ///< number of the slot; of no meaning while no upstream is served
  const Clock clock_;
  tcp_upstream::Addresses addresses_;
  rdma_server::ServerSide server_;
  std::vector<Owned<RelayClient>> clients_;  ///< by number of their connection
  Owned<gateway::ProgramServices<RelayService, std::uint32_t>> services_;
  IntrusiveQueue<RelayClient, &RelayClient::scheduled_link> scheduled_;
  rdma_server::ReleaseWaiters<RelayClient, &RelayClient::waiting_link> waiting_;
  IntrusiveQueue<RelayClient, &RelayClient::closing_link> closing_;
  std::uint32_t calls_waiting_ = 0;
  std::uint64_t ticked_ns_ = 0;
  std::uint64_t draining_since_ns_ = 0;  ///< time of the first drain(); zero: not leaving
  bool parted_ = false;                  ///< the clients of a leaving upstream have been detached
};

/// Program and version that an RPC-over-RDMA server provides. The transport owns the calls, and the Relay
/// outlives the service.
class RelayService final : public service::Service {
 public:
  explicit RelayService(Relay& relay) : relay_(relay) {}

  /// Gives the service a program. Requires that it has no calls in progress and is not offered.
  void assign(const service::Binding& binding) noexcept {
    static_cast<void>(SLUICE_INVARIANT(calls_ == 0, gateway_state));
    binding_ = binding;
  }
  service::Route route() const noexcept { return {binding_.program, binding_.version}; }
  bool has_calls() const noexcept { return calls_ > 0; }

  const service::Binding& binding() const noexcept override { return binding_; }
  service::Execution execute(service::Call& call) noexcept override;
  void release(service::Call& call) noexcept override;
  void client_gone(service::Client& client) noexcept override { relay_.client(client).gone(); }

 private:
  Relay& relay_;
  service::Binding binding_;
  std::uint32_t calls_ = 0;  ///< calls from their first execute() to release()
};

}  // namespace sluice::rdma_upstream
