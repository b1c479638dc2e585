// SPDX-License-Identifier: Apache-2.0
//
// Setup and teardown of the connections of one reactor. Called on the reactor's thread; never blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/gateway/rdma_server/dialer.h"
#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/connector.h"
#include "dataplane/reactor/properties.h"
#include "dataplane/reactor/publisher.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/messages.h"
#include "pmd/connection_manager.h"
#include "pmd/device.h"
#include "pmd/queue_pair.h"

namespace sluice::reactor {

class ConnectionSetup final : private Connector::Listener {
 public:
  /// Called at setup. All arguments must outlive the object.
  ConnectionSetup(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                  Connector& connector, ConnectionProperties& properties, Publisher& publisher,
                  EventSender& events, Counters& counters);

  /// Handles actions of peers. Returns true if there were any.
  bool poll() noexcept { return connector_.poll(*this); }

  // Functions for commands of the control plane.
  /// Accepts a connection request. Sets connection, incarnation and queue pair in `done`. If the status is
  /// Done, finish() returns the final status.
  segment::CommandStatus accept(const segment::Command& command, segment::Event& done) noexcept;
  segment::CommandStatus reject(const segment::Command& command) noexcept;
  /// Returns the status of the connection in `done` that accept() or ServerDialer::connect() has begun to
  /// connect, or nothing while the device is connecting it.
  std::optional<segment::CommandStatus> finish(const segment::Event& done) noexcept;

  /// Returns true if open() gets a queue pair, or an error, without delay.
  bool has_queue_pair() const noexcept { return engine_.device().has_queue_pair(); }

  /// Opens a free connection: creates its queue pair and posts its Receives. Returns null, and counts a
  /// refusal, if the device has no queue pair left.
  rdma::QueuePair* open(rpcrdma::Connection& connection, const rpcrdma::ConnectionConfig& config,
                        const PeerAddress& peer, rpcrdma::Requester* requester) noexcept;
  /// Called when the queue pair can send. Has no effect if the connection is already established.
  void mark_established(rpcrdma::Connection& connection) noexcept;
  /// Closes a connection on both sides.
  void disconnect(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept;

  /// Establishes a connection whose queue pair has received a packet. This covers the loss of the connection
  /// manager's message.
  void check_peer_ready(rpcrdma::Connection& connection) noexcept;
  /// Closes a draining connection that has no calls left.
  void close_if_drained(rpcrdma::Connection& connection) noexcept;
  /// Publishes the end of every closed connection, and sends ConnectionDown as a hint.
  void report_closed() noexcept;

 private:
  void on_established(rdma::CmId id, std::span<const std::byte> private_data) noexcept override;
  void on_ended(rdma::CmId id) noexcept override;
  void send_connection_up(rpcrdma::Connection& connection) noexcept;
  rpcrdma::ConnectionConfig connection_config(const segment::Command& command) const noexcept;

  const ReactorConfig config_;
  rpcrdma::Engine& engine_;
  ConnectionTable& connections_;
  Connector& connector_;
  ConnectionProperties& properties_;
  Publisher& publisher_;
  EventSender& events_;
  Counters& counters_;
};

/// Connections of gateways to RPC-over-RDMA servers. Used on the reactor's thread.
class ServerDialer final : public rdma_server::Dialer {
 public:
  /// Called at setup. All arguments must outlive the dialer.
  ServerDialer(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
               Connector& connector, ConnectionSetup& setup, Publisher& publisher);

  rpcrdma::Connection* dial(const rdma_server::Server& server, rpcrdma::Requester& requester,
                            service::Service& callee) noexcept override;
  void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept override;

  // Functions for answers of the control plane to ConnectWanted.
  /// Connects a dialed connection. Sets incarnation and queue pair in `done`. If the status is Done,
  /// ConnectionSetup::finish() returns the final status.
  segment::CommandStatus connect(const segment::Command& command, segment::Event& done) noexcept;
  segment::CommandStatus connect_failed(const segment::Command& command) noexcept;

 private:
  const ReactorConfig config_;
  rpcrdma::Engine& engine_;
  ConnectionTable& connections_;
  Connector& connector_;
  ConnectionSetup& setup_;
  Publisher& publisher_;
};

}  // namespace sluice::reactor
