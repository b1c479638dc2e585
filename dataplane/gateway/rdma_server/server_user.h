// SPDX-License-Identifier: Apache-2.0
//
// Interface of a gateway's client towards its assigned connection to the server. Callable only on the owning
// reactor.
#pragma once

#include <cstddef>

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_server {

/// Maximum number of outstanding calls of the server per client. Limits the credits that the server is
/// granted.
inline constexpr std::size_t kMaxServerCalls = 16;

class ServerUser {
 public:
  /// The connection that ServerConnections::take() could not provide earlier is available.
  virtual void on_lent(ServerConnection& connection) noexcept = 0;
  /// Another client waits for the connection, which has no calls. Returns false if calls of the server are
  /// outstanding.
  virtual bool on_taken() noexcept = 0;
  /// Reports the result of a call that ServerConnection::submit() accepted. The requester is busy during this
  /// call, so no call may be cancelled.
  virtual void on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept = 0;
  /// Delivers a call that the server makes to the client (RFC 8167).
  virtual void on_server_call(service::Call& call) noexcept = 0;
  /// The connection to the server has ended, and with it all calls passed to on_server_call().
  virtual void on_server_gone() noexcept = 0;

  QueueLink<ServerUser> wanted_link;  ///< in ServerConnections, while the client waits for a connection

 protected:
  ~ServerUser() = default;
};

}  // namespace sluice::rdma_server
