// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/server_dialer.h"

#include <algorithm>

#include "dataplane/rpcrdma/link/private_data.h"

namespace sluice::reactor {
namespace {

auto private_data(const DialConfig& dial) {
  return rpcrdma::encode_private_data(
      {.remote_invalidation = false, .send_bytes = dial.inline_bytes, .receive_bytes = dial.inline_bytes});
}

}  // namespace

ServerDialer::ServerDialer(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                           ConnectionSetup& setup, Publisher& publisher, EventSender& events)
    : config_(config),
      engine_(engine),
      cm_(engine.device().connection_manager()),
      connections_(connections),
      setup_(setup),
      publisher_(publisher),
      events_(events) {}

rpcrdma::Connection* ServerDialer::dial(const egress::Server& server, rpcrdma::Requester& requester,
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
  if (cm_ == nullptr) {
    record.request_unsent = unsent_ = true;
  } else if (const auto id = cm_->connect(*qp, server.port, private_data(dial))) {
    record.cm_id = *id;
  } else {
    connection->close(rpcrdma::CloseReason::PeerClosed);
  }
  publisher_.publish_connection(*connection);
  return connection;
}

void ServerDialer::hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept {
  setup_.disconnect(connection, reason);
}

bool ServerDialer::announce_requests() noexcept {
  if (!unsent_) return true;
  for (std::uint16_t number = 0; number < connections_.size(); ++number) {
    ConnectionRecord& record = connections_.record(number);
    if (!record.request_unsent) continue;
    if (!events_.try_send(connect_wanted(number))) return false;
    record.request_unsent = false;
  }
  unsent_ = false;
  return true;
}

void ServerDialer::forget_announcements() noexcept {
  if (cm_ != nullptr) return;
  for (std::uint16_t number = 0; number < connections_.size(); ++number) {
    ConnectionRecord& record = connections_.record(number);
    if (record.outgoing && !record.established) record.request_unsent = unsent_ = true;
  }
}

segment::Event ServerDialer::connect_wanted(std::uint16_t number) noexcept {
  const auto data = private_data(config_.dial);
  const ConnectionRecord& record = connections_.record(number);
  segment::Event event{.type = segment::EventType::ConnectWanted,
                       .connection = number,
                       .incarnation = record.incarnation,
                       .queue_pair = record.queue_pair,
                       .port = record.server_port,
                       .peer = record.server,
                       .local = local_for(engine_.device().addresses(), record.server),
                       .path_mtu = engine_.device().max_path_mtu(),
                       .private_data_bytes = data.size()};
  std::copy(data.begin(), data.end(), event.private_data);
  return event;
}

segment::CommandStatus ServerDialer::connect(const segment::Command& command, segment::Event& done) noexcept {
  rpcrdma::Connection* const connection = connections_.find_dialed(command.connection, command.queue_pair);
  if (connection == nullptr) return segment::CommandStatus::UnknownConnection;
  ConnectionRecord& record = connections_.record(*connection);
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
