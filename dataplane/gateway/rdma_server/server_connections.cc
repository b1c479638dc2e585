// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/rdma_server/server_connections.h"

#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/gateway/rdma_server/call_translation.h"
#include "dataplane/gateway/rdma_server/server_side.h"
#include "pmd/device.h"

namespace sluice::rdma_server {

using State = ServerConnection::State;

ServerConnections::ServerConnections(ServerSide& side, rpcrdma::Engine& engine, std::uint32_t count)
    : side_(side), limit_(count), free_(count) {
  for (std::uint32_t i = 0; i < count; ++i)
    free_.push(connections_.emplace_back(make_owned<ServerConnection>(side, engine)).get());
}

ServerConnection* ServerConnections::take(ServerUser& client) noexcept {
  if (wanted_.empty() && may_assign()) return &assign(client);
  if (client.wanted_link.linked()) return nullptr;
  wanted_.push_back(client);
  ++wanted_count_;
  return nullptr;
}

ServerConnection& ServerConnections::assign(ServerUser& client) noexcept {
  ServerConnection& connection = *free_.pop();
  static_cast<void>(SLUICE_INVARIANT(connection.state() == State::Free, gateway_state));
  connection.assign(client);
  idle_.push_back(connection);
  return connection;
}

void ServerConnections::forget(ServerUser& client) noexcept {
  if (!client.wanted_link.linked()) return;
  wanted_.remove(client);
  static_cast<void>(SLUICE_INVARIANT(wanted_count_ > 0, list_membership));
  --wanted_count_;
}

void ServerConnections::give_back(ServerConnection& connection) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(connection.in_use() == 0 && returned_count_ < connections_.size(), pool_balance));
  idle_.remove(connection);
  connection.take_back();
  ++returned_count_;
}

void ServerConnections::tick(std::uint64_t now_ns) noexcept {
  for (const auto& connection : connections_) connection->tick(now_ns);
  return_moving();
  collect_returned();
  while (!wanted_.empty() && may_assign()) {
    ServerUser& client = *wanted_.pop_front();
    --wanted_count_;
    static_cast<void>(SLUICE_INVARIANT((wanted_count_ == 0) == wanted_.empty(), list_membership));
    client.on_lent(assign(client));
  }
  if (needed() > returned_count_) take_idle(now_ns);
  if (needed() > returned_count_)
    ask_to_yield(now_ns);
  else
    stop_yielding();
}

void ServerConnections::collect_returned() noexcept {
  for (const auto& connection : connections_) {
    if (returned_count_ == 0) return;
    if (connection->state() != State::Returned || !connection->become_free()) continue;
    free_.push(connection.get());
    --returned_count_;
  }
}

void ServerConnections::move() noexcept {
  for (const auto& connection : connections_) connection->move();
}

/// Returns connections without calls whose server address has changed.
void ServerConnections::return_moving() noexcept {
  ServerConnection* next = idle_.front();
  while (next != nullptr) {
    ServerConnection& connection = *next;
    static_cast<void>(
        SLUICE_INVARIANT(connection.state() == State::Assigned && connection.in_use() == 0, list_membership));
    next = idle_.next(connection);
    if (connection.moves() && connection.client()->on_taken()) give_back(connection);
  }
}

/// Reassigns the connections that have been idle longest to waiting clients.
void ServerConnections::take_idle(std::uint64_t now_ns) noexcept {
  ServerConnection* next = idle_.front();
  while (next != nullptr && needed() > returned_count_) {
    ServerConnection& connection = *next;
    static_cast<void>(
        SLUICE_INVARIANT(connection.state() == State::Assigned && connection.in_use() == 0, list_membership));
    next = idle_.next(connection);
    if (now_ns - connection.lent_ns() < kTurnNs || !connection.client()->on_taken()) continue;
    side_.count(side_.counters().taken);
    give_back(connection);
  }
}

void ServerConnections::ask_to_yield(std::uint64_t now_ns) noexcept {
  if (now_ns - asked_ns_ < kTurnNs) return;
  ServerConnection* longest = nullptr;
  for (const auto& connection : connections_)
    if (connection->state() == State::Assigned && !connection->yields() &&
        now_ns - connection->lent_ns() >= kTurnNs &&
        (longest == nullptr || connection->lent_ns() < longest->lent_ns()))
      longest = connection.get();
  if (longest == nullptr) return;
  longest->set_yields(true);
  yielding_ = true;
  asked_ns_ = now_ns;
}

void ServerConnections::stop_yielding() noexcept {
  if (!yielding_) return;
  for (const auto& connection : connections_) connection->set_yields(false);
  yielding_ = false;
}

std::uint32_t ServerConnections::connected() const noexcept {
  std::uint32_t count = 0;
  for (const auto& connection : connections_) count += connection->connected();
  return count;
}

std::uint32_t ServerConnections::connecting() const noexcept {
  std::uint32_t count = 0;
  for (const auto& connection : connections_)
    count += connection->state() == State::Assigned && connection->in_use() > 0 && !connection->connected();
  return count;
}

std::uint32_t ServerConnections::outstanding() const noexcept {
  std::uint32_t count = 0;
  for (const auto& connection : connections_) count += connection->in_use();
  return count;
}

ServerSide::ServerSide(rpcrdma::Engine& engine, Dialer& dialer, const ServerSideConfig& config,
                       const ServerCounters& counters, Clock clock)
    : config_(config),
      dialer_(dialer),
      counters_(counters),
      clock_(clock),
      domain_(engine.device().allocate_domain()),
      records_(engine.device(), config.record_buffers, config.record_bytes()),
      items_(engine.device(), config.item_buffers, tcp::kStreamBytes),
      scratch_(FixedArray<std::byte>::for_overwrite(config.record_bytes())),
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
  count(dialed == nullptr ? counters().dials_failed : counters().dials);
  static_cast<void>(
      SLUICE_INVARIANT(dialed == nullptr || dialed->number() < by_connection_.size(), table_index));
  if (dialed != nullptr) by_connection_[dialed->number()] = &connection;
  return dialed;
}

/// Returns the user that the connection to the server is assigned to, or null if it is not assigned.
ServerUser* ServerSide::user_of(const service::Client& connection) const noexcept {
  const ServerConnection* const server = by_connection_[connection.number()];
  SLUICE_INVARIANT_DEBUG(connection.number() < by_connection_.size(), table_index);
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

std::span<std::byte> ClientBuffers::keep_message(ClientCall& call, const rpcrdma::Reply& reply) noexcept {
  const std::span<const std::byte> message = reply.message();
  if (message.size() > kSmallReplyBytes && call.server->keep_reply(call, reply))
    return {call.kept_reply, message.size()};
  if (message.size() > kSmallReplyBytes && call.reply.address == nullptr)
    call.reply = acquire(message.size());
  std::span<std::byte> to = *call.small;
  SLUICE_INVARIANT_DEBUG(call.small != nullptr && call.state == ClientCall::State::Outstanding,
                         gateway_state);
  if (call.reply.address != nullptr)
    to = {call.reply.address + call.all_chunks_bytes, side_.bytes_of(call.reply) - call.all_chunks_bytes};
  if (message.size() > to.size()) return {};
  std::memcpy(to.data(), message.data(), message.size());
  return to.first(message.size());
}

}  // namespace sluice::rdma_server
