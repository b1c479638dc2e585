// SPDX-License-Identifier: Apache-2.0
//
// Connections of gateways to RPC-over-RDMA servers. Used on the reactor's thread.
#pragma once

#include <cstdint>

#include "dataplane/gateway/rdma_server/dialer.h"
#include "dataplane/reactor/connection_setup.h"

namespace sluice::reactor {

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
