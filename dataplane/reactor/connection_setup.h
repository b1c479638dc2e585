// SPDX-License-Identifier: Apache-2.0
//
// How connections begin and end at one reactor. The reactor's thread; nothing blocks.
#pragma once

#include <optional>
#include <span>

#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_properties.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/connector.h"
#include "dataplane/reactor/counters.h"
#include "dataplane/reactor/event_sender.h"
#include "dataplane/reactor/publisher.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/segment/messages.h"
#include "pmd/connection_manager.h"
#include "pmd/device.h"
#include "pmd/queue_pair.h"

namespace sluice::reactor {

class ConnectionSetup final : private Connector::Listener {
 public:
  /// Setup. Everything given outlives it.
  ConnectionSetup(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                  Connector& connector, ConnectionProperties& properties, Publisher& publisher,
                  EventSender& events, Counters& counters);

  /// What peers have done. True when there was something.
  bool poll() noexcept { return connector_.poll(*this); }

  // Commands of the control plane.
  /// `done` gets connection, incarnation and queue pair. Done: finish() says what becomes of it.
  segment::CommandStatus accept(const segment::Command& command, segment::Event& done) noexcept;
  segment::CommandStatus reject(const segment::Command& command) noexcept;
  /// The connection that Accept or Connect has begun to connect, as `done` names it. Nothing while the device connects it.
  std::optional<segment::CommandStatus> finish(const segment::Event& done) noexcept;

  /// Whether open() finds a queue pair or is refused one at once.
  bool has_queue_pair() const noexcept { return engine_.device().has_queue_pair(); }

  /// A queue pair for a connection that is free, with its Receives posted. Null and counted as refused when
  /// the device has none left.
  rdma::QueuePair* open(rpcrdma::Connection& connection, const rpcrdma::ConnectionConfig& config,
                        const PeerAddress& peer, rpcrdma::Requester* requester) noexcept;
  /// The queue pair can send. Harmless when that is known.
  void mark_established(rpcrdma::Connection& connection) noexcept;
  /// Ends a connection at both sides.
  void disconnect(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept;

  /// A packet on the queue pair shows that the peer is ready, also when the message that says so was lost.
  void check_peer_ready(rpcrdma::Connection& connection) noexcept;
  /// Ends a connection that was to be drained and has no call left.
  void close_if_drained(rpcrdma::Connection& connection) noexcept;
  /// Publishes the end of every connection that has come to it, and hints at it with ConnectionDown.
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

}  // namespace sluice::reactor
