// SPDX-License-Identifier: Apache-2.0
//
// One client of a gateway, as the connection to the server knows it that is lent to the client. Only the owning
// reactor may call.
#pragma once

#include <cstddef>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_server {

/// Outstanding calls of the server per client; it is granted no more.
inline constexpr std::size_t kMaxServerCalls = 16;

class ServerUser {
 public:
  /// A connection that ServerConnections::take() did not have then.
  virtual void on_lent(ServerConnection& connection) noexcept = 0;
  /// Others wait for the connection, on which no calls are. False: the server's own calls are out.
  virtual bool on_taken() noexcept = 0;
  /// How a call has ended that ServerConnection::submit() took. The requester is busy meanwhile: no call may be
  /// cancelled.
  virtual void on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept = 0;
  /// The server's own calls (RFC 8167).
  virtual void on_server_call(service::Call& call) noexcept = 0;
  /// The connection to the server has ended, and with it what on_server_call() was given.
  virtual void on_server_gone() noexcept = 0;

  QueueLink<ServerUser> wanted_link;  ///< waits for a connection: ServerConnections

 protected:
  ~ServerUser() = default;
};

}  // namespace sluice::rdma_server
