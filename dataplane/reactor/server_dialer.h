// SPDX-License-Identifier: Apache-2.0
//
// Connections of the gateways to RPC-over-RDMA servers. With a driver that manages connections itself it is
// asked; otherwise the control plane is, by ConnectWanted, and answers with Connect or ConnectFailed. The
// reactor's thread.
#pragma once

#include <cstdint>

#include "dataplane/egress/dialer.h"
#include "dataplane/reactor/connection_setup.h"

namespace sluice::reactor {

class ServerDialer final : public egress::Dialer {
 public:
  /// Setup. Everything given outlives it.
  ServerDialer(const ReactorConfig& config, rpcrdma::Engine& engine, ConnectionTable& connections,
               ConnectionSetup& setup, Publisher& publisher, EventSender& events);

  rpcrdma::Connection* dial(const egress::Server& server, rpcrdma::Requester& requester,
                            service::Service& callee) noexcept override;
  void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept override;

  /// ConnectWanted for what was dialed and not asked for. False when the ring is full.
  bool announce_requests() noexcept;
  /// Another control plane runs: what is not established is asked for again.
  void forget_announcements() noexcept;

  // Commands of the control plane.
  /// `done` gets incarnation and queue pair. Done: ConnectionSetup::finish() says what becomes of it.
  segment::CommandStatus connect(const segment::Command& command, segment::Event& done) noexcept;
  segment::CommandStatus connect_failed(const segment::Command& command) noexcept;

 private:
  segment::Event connect_wanted(std::uint16_t number) noexcept;

  const ReactorConfig config_;
  rpcrdma::Engine& engine_;
  rdma::ConnectionManager* const cm_;  ///< null: connection management is the control plane's
  ConnectionTable& connections_;
  ConnectionSetup& setup_;
  Publisher& publisher_;
  EventSender& events_;
  bool unsent_ = false;  ///< some connection may have ConnectionRecord::request_unsent
};

}  // namespace sluice::reactor
