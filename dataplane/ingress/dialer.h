// SPDX-License-Identifier: Apache-2.0
//
// Opens connections to the server for the reverse gateway. Implemented by the reactor, together with
// connection management. Only the owning reactor may call.
#pragma once

#include "dataplane/rpcrdma/link/close_reason.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::rpcrdma {
class Connection;
}

namespace sluice::ingress {

class Dialer {
 public:
  /// Starts connecting. The requester is attached to the connection until it ends or fails; the server's own
  /// calls on it go to `callee`. Both outlive it; the engine owns the connection. Null: none is free now.
  virtual rpcrdma::Connection* dial(rpcrdma::Requester& requester, service::Service& callee) noexcept = 0;
  /// Closes a connection returned by dial().
  virtual void hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept = 0;

 protected:
  ~Dialer() = default;
};

}  // namespace sluice::ingress
