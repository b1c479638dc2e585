// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_setup.h"

#include "dataplane/rpcrdma/link/private_data.h"

namespace sluice::reactor {

ConnectionSetup::ConnectionSetup(const ReactorConfig& config, rpcrdma::Engine& engine,
                                 ConnectionTable& connections, Connector& connector,
                                 ConnectionProperties& properties, Publisher& publisher, EventSender& events,
                                 Counters& counters)
    : config_(config),
      engine_(engine),
      connections_(connections),
      connector_(connector),
      properties_(properties),
      publisher_(publisher),
      events_(events),
      counters_(counters) {}

// --- From peers

void ConnectionSetup::on_established(rdma::CmId id, std::span<const std::byte> private_data) noexcept {
  rpcrdma::Connection* const connection = connections_.find(id);
  if (connection == nullptr) return;
  if (connections_.record(*connection).outgoing)
    connection->set_send_inline_bytes(
        rpcrdma::send_inline_bytes(rpcrdma::decode_private_data(private_data), config_.dial.inline_bytes));
  mark_established(*connection);
  send_connection_up(*connection);
}

void ConnectionSetup::on_ended(rdma::CmId id) noexcept {
  if (rpcrdma::Connection* connection = connections_.find(id))
    connection->close(rpcrdma::CloseReason::PeerClosed);
}

// --- To the control plane

void ConnectionSetup::send_connection_up(rpcrdma::Connection& connection) noexcept {
  const ConnectionRecord& record = connections_.record(connection);
  events_.send({.type = segment::EventType::ConnectionUp,
                .cm_id = static_cast<std::uint32_t>(record.cm_id),
                .connection = connection.number(),
                .incarnation = record.incarnation,
                .peer = connection.peer()});
}

void ConnectionSetup::report_closed() noexcept {
  while (rpcrdma::Connection* connection = engine_.take_closed()) {
    const ConnectionRecord record = connections_.remove(*connection);
    publisher_.publish_connection(*connection);  // before the hint to look at it
    events_.send({.type = segment::EventType::ConnectionDown,
                  .cm_id = static_cast<std::uint32_t>(record.cm_id),
                  .connection = connection->number(),
                  .incarnation = record.incarnation,
                  .queue_pair = record.queue_pair,
                  .outgoing = record.outgoing,
                  .reason = static_cast<std::uint32_t>(connection->close_reason()),
                  .peer = connection->peer()});
  }
}

// --- Commands

segment::CommandStatus ConnectionSetup::accept(const segment::Command& command,
                                               segment::Event& done) noexcept {
  if (!connector_.take_request(command)) return segment::CommandStatus::UnknownConnection;
  rpcrdma::Connection* const connection = engine_.free_connection();
  if (connection == nullptr) ++counters_.connect_requests_refused;
  rdma::QueuePair* const qp = connection == nullptr ? nullptr
                                                    : open(*connection, connection_config(command),
                                                           command.attributes.remote, nullptr);
  if (qp == nullptr) {
    connector_.refuse(command);
    return segment::CommandStatus::NoRoom;
  }
  ConnectionRecord& record =
      connections_.begin(*connection, {.cm_id = static_cast<rdma::CmId>(command.cm_id),
                                       .since_ns = segment::wall_ns(),
                                       .queue_pair = static_cast<std::uint32_t>(qp->number()),
                                       .cm_state = command.cm_state});
  if (!connector_.accept(command, *qp, record)) {
    connection->close(rpcrdma::CloseReason::LocalClose);
    return segment::CommandStatus::Failed;
  }
  done.connection = connection->number();
  done.incarnation = record.incarnation;
  done.queue_pair = record.queue_pair;
  publisher_.publish_connection(*connection);
  return segment::CommandStatus::Done;
}

segment::CommandStatus ConnectionSetup::reject(const segment::Command& command) noexcept {
  if (!connector_.take_request(command)) return segment::CommandStatus::UnknownConnection;
  connector_.refuse(command);
  return segment::CommandStatus::Done;
}

std::optional<segment::CommandStatus> ConnectionSetup::finish(const segment::Event& done) noexcept {
  rpcrdma::Connection* const connection = connections_.find(done.connection, done.incarnation);
  if (connection == nullptr) return segment::CommandStatus::Failed;  // it has ended meanwhile
  switch (connection->queue_pair().state()) {
    case rdma::QueuePair::State::Init:
      return std::nullopt;
    case rdma::QueuePair::State::ReadyToSend:
      if (connections_.record(*connection).outgoing) mark_established(*connection);
      return segment::CommandStatus::Done;
    case rdma::QueuePair::State::Error:
      connection->close(rpcrdma::CloseReason::LocalClose);
      break;
  }
  return segment::CommandStatus::Failed;
}

rpcrdma::ConnectionConfig ConnectionSetup::connection_config(const segment::Command& command) const noexcept {
  return {.receive_inline_bytes = command.receive_inline_bytes,
          .send_inline_bytes = command.send_inline_bytes,
          .credit_grant = command.credits,
          .first_grant = command.first_grant,
          .client_class = command.client_class,
          .credits_requested = engine_.config().callers > 0 ? rpcrdma::kCallBacksAtOnce : 0,
          .services_at = static_cast<std::uint16_t>(command.services_at),
          .reply_chunks = config_.reply_chunks,
          .progress_timeout_ns = config_.progress_timeout_ns,
          .probe_after_ns = config_.probe_after_ns,
          .max_version = config_.max_version,
          .version2 = config_.version2};
}

// --- The connection itself

rdma::QueuePair* ConnectionSetup::open(rpcrdma::Connection& connection,
                                       const rpcrdma::ConnectionConfig& config, const PeerAddress& peer,
                                       rpcrdma::Requester* requester) noexcept {
  std::unique_ptr<rdma::QueuePair> qp;
  try {
    qp = engine_.device().create_queue_pair(engine_.queue_pair_limits());
  } catch (const std::exception&) {
    ++counters_.connect_requests_refused;
    return nullptr;
  }
  rdma::QueuePair* const opened = qp.get();
  connection.open(std::move(qp), config, peer, requester);
  // The control plane judges clients. Properties of a server that we chose ourselves are applied as they are.
  if (config.active)
    connection.set_property_sink(nullptr, nullptr);
  else
    properties_.attach(connection);
  connections_.add();
  return opened;
}

void ConnectionSetup::mark_established(rpcrdma::Connection& connection) noexcept {
  ConnectionRecord& record = connections_.record(connection);
  if (record.established) return;
  record.established = true;
  connection.established();
  publisher_.publish_connection(connection);
}

void ConnectionSetup::disconnect(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept {
  connector_.disconnect(connections_.record(connection));
  connection.close(reason);
}

void ConnectionSetup::check_peer_ready(rpcrdma::Connection& connection) noexcept {
  const ConnectionRecord& record = connections_.record(connection);
  if (record.outgoing || record.established || !connection.heard_from_peer()) return;
  send_connection_up(connection);
  mark_established(connection);
}

void ConnectionSetup::close_if_drained(rpcrdma::Connection& connection) noexcept {
  if (!connections_.record(connection).draining || !connection.responder().idle()) return;
  disconnect(connection, rpcrdma::CloseReason::LocalClose);
}

}  // namespace sluice::reactor
