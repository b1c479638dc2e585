// SPDX-License-Identifier: Apache-2.0
//
// How connections begin and end at one reactor. Clients': with a driver that manages connections itself
// (loopback), its requests wait here for the control plane's Accept or Reject; otherwise the control plane
// agrees with the peer on its own and sends Establish. The reactor's thread; nothing blocks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "dataplane/reactor/config.h"
#include "dataplane/reactor/connection_properties.h"
#include "dataplane/reactor/connection_table.h"
#include "dataplane/reactor/counters.h"
#include "dataplane/reactor/event_sender.h"
#include "dataplane/reactor/publisher.h"

namespace sluice::reactor {

inline constexpr std::size_t kCmEventsPerPass = 8;
/// Connection requests that wait for the control plane; further ones are refused.
inline constexpr std::size_t kMaxPendingRequests = 64;

class ConnectionSetup {
 public:
  /// Setup. Everything given outlives it.
  ConnectionSetup(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
                  ConnectionProperties& properties, Publisher& publisher, EventSender& events,
                  Counters& counters);

  /// Events of the driver's connection management, if it has one. True when there were any.
  bool poll_events() noexcept;
  /// ConnectRequest events for what is pending and not announced. Stops when the ring is full.
  void announce_requests() noexcept;
  /// Another control plane runs: what is pending is announced again.
  void forget_announcements() noexcept;

  // Commands of the control plane.
  /// `done` gets connection and incarnation.
  segment::CommandStatus accept(const segment::Command& command, segment::Event& done) noexcept;
  segment::CommandStatus reject(const segment::Command& command) noexcept;
  /// `done` gets connection, incarnation and queue pair. Done: finish() says what becomes of it.
  segment::CommandStatus establish(const segment::Command& command, segment::Event& done) noexcept;
  /// The connection that Establish or Connect has begun to connect, as `done` names it. Nothing while the device connects it.
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
  struct PendingRequest {
    bool used = false;
    bool announced = false;  ///< to the control plane that runs now
    rdma::CmEvent event;
  };

  void on_event(const rdma::CmEvent& event) noexcept;
  void on_connect_request(const rdma::CmEvent& event) noexcept;
  void on_established(const rdma::CmEvent& event) noexcept;
  void send_connection_up(rpcrdma::Connection& connection) noexcept;
  rpcrdma::ConnectionConfig connection_config(const segment::Command& command) const noexcept;
  PendingRequest* find_pending(std::uint32_t cm_id) noexcept;

  const ReactorConfig config_;
  rpcrdma::Engine& engine_;
  rdma::ConnectionManager* const cm_;  ///< null: connection management is the control plane's
  rdma::PeerProcesses* const peers_;   ///< null: peers are not processes of this machine
  ConnectionTable& connections_;
  ConnectionProperties& properties_;
  Publisher& publisher_;
  EventSender& events_;
  Counters& counters_;
  std::array<PendingRequest, kMaxPendingRequests> pending_{};
};

}  // namespace sluice::reactor
