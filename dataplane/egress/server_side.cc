// SPDX-License-Identifier: Apache-2.0
#include "dataplane/egress/server_side.h"

#include <utility>

namespace sluice::egress {

ServerSide::ServerSide(rpcrdma::Engine& engine, Dialer& dialer, const ServerSideConfig& config,
                       const ServerCounters& counters, Clock clock)
    : config_(config),
      dialer_(dialer),
      counters_(counters),
      clock_(clock),
      records_(engine.device(), config.record_buffers, tcp::kMaxRecordBytes),
      items_(engine.device(), config.item_buffers, tcp::kStreamBytes),
      scratch_(FixedArray<std::byte>::for_overwrite(tcp::kMaxRecordBytes)),
      connections_(*this, engine, config.connections),
      by_connection_(engine.connection_count()) {}

PoolBuffer ServerSide::acquire_buffer(std::size_t bytes) noexcept {
  if (bytes <= items_.buffer_bytes() && items_.available() > 0) return {items_.acquire(), false};
  return {records_.acquire(), true};
}

void ServerSide::release_buffer(PoolBuffer& buffer) noexcept {
  std::byte* const memory = std::exchange(buffer.address, nullptr);
  if (memory == nullptr) return;
  (buffer.is_record ? records_ : items_).release(memory);
  note_release();
}

rpcrdma::Connection* ServerSide::dial(ServerConnection& connection, rpcrdma::Requester& requester) noexcept {
  rpcrdma::Connection* const dialed = server_ ? dialer_.dial(*server_, requester, callee_) : nullptr;
  count(dialed == nullptr ? counters_.dials_failed : counters_.dials);
  if (dialed != nullptr) by_connection_[dialed->number()] = &connection;
  return dialed;
}

/// Null: the connection is nobody's any more.
ServerUser* ServerSide::user_of(const service::Client& connection) const noexcept {
  const ServerConnection* const server = by_connection_[connection.number()];
  return server != nullptr ? server->client() : nullptr;
}

service::Execution ServerSide::Callee::execute(service::Call& call) noexcept {
  ServerUser* const user = call.client() != nullptr ? side_.user_of(*call.client()) : nullptr;
  if (user != nullptr)
    user->on_server_call(call);
  else
    call.complete(rpc::AcceptStat::ProgUnavail);
  return service::Execution::Started;
}

void ServerSide::Callee::client_gone(service::Client& client) noexcept {
  if (ServerUser* const user = side_.user_of(client)) user->on_server_gone();
}

}  // namespace sluice::egress
