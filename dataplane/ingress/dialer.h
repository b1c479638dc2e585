// SPDX-License-Identifier: Apache-2.0
//
// Who makes connections to the server for the reverse gateway: the reactor, with connection management. One
// reactor.
#pragma once

#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::ingress {

class Dialer {
 public:
  /// Begins a connection. The requester is attached to it until it has ended or has not come about; the
  /// server's own calls on it go to `callee`. Null: there is no room for one now.
  virtual rpcrdma::Connection* dial(rpcrdma::Requester& requester, service::Service& callee) noexcept = 0;
  /// Ends a connection that was dialed.
  virtual void hang_up(rpcrdma::Connection& connection) noexcept = 0;

 protected:
  ~Dialer() = default;
};

}  // namespace sluice::ingress
