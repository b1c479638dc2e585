// SPDX-License-Identifier: Apache-2.0
#include "dataplane/relay/relay.h"

#include "dataplane/relay/relay_service.h"
#include "dataplane/ulb/bindings.h"

namespace sluice::relay {
namespace {

egress::ServerCounters counters_of(segment::UpstreamArea& area) {
  const auto of = [&](Relay::Counter counter) -> std::atomic<std::uint64_t>& {
    return area.counters[static_cast<std::size_t>(counter)];
  };
  return {.calls = of(Relay::Counter::calls),
          .probes = of(Relay::Counter::probes),
          .resets = of(Relay::Counter::silent_resets),
          .dials = of(Relay::Counter::connects),
          .dials_failed = of(Relay::Counter::connect_failures),
          .disconnects = of(Relay::Counter::disconnects),
          .taken = of(Relay::Counter::connections_taken)};
}

}  // namespace

Relay::Relay(rpcrdma::Engine& engine, egress::Dialer& dialer, forward::CreditLimits& credits,
             const RelayConfig& config, segment::UpstreamArea& area, Clock clock)
    : credits_(credits),
      number_(config.number),
      area_(area),
      clock_(clock),
      ports_(config.ports),
      addresses_(*config.addresses, config.name, config.port),
      server_(engine, dialer, config.server_side, counters_of(area), clock) {
  std::construct_at(&area_);  // drops the counts of an earlier data plane
  for (std::uint32_t i = 0; i < engine.connection_count(); ++i)
    clients_.push_back(make_owned<RelayClient>(*this));
  for (const service::Route& route : config.routes)
    services_.push_back(make_owned<RelayService>(*this, ulb::binding_or_plain(route.program, route.version)));
  if (ports_ != nullptr) return;  // has no say in the credits of clients before it is an upstream
  credits_.use(number_);
  follow_address();
}

void Relay::become(const forward::UpstreamPlace::Identity& identity) noexcept {
  credits_.use(number_);
  addresses_.look_for(identity.name, identity.port);
  follow_address();
  for (const auto& service : services_) ports_->move(*service, identity.listen_port);
}

bool Relay::poll(std::uint64_t now_ns) noexcept {
  place_.poll_place();
  const bool work = !scheduled_.empty();
  while (RelayClient* const client = scheduled_.pop_front()) client->act();
  if (server_.take_released()) waiting_.on_release();
  resume_waiting();
  if (now_ns - ticked_ns_ >= kTickNs) {
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

/// Those that wait again have only returned what they had just taken.
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
  area_.address.write(*address);
}

void Relay::publish() noexcept {
  area_.waiting.store(calls_waiting_, std::memory_order_relaxed);
  area_.connections.store(server_.connections().connected(), std::memory_order_relaxed);
  area_.connecting.store(server_.connections().connecting(), std::memory_order_relaxed);
  area_.outstanding.store(server_.connections().outstanding(), std::memory_order_relaxed);
}

std::uint64_t Relay::held_bytes(std::uint16_t client) const noexcept {
  return clients_[client]->records_held() * std::uint64_t{tcp::kMaxRecordBytes};
}

}  // namespace sluice::relay
