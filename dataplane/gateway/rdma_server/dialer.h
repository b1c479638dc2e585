// SPDX-License-Identifier: Apache-2.0
//
// Opens connections to RPC-over-RDMA servers for the gateways. Implemented by the reactor, together with
// connection management. Only the owning reactor may call.
#pragma once

#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/rpcrdma/link/close_reason.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::rpcrdma {
class Connection;
}

namespace sluice::rdma_server {

/// Where a connection goes, and what is asked for there.
struct Server {
  PeerAddress address;  ///< zero with a driver that knows one server only
  std::uint16_t port = 0;
  std::uint32_t credits_requested = 0;
};

class Dialer {
 public:
  /// Starts connecting. The requester is attached to the connection until it ends or fails; the server's own
  /// calls on it go to `callee`. Both outlive it; the engine owns the connection. Null: none is free now.
  virtual rpcrdma::Connection* dial(const Server& server, rpcrdma::Requester& requester,
                                    service::Service& callee) noexcept = 0;
  /// Closes a connection returned by dial().
  virtual void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept = 0;

 protected:
  ~Dialer() = default;
};

}  // namespace sluice::rdma_server
