// SPDX-License-Identifier: Apache-2.0
//
// Opens the connections of a relay to an RdmaServer. Runs on the relay's thread.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "dataplane/gateway/rdma_server/dialer.h"
#include "dataplane/rpcrdma/engine.h"
#include "pmd/loopback/loopback.h"
#include "tests/bench/rdma_server.h"

namespace sluice::bench {

class RelayDialer final : public rdma_server::Dialer {
 public:
  RelayDialer(rdma::loopback::Loopback& device, rpcrdma::Engine& engine) : device_(device), engine_(engine) {}

  rpcrdma::Connection* dial(const rdma_server::Server& server, rpcrdma::Requester& requester,
                            service::Service& callee) noexcept override {
    connection_ = engine_.free_connection();
    if (connection_ == nullptr) return nullptr;
    if (connection_ == nullptr) return nullptr;
    connection_->open(device_.create_queue_pair(engine_.queue_pair_limits()),
                      {.send_inline_bytes = 4096,
                       .credit_grant = 2,
                       .credits_requested = server.credits_requested,
                       .sole_service = &callee,
                       .active = true},
                      {}, &requester);
    id_ = device_.connection_manager()->connect(connection_->queue_pair(), kRdmaServerPort, {});
    return connection_;
  }
  void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept override {
    connection.close(reason);
  }

  /// Establishes the connection that was dialed last when its event arrives.
  void poll() {
    if (connection_ == nullptr) return;
    rdma::CmEvent events[4];
    for (const rdma::CmEvent& event : std::span(events, device_.connection_manager()->poll_events(events)))
      if (event.id == id_ && event.type == rdma::CmEventType::Established)
        std::exchange(connection_, nullptr)->established();
  }

 private:
  rdma::loopback::Loopback& device_;
  rpcrdma::Engine& engine_;
  rpcrdma::Connection* connection_ = nullptr;  ///< being established
  std::optional<rdma::CmId> id_;
};

}  // namespace sluice::bench
