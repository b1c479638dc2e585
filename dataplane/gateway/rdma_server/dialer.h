// SPDX-License-Identifier: Apache-2.0
//
// Interface through which the gateways connect to RPC-over-RDMA servers. Implemented by the reactor together
// with connection management. Callable only on the owning reactor.
#pragma once

#include <cstdint>

#include "dataplane/base/net_address.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::rpcrdma {
class Connection;
}

namespace sluice::rdma_server {

/// Address of a server and the credits to request there.
struct Server {
  PeerAddress address;  ///< zero if the driver reaches a single server only
  std::uint16_t port = 0;
  std::uint32_t credits_requested = 0;
};

class Dialer {
 public:
  /// Starts a connection. The requester is attached until the connection ends or fails, and calls that the
  /// server makes on it go to `callee`. Both outlive the connection, which the engine owns. Returns null if
  /// no connection is free.
  virtual rpcrdma::Connection* dial(const Server& server, rpcrdma::Requester& requester,
                                    service::Service& callee) noexcept = 0;
  /// Closes a connection returned by dial().
  virtual void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept = 0;

 protected:
  ~Dialer() = default;
};

}  // namespace sluice::rdma_server
