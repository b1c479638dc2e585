// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/gateway/rdma_server/dialing_side.h"

#include <algorithm>

namespace sluice::rdma_server_test {

DialingSide::DialingSide(std::shared_ptr<rdma::loopback::Fabric> fabric, const DialingOptions& options)
    : device(rdma::loopback::make_device(std::move(fabric), {.name = options.name})),
      engine(*device, options.engine),
      version_(options.version),
      calls_(options.calls) {}

void DialingSide::close_connections() {
  for (std::uint32_t i = 0; i < engine.connection_count(); ++i)
    engine.connection(static_cast<std::uint16_t>(i)).close(rpcrdma::CloseReason::LocalClose);
  for (int i = 0; i < 100; ++i) engine.poll(1);
}

rpcrdma::Connection* DialingSide::dial(const rdma_server::Server& server, rpcrdma::Requester& requester,
                                       service::Service& callee) noexcept {
  rpcrdma::Connection* const connection = may_dial ? engine.free_connection() : nullptr;
  if (connection == nullptr) return nullptr;
  servers.push_back(server);
  connection->open(device->create_queue_pair(engine.queue_pair_limits()),
                   {.send_inline_bytes = 4096,
                    .credit_grant = kServerCalls,
                    .credits_requested = calls_,
                    .sole_service = &callee,
                    .active = true,
                    .max_version = version_},
                   PeerAddress::from_ipv4(10, 0, 0, 1), &requester);
  const auto id = device->connection_manager()->connect(connection->queue_pair(), conformance::kPort, {});
  if (id)
    dialed_.push_back({*id, connection});
  else
    connection->close(rpcrdma::CloseReason::PeerClosed);
  connections.push_back(connection);
  return connection;
}

void DialingSide::hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept {
  for (const Dialed& dialed : dialed_)
    if (dialed.connection == &connection) device->connection_manager()->disconnect(dialed.id);
  connection.close(reason);
  hung_up.push_back(reason);
}

void DialingSide::poll_connections(std::uint64_t now_ns) {
  engine.poll(now_ns);
  while (const rpcrdma::Connection* closed = engine.take_closed())
    std::erase_if(dialed_, [closed](const Dialed& dialed) { return dialed.connection == closed; });
  std::array<rdma::CmEvent, 4> events;
  const std::size_t count = device->connection_manager()->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events).first(count)) on_event(event);
}

void DialingSide::on_event(const rdma::CmEvent& event) {
  if (event.type == rdma::CmEventType::ConnectRequest) return on_connect_request(event.id);
  const auto at = std::find_if(dialed_.begin(), dialed_.end(),
                               [&](const Dialed& dialed) { return dialed.id == event.id; });
  if (at == dialed_.end()) return;
  if (event.type == rdma::CmEventType::Established)
    at->connection->established();
  else
    at->connection->close(rpcrdma::CloseReason::PeerClosed);
}

}  // namespace sluice::rdma_server_test
