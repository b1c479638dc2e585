// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_setup.h"

#include <algorithm>

#include "dataplane/rpcrdma/link/private_data.h"

namespace sluice::reactor {
namespace {

std::span<const std::byte> private_data(const segment::Command& command) {
  return {command.private_data, std::min<std::size_t>(command.private_data_bytes, rdma::kMaxPrivateData)};
}

}  // namespace

ConnectionSetup::ConnectionSetup(const ReactorConfig& config, rpcrdma::Engine& engine,
                                 ConnectionTable& connections, ConnectionProperties& properties,
                                 Publisher& publisher, EventSender& events, Counters& counters)
    : config_(config),
      engine_(engine),
      cm_(engine.device().connection_manager()),
      peers_(cm_ != nullptr ? cm_->peer_processes() : nullptr),
      connections_(connections),
      properties_(properties),
      publisher_(publisher),
      events_(events),
      counters_(counters) {}

// --- Events of the driver

bool ConnectionSetup::poll_events() noexcept {
  if (cm_ == nullptr) return false;
  std::array<rdma::CmEvent, kCmEventsPerPass> events;
  const std::size_t count = cm_->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events.data(), count)) on_event(event);
  return count > 0;
}

void ConnectionSetup::on_event(const rdma::CmEvent& event) noexcept {
  switch (event.type) {
    case rdma::CmEventType::ConnectRequest:
      return on_connect_request(event);
    case rdma::CmEventType::Established:
      return on_established(event);
    case rdma::CmEventType::Rejected:
    case rdma::CmEventType::Disconnected:
      if (rpcrdma::Connection* connection = connections_.find(event.id))
        connection->close(rpcrdma::CloseReason::PeerClosed);
      if (PendingRequest* pending = find_pending(static_cast<std::uint32_t>(event.id))) pending->used = false;
      return;
  }
}

void ConnectionSetup::on_connect_request(const rdma::CmEvent& event) noexcept {
  ++counters_.connect_requests;
  const auto free = std::find_if(pending_.begin(), pending_.end(), [](const auto& p) { return !p.used; });
  if (free == pending_.end()) {
    ++counters_.connect_requests_refused;
    cm_->reject(event.id, {});
    return;
  }
  *free = {.used = true, .announced = false, .event = event};
}

void ConnectionSetup::on_established(const rdma::CmEvent& event) noexcept {
  rpcrdma::Connection* const connection = connections_.find(event.id);
  if (connection == nullptr) return;
  if (connections_.record(*connection).outgoing)
    connection->set_send_inline_bytes(rpcrdma::send_inline_bytes(
        rpcrdma::decode_private_data({event.private_data, event.private_data_bytes}),
        config_.dial.inline_bytes));
  mark_established(*connection);
  send_connection_up(*connection);
}

// --- To the control plane

void ConnectionSetup::announce_requests() noexcept {
  for (PendingRequest& pending : pending_) {
    if (!pending.used || pending.announced) continue;
    segment::Event event{.type = segment::EventType::ConnectRequest,
                         .cm_id = static_cast<std::uint32_t>(pending.event.id),
                         .port = pending.event.port,
                         .peer_pid = peers_ != nullptr ? peers_->pid(pending.event.id) : 0,
                         .peer = pending.event.peer_address,
                         .private_data_bytes = pending.event.private_data_bytes};
    std::copy_n(pending.event.private_data, pending.event.private_data_bytes, event.private_data);
    pending.announced = events_.try_send(event);
    if (!pending.announced) return;
  }
}

void ConnectionSetup::forget_announcements() noexcept {
  for (PendingRequest& pending : pending_) pending.announced = false;
}

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
  PendingRequest* const pending = find_pending(command.cm_id);
  if (pending == nullptr) return segment::CommandStatus::UnknownConnection;
  const rdma::CmEvent event = pending->event;
  pending->used = false;
  rpcrdma::Connection* const connection = engine_.free_connection();
  if (connection == nullptr) {
    ++counters_.connect_requests_refused;
    cm_->reject(event.id, {});
    return segment::CommandStatus::NoRoom;
  }
  rdma::QueuePair* const qp = open(*connection, connection_config(command), event.peer_address, nullptr);
  if (qp == nullptr) {
    cm_->reject(event.id, {});
    return segment::CommandStatus::NoRoom;
  }
  if (!cm_->accept(event.id, *qp, private_data(command))) {
    connection->close(rpcrdma::CloseReason::PeerClosed);
    return segment::CommandStatus::Failed;
  }
  const ConnectionRecord& record =
      connections_.begin(*connection, {.cm_id = event.id,
                                       .peer_pid = peers_ != nullptr ? peers_->pid(event.id) : 0,
                                       .since_ns = segment::wall_ns()});
  done.connection = connection->number();
  done.incarnation = record.incarnation;
  publisher_.publish_connection(*connection);
  return segment::CommandStatus::Done;
}

segment::CommandStatus ConnectionSetup::reject(const segment::Command& command) noexcept {
  PendingRequest* const pending = find_pending(command.cm_id);
  if (pending == nullptr) return segment::CommandStatus::UnknownConnection;
  cm_->reject(pending->event.id, private_data(command));
  pending->used = false;
  return segment::CommandStatus::Done;
}

segment::CommandStatus ConnectionSetup::establish(const segment::Command& command,
                                                  segment::Event& done) noexcept {
  ++counters_.connect_requests;
  rpcrdma::Connection* const connection = engine_.free_connection();
  if (connection == nullptr) {
    ++counters_.connect_requests_refused;
    return segment::CommandStatus::NoRoom;
  }
  rdma::QueuePair* const qp =
      open(*connection, connection_config(command), command.attributes.remote, nullptr);
  if (qp == nullptr) return segment::CommandStatus::NoRoom;
  const auto queue_pair = static_cast<std::uint32_t>(qp->number());
  const ConnectionRecord& record =
      connections_.begin(*connection, {.cm_id = static_cast<rdma::CmId>(command.cm_id),
                                       .since_ns = segment::wall_ns(),
                                       .queue_pair = queue_pair,
                                       .cm_state = command.cm_state});
  if (!qp->connect(command.attributes)) {
    connection->close(rpcrdma::CloseReason::LocalClose);
    return segment::CommandStatus::Failed;
  }
  done.connection = connection->number();
  done.incarnation = record.incarnation;
  done.queue_pair = queue_pair;
  publisher_.publish_connection(*connection);
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
          .reply_chunks = config_.reply_chunks,
          .progress_timeout_ns = config_.progress_timeout_ns,
          .probe_after_ns = config_.probe_after_ns,
          .max_version = config_.max_version,
          .version2 = config_.version2};
}

ConnectionSetup::PendingRequest* ConnectionSetup::find_pending(std::uint32_t cm_id) noexcept {
  for (PendingRequest& pending : pending_)
    if (pending.used && static_cast<std::uint32_t>(pending.event.id) == cm_id) return &pending;
  return nullptr;
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
  if (cm_ != nullptr) cm_->disconnect(connections_.record(connection).cm_id);
  connection.close(reason);
}

void ConnectionSetup::check_peer_ready(rpcrdma::Connection& connection) noexcept {
  const ConnectionRecord& record = connections_.record(connection);
  const bool awaited = record.queue_pair != 0 && !record.outgoing && !record.established;
  if (!awaited || !connection.heard_from_peer()) return;
  send_connection_up(connection);
  mark_established(connection);
}

void ConnectionSetup::close_if_drained(rpcrdma::Connection& connection) noexcept {
  if (!connections_.record(connection).draining || !connection.responder().idle()) return;
  disconnect(connection, rpcrdma::CloseReason::LocalClose);
}

}  // namespace sluice::reactor
