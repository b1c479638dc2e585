// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/connection_setup.h"

#include <cstring>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/properties.h"
#include "dataplane/rpcrdma/link/config.h"

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

// --- Actions of peers

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

// --- Events to the control plane

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
    static_cast<void>(
        SLUICE_INVARIANT(connection->state() == rpcrdma::Connection::State::Closed, reactor_state));
    const ConnectionRecord record = connections_.remove(*connection);
    publisher_.publish_connection(*connection);  // published before the hint is sent
    events_.send({.type = segment::EventType::ConnectionDown,
                  .cm_id = static_cast<std::uint32_t>(record.cm_id),
                  .connection = connection->number(),
                  .incarnation = record.incarnation,
                  .queue_pair = record.queue_pair,
                  .outgoing = record.outgoing,
                  .reason = static_cast<std::uint32_t>(connection->close_reason()),
                  .work_status = static_cast<std::uint32_t>(connection->failure().status),
                  .vendor_error = connection->failure().vendor_error,
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
  static_cast<void>(SLUICE_INVARIANT(record.incarnation != 0 && !record.established, reactor_state));
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
  if (connection == nullptr) return segment::CommandStatus::Failed;  // the connection has been closed
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

// --- Connections

rdma::QueuePair* ConnectionSetup::open(rpcrdma::Connection& connection,
                                       const rpcrdma::ConnectionConfig& config, const PeerAddress& peer,
                                       rpcrdma::Requester* requester) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!connection.is_open(), reactor_state));
  Owned<rdma::QueuePair> qp;
  try {
    rdma::QueuePairLimits limits = engine_.queue_pair_limits();
    if (requester != nullptr) limits.domain = requester->domain();
    qp = engine_.device().create_queue_pair(limits);
  } catch (const std::exception&) {
    ++counters_.connect_requests_refused;
    return nullptr;
  }
  rdma::QueuePair* const opened = qp.get();
  connection.open(std::move(qp), config, peer, requester);
  // The control plane validates the properties of clients. The properties of a server, which we have chosen,
  // are applied without validation.
  if (config.active)
    connection.set_property_sink(nullptr, nullptr);
  else
    properties_.attach(connection);
  static_cast<void>(
      SLUICE_INVARIANT(connection.is_open() && &connection.queue_pair() == opened, reactor_state));
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
  static_cast<void>(SLUICE_INVARIANT(connection.is_open(), reactor_state));
  const ConnectionRecord& record = connections_.record(connection);
  if (record.outgoing || record.established || !connection.heard_from_peer()) return;
  send_connection_up(connection);
  mark_established(connection);
}

void ConnectionSetup::close_if_drained(rpcrdma::Connection& connection) noexcept {
  if (!connections_.record(connection).draining || !connection.responder().idle()) return;
  disconnect(connection, rpcrdma::CloseReason::LocalClose);
}

// --- Connection table

ConnectionRecord& ConnectionTable::begin(const rpcrdma::Connection& connection,
                                         const ConnectionRecord& record) noexcept {
  // The count is stored before the incarnation is used, so a crash in between only skips a number.
  std::uint32_t incarnation = incarnations_.load(std::memory_order_relaxed) + 1;
  if (incarnation == 0) incarnation = 1;
  incarnations_.store(incarnation, std::memory_order_relaxed);
  ConnectionRecord& begun = this->record(connection);
  static_cast<void>(SLUICE_INVARIANT(begun.incarnation == 0, reactor_state));
  begun = record;
  begun.incarnation = incarnation;
  return begun;
}

rpcrdma::Connection* ConnectionTable::find(rdma::CmId id) noexcept {
  for (std::uint16_t i = 0; i < size(); ++i)
    if (records_[i].cm_id == id && engine_.connection(i).is_open()) return &engine_.connection(i);
  return nullptr;
}

rpcrdma::Connection* ConnectionTable::find_number(std::uint32_t number) noexcept {
  if (number >= records_.size()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  return connection.is_open() ? &connection : nullptr;
}

rpcrdma::Connection* ConnectionTable::find(std::uint32_t number, std::uint32_t incarnation) noexcept {
  rpcrdma::Connection* const connection = find_number(number);
  return connection != nullptr && records_[number].incarnation == incarnation ? connection : nullptr;
}

rpcrdma::Connection* ConnectionTable::find_dialed(std::uint32_t number, std::uint32_t queue_pair) noexcept {
  if (number >= records_.size()) return nullptr;
  rpcrdma::Connection& connection = engine_.connection(static_cast<std::uint16_t>(number));
  const ConnectionRecord& record = records_[number];
  const bool same = record.outgoing && !record.established && record.queue_pair == queue_pair;
  return connection.is_open() && same ? &connection : nullptr;
}

// --- Properties of connections

bool ConnectionProperties::poll() noexcept {
  return relay_.poll(
      [this](std::uint16_t number, std::uint32_t incarnation, std::span<const std::byte> octets) {
        rpcrdma::Connection* const connection = connections_.find(number, incarnation);
        return connection == nullptr || connection->send_host_authentication(octets);
      });
}

bool ConnectionProperties::on_properties(void* self, rpcrdma::Connection& connection,
                                         std::span<const std::byte> body, bool first) noexcept {
  auto& properties = *static_cast<ConnectionProperties*>(self);
  const std::uint32_t incarnation = properties.connections_.record(connection).incarnation;
  return properties.relay_.take(connection.number(), incarnation, body, first);
}

// --- Property relay

PropertyRelay::PropertyRelay(segment::ReactorArea& area) : area_(area) {
  for (Box& box : outboxes_) {
    box.octets.resize(rpcrdma::kMaxPropertyBytes);
    free_.push(&box);
  }
  inbox_.octets.resize(rpcrdma::kMaxPropertyBytes);
}

bool PropertyRelay::take(std::uint16_t connection, std::uint32_t incarnation, std::span<const std::byte> body,
                         bool first) noexcept {
  if (free_.empty() || body.size() > rpcrdma::kMaxPropertyBytes) return false;
  static_cast<void>(SLUICE_INVARIANT(free_.size() + sending_.size() == kOutboxes, pool_balance));
  Box& box = *free_.pop();
  box.connection = connection;
  box.incarnation = incarnation;
  box.first = first;
  box.bytes = static_cast<std::uint32_t>(body.size());
  box.sent = 0;
  if (!body.empty()) std::memcpy(box.octets.data(), body.data(), body.size());
  static_cast<void>(SLUICE_INVARIANT(box.octets.size() >= box.bytes, buffer_bounds));
  sending_.push_back(&box);
  push_parts();
  return true;
}

bool PropertyRelay::push_parts() noexcept {
  bool any = false;
  for (std::size_t i = 0; i < kPartsPerTurn && !sending_.empty(); ++i) {
    Box& box = *sending_.front();
    static_cast<void>(
        SLUICE_INVARIANT(box.sent <= box.bytes && box.bytes <= box.octets.size(), buffer_bounds));
    segment::PropertyPart part{
        .connection = box.connection,
        .incarnation = box.incarnation,
        .first_set = box.first ? 1u : 0u,
        .total_bytes = box.bytes,
        .offset = box.sent,
        .bytes = smaller_of<std::uint32_t>(box.bytes - box.sent, segment::PropertyPart::kBytes)};
    std::memcpy(part.octets.data(), box.octets.data() + box.sent, part.bytes);
    if (!area_.properties_up.push(part)) break;
    any = true;
    box.sent += part.bytes;
    if (box.sent == box.bytes) free_.push(sending_.pop_front());
  }
  static_cast<void>(SLUICE_INVARIANT(free_.size() + sending_.size() == kOutboxes, pool_balance));
  return any;
}

bool PropertyRelay::pop_part() noexcept {
  static_cast<void>(SLUICE_INVARIANT(!whole_ && inbox_.bytes <= inbox_.octets.size(), reactor_state));
  segment::PropertyPart part;
  if (!area_.properties_down.pop(part)) return false;
  // A control plane that crashed while sending a set may have left some of its parts.
  if (part.offset == 0)
    inbox_.connection = static_cast<std::uint16_t>(part.connection), inbox_.incarnation = part.incarnation,
    inbox_.bytes = 0;
  const bool fits = part.bytes <= segment::PropertyPart::kBytes && part.offset == inbox_.bytes &&
                    part.incarnation == inbox_.incarnation &&
                    inbox_.bytes + part.bytes <= inbox_.octets.size();
  if (!fits) return true;
  std::memcpy(inbox_.octets.data() + inbox_.bytes, part.octets.data(), part.bytes);
  inbox_.bytes += part.bytes;
  whole_ = inbox_.bytes == part.total_bytes;
  static_cast<void>(SLUICE_INVARIANT(inbox_.bytes <= inbox_.octets.size(), buffer_bounds));
  return true;
}

// --- Connections to servers

ServerDialer::ServerDialer(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                           Connector& connector, ConnectionSetup& setup, Publisher& publisher)
    : config_(config),
      engine_(engine),
      connections_(connections),
      connector_(connector),
      setup_(setup),
      publisher_(publisher) {}

rpcrdma::Connection* ServerDialer::dial(const rdma_server::Server& server, rpcrdma::Requester& requester,
                                        service::Service& callee) noexcept {
  rpcrdma::Connection* const connection = engine_.free_connection();
  if (connection == nullptr || !setup_.has_queue_pair()) return nullptr;
  const DialConfig& dial = config_.dial;
  rpcrdma::Version2Config version2 = config_.version2;
  version2.hold_calls = false;
  rdma::QueuePair* const qp = setup_.open(*connection,
                                          {.receive_inline_bytes = dial.inline_bytes,
                                           .credit_grant = dial.call_backs,
                                           .credits_requested = server.credits_requested,
                                           .sole_service = &callee,
                                           .reply_chunks = config_.reply_chunks,
                                           .active = true,
                                           .server_port = server.port,
                                           .progress_timeout_ns = config_.progress_timeout_ns,
                                           .probe_after_ns = config_.probe_after_ns,
                                           .max_version = config_.max_version,
                                           .version2 = version2},
                                          server.address, &requester);
  if (qp == nullptr) return nullptr;
  ConnectionRecord& record =
      connections_.begin(*connection, {.outgoing = true,
                                       .server = server.address,
                                       .server_port = server.port,
                                       .since_ns = segment::wall_ns(),
                                       .queue_pair = static_cast<std::uint32_t>(qp->number())});
  static_cast<void>(SLUICE_INVARIANT(record.outgoing && record.incarnation != 0, reactor_state));
  if (!connector_.connect(*qp, record)) connection->close(rpcrdma::CloseReason::PeerClosed);
  publisher_.publish_connection(*connection);
  return connection;
}

void ServerDialer::hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept {
  setup_.disconnect(connection, reason);
}

segment::CommandStatus ServerDialer::connect(const segment::Command& command, segment::Event& done) noexcept {
  rpcrdma::Connection* const connection = connections_.find_dialed(command.connection, command.queue_pair);
  if (connection == nullptr) return segment::CommandStatus::UnknownConnection;
  ConnectionRecord& record = connections_.record(*connection);
  static_cast<void>(SLUICE_INVARIANT(record.outgoing && !record.established, reactor_state));
  record.cm_id = static_cast<rdma::CmId>(command.cm_id);
  record.cm_state = command.cm_state;
  done.incarnation = record.incarnation;
  done.queue_pair = record.queue_pair;
  connection->set_send_inline_bytes(command.send_inline_bytes);
  if (!connection->queue_pair().connect(command.attributes)) {
    connection->close(rpcrdma::CloseReason::LocalClose);
    return segment::CommandStatus::Failed;
  }
  return segment::CommandStatus::Done;
}

segment::CommandStatus ServerDialer::connect_failed(const segment::Command& command) noexcept {
  rpcrdma::Connection* const connection = connections_.find_dialed(command.connection, command.queue_pair);
  if (connection == nullptr) return segment::CommandStatus::UnknownConnection;
  connection->close(rpcrdma::CloseReason::PeerClosed);
  return segment::CommandStatus::Done;
}

}  // namespace sluice::reactor
