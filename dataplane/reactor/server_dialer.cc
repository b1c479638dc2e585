// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/server_dialer.h"

namespace sluice::reactor {

ServerDialer::ServerDialer(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                           Connector& connector, ConnectionSetup& setup, Publisher& publisher)
    : config_(config),
      engine_(engine),
      connections_(connections),
      connector_(connector),
      setup_(setup),
      publisher_(publisher) {}

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
