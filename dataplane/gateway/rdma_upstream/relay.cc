// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/rdma_upstream/relay.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/rdma_upstream/relay_client.h"
#include "dataplane/ulb/bindings.h"
namespace sluice::rdma_upstream {
namespace {

rdma_server::ServerCounters counters_of(segment::UpstreamArea& area) {
  const auto of = [&](Relay::Counter counter) -> std::atomic<std::uint64_t>& {
    return area.counters[static_cast<std::size_t>(counter)];
  };
  return {.calls = of(Relay::Counter::calls),
          .probes = of(Relay::Counter::probes),
          .resets = of(Relay::Counter::silent_resets),
          .retransmissions = of(Relay::Counter::retransmissions),
          .dials = of(Relay::Counter::connects),
          .dials_failed = of(Relay::Counter::connect_failures),
          .disconnects = of(Relay::Counter::disconnects),
          .taken = of(Relay::Counter::connections_taken),
          .unknown_operations = of(Relay::Counter::unknown_operations),
          .unknown_operation = area.unknown_operation};
}

}  // namespace

Relay::Relay(rpcrdma::Engine& engine, rdma_server::Dialer& dialer, tcp_upstream::CreditLimits& credits,
             const RelayConfig& config, Clock clock)
    : credits_(credits),
      registry_(engine.registry()),
      clock_(clock),
      addresses_(*config.addresses, {}),
      server_(engine, dialer, config.server_side, counters_of(unused_area_), clock) {
  for (std::uint32_t i = 0; i < engine.connection_count(); ++i)
    clients_.push_back(make_owned<RelayClient>(*this));
  services_ = make_owned<gateway::ProgramServices<RelayService, std::uint32_t>>([this] {
    auto service = make_owned<RelayService>(*this);
    registry_.add_unoffered(*service);
    return service;
  });
}

Relay::~Relay() = default;

void Relay::begin(const gateway::UpstreamSettings& settings, std::uint32_t number,
                  segment::UpstreamArea& area) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!in_use() && calls_waiting_ == 0, gateway_state));
  number_ = number;
  area_ = &area;
  server_.set_counters(counters_of(area));
  server_.forget_server();
  credits_.use(number_);
  addresses_.select(settings.name, settings.port);
  follow_address();
}

bool Relay::serve(const gateway::UpstreamSettings& settings) noexcept {
  server_.apply(settings.connections, settings.call_timeout_ns, settings.withheld);
  return services_->serve(
      settings.programs(), [&](const service::Binding&) -> std::uint32_t { return settings.listen_port; },
      [this](RelayService& service, std::uint32_t port) { return registry_.offer(service, port); },
      [this](RelayService& service, std::uint32_t) { registry_.withdraw(service); });
}

void Relay::withdraw() noexcept {
  services_->withdraw_all([this](RelayService& service, std::uint32_t) { registry_.withdraw(service); });
}

bool Relay::drain() noexcept {
  const std::uint64_t now_ns = clock_();
  if (draining_since_ns_ == 0) draining_since_ns_ = now_ns;
  if (!parted_) {
    const bool has_calls = calls_waiting_ > 0 || server_.connections().outstanding() > 0;
    if (has_calls && now_ns - draining_since_ns_ < gateway::kLeaveNs) return false;
    for (const auto& client : clients_) client->leave();
    parted_ = true;
  }
  const bool closing = has_match(clients_, [](const auto& client) { return client->closing(); });
  if (closing || server_.connections().in_use() > 0) return false;
  static_cast<void>(SLUICE_INVARIANT(calls_waiting_ == 0 && scheduled_.empty(), pool_balance));
  area_->clear_gauges();
  area_ = &unused_area_;
  server_.set_counters(counters_of(unused_area_));
  parted_ = false;
  draining_since_ns_ = 0;
  return true;
}

bool Relay::poll(std::uint64_t now_ns) noexcept {
  const bool work = !scheduled_.empty();
  while (RelayClient* const client = scheduled_.pop_front()) client->act();
  if (server_.take_released()) waiting_.on_release();
  resume_waiting();
  if (in_use() && now_ns - ticked_ns_ >= kTickNs) {
    ticked_ns_ = now_ns;
    tick(clock_());
  }
  return work;
}

void Relay::tick(std::uint64_t now_ns) noexcept {
  if (addresses_.poll(now_ns)) {
    count(Counter::address_changes);
    follow_address();
  }
  server_.tick(now_ns);
  finish_closing();
  waiting_.on_release();  // the requester may have released resources without note_release()
  publish();
}

/// Resumes waiting clients. Clients that wait again have only returned what they had just acquired, so these
/// releases are discarded.
void Relay::resume_waiting() noexcept {
  if (waiting_.resume_some()) server_.take_released();
}

void Relay::finish_closing() noexcept {
  RelayClient* next = closing_.front();
  while (next != nullptr) {
    RelayClient& client = *next;
    next = closing_.next(client);
    if (!client.finish_closing()) closing_.remove(client);
  }
}

void Relay::follow_address() noexcept {
  const PeerAddress* const address = addresses_.current();
  if (address == nullptr) return;
  server_.set_server(
      {.address = *address, .port = addresses_.port(), .credits_requested = server_.config().calls});
  area_->address.write(*address);
}

void Relay::publish() noexcept {
  area_->waiting.store(calls_waiting_, std::memory_order_relaxed);
  area_->connections.store(server_.connections().connected(), std::memory_order_relaxed);
  area_->connecting.store(server_.connections().connecting(), std::memory_order_relaxed);
  area_->outstanding.store(server_.connections().outstanding(), std::memory_order_relaxed);
}

std::uint64_t Relay::held_bytes(std::uint16_t client) const noexcept {
  static_cast<void>(SLUICE_INVARIANT(client < clients_.size(), table_index));
  return clients_[client]->records_held() * std::uint64_t{server_.config().record_bytes()};
}

service::Execution RelayService::execute(service::Call& call) noexcept {
  auto& relayed = call.state<RelayCall>();
  if (relayed.state == RelayCall::State::Held)
    return relayed.client->deliver(relayed) ? service::Execution::Started : service::Execution::NeedsMemory;
  if (call.client() == nullptr) {
    call.complete(rpc::AcceptStat::SystemErr);
    return service::Execution::Started;
  }
  ++calls_;
  relayed.call = &call;
  relayed.binding = &binding_;
  relayed.client = &relay_.client(*call.client());
  relayed.client->submit(relayed, *call.client());
  return service::Execution::Started;
}

void RelayService::release(service::Call& call) noexcept {
  auto& relayed = call.state<RelayCall>();
  if (relayed.client == nullptr) return;
  relayed.client->release(relayed);
  if (SLUICE_INVARIANT(calls_ > 0, pool_balance)) --calls_;
}

bool ServerCalls::empty() const noexcept {
  return !has_match(outstanding_, [](const Outstanding& outstanding) { return outstanding.call != nullptr; });
}

bool ServerCalls::start(service::Call& call, service::Client& client) noexcept {
  Outstanding* const place =
      first_match(outstanding_, [](const Outstanding& other) { return !other.in_use; });
  if (place == nullptr) return false;
  *place = {.call = &call, .in_use = true};
  if (client.call_back(call.message(), &on_reply, place)) return true;
  *place = {};
  return false;
}

void ServerCalls::on_reply(void* context, std::span<const std::byte> reply) noexcept {
  auto& outstanding = *static_cast<Outstanding*>(context);
  static_cast<void>(SLUICE_INVARIANT(outstanding.in_use, pool_balance));
  outstanding.in_use = false;
  service::Call* const call = std::exchange(outstanding.call, nullptr);
  if (call != nullptr) rdma_server::complete_with_reply(*call, reply);
}

void ServerCalls::drop_all() noexcept {
  for (Outstanding& outstanding : outstanding_)
    if (outstanding.call != nullptr)
      std::exchange(outstanding.call, nullptr)->complete(rpc::AcceptStat::SystemErr);
}

}  // namespace sluice::rdma_upstream
