// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/commands.h"

namespace sluice::reactor {
namespace {

rpcrdma::CloseReason close_reason(std::uint32_t reason) {
  const bool known =
      reason != 0 && reason <= static_cast<std::uint32_t>(rpcrdma::CloseReason::NoCommonVersion);
  return known ? static_cast<rpcrdma::CloseReason>(reason) : rpcrdma::CloseReason::LocalClose;
}

bool makes_connection(const segment::Command& command) noexcept {
  return command.type == segment::CommandType::Accept || command.type == segment::CommandType::Establish ||
         command.type == segment::CommandType::Connect;
}

}  // namespace

Commands::Commands(segment::ReactorArea& area, ConnectionTable& connections, ConnectionSetup& setup,
                   ServerDialer& dialer, Publisher& publisher, EventSender& events, Counters& counters,
                   Clock clock)
    : area_(area),
      connections_(connections),
      setup_(setup),
      dialer_(dialer),
      publisher_(publisher),
      events_(events),
      counters_(counters),
      clock_(clock) {}

bool Commands::poll() noexcept {
  segment::Command command;
  for (std::size_t count = 0; count < kCommandsPerPass; ++count) {
    if (waiting_)
      command = *waiting_;
    else if (!area_.commands.pop(command))
      return count > 0;
    if (makes_connection(command) && !pace_.due(clock_())) {
      if (!waiting_) ++counters_.connections_delayed;
      waiting_ = command;
      return true;
    }
    waiting_.reset();
    run(command);
  }
  return true;
}

void Commands::run(const segment::Command& command) noexcept {
  segment::Event done{.type = segment::EventType::CommandDone,
                      .id = command.id,
                      .cm_id = command.cm_id,
                      .connection = command.connection,
                      .peer = {}};
  const std::uint64_t begin_ns = makes_connection(command) ? clock_() : 0;
  done.status = execute(command, done);
  if (begin_ns != 0) pace_.made(begin_ns, clock_());
  ++(done.status == segment::CommandStatus::Done ? counters_.commands : counters_.commands_refused);
  if (command.id != 0) events_.send(done);
}

segment::CommandStatus Commands::execute(const segment::Command& command, segment::Event& done) noexcept {
  using segment::CommandStatus;
  switch (command.type) {
    case segment::CommandType::Accept:
      return setup_.accept(command);
    case segment::CommandType::Reject:
      return setup_.reject(command);
    case segment::CommandType::Establish:
      return setup_.establish(command, done);
    case segment::CommandType::Connect:
      return dialer_.connect(command, done);
    case segment::CommandType::ConnectFailed:
      return dialer_.connect_failed(command);
    case segment::CommandType::Established:
    case segment::CommandType::Ended:
      return execute_on_peer(command);
    case segment::CommandType::Abandon:
      setup_.abandon(static_cast<rdma::CmId>(command.cm_id));
      return CommandStatus::Done;
    case segment::CommandType::Shutdown:
      shutdown_ = true;
      return CommandStatus::Done;
    case segment::CommandType::Close:
    case segment::CommandType::Drain:
    case segment::CommandType::SetCredits:
    case segment::CommandType::SetParameters:
    case segment::CommandType::Admit:
    case segment::CommandType::Trace:
      break;
  }
  rpcrdma::Connection* const connection = connections_.find(command.connection, command.cm_id);
  if (connection == nullptr) return CommandStatus::UnknownConnection;
  execute_on(*connection, command);
  return CommandStatus::Done;
}

/// What connection management has heard from the peer. These name a connection by cm_id alone.
segment::CommandStatus Commands::execute_on_peer(const segment::Command& command) noexcept {
  rpcrdma::Connection* const connection = connections_.find(static_cast<rdma::CmId>(command.cm_id));
  if (connection == nullptr) return segment::CommandStatus::UnknownConnection;
  if (command.type == segment::CommandType::Established)
    setup_.mark_established(*connection);
  else
    connection->close(rpcrdma::CloseReason::PeerClosed);
  return segment::CommandStatus::Done;
}

void Commands::execute_on(rpcrdma::Connection& connection, const segment::Command& command) noexcept {
  switch (command.type) {
    case segment::CommandType::Close:
      setup_.disconnect(connection, close_reason(command.reason));
      return;
    case segment::CommandType::Drain:
      connections_.record(connection).draining = true;
      connection.set_credits(1);
      return;
    case segment::CommandType::SetCredits:
      return set_credits(connection, command);
    case segment::CommandType::Trace:
      connection.responder().set_traced(command.on != 0);
      return;
    case segment::CommandType::Admit:
      if (command.client_class != segment::kKeepClass) connection.set_client_class(command.client_class);
      connection.admit(command.host);
      break;
    case segment::CommandType::SetParameters:
      connection.apply({.send_bytes = command.parameters.send_bytes,
                        .max_segment_bytes = command.parameters.max_segment_bytes,
                        .max_segments = command.parameters.max_segments,
                        .reverse = static_cast<rpcrdma::v2::ReverseSupport>(command.parameters.reverse)});
      break;
    default:
      return;
  }
  publisher_.publish_connection(connection);
}

void Commands::set_credits(rpcrdma::Connection& connection, const segment::Command& command) noexcept {
  // A connection that is being drained keeps its single credit.
  if (!connections_.record(connection).draining) connection.set_credits(command.first_grant);
  if (connection.client_class() == command.client_class) return publisher_.publish_use(connection);
  connection.set_client_class(command.client_class);
  publisher_.publish_connection(connection);
}

}  // namespace sluice::reactor
