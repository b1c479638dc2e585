// SPDX-License-Identifier: Apache-2.0
//
// Interface of a gateway's client towards its assigned connection to the server. Callable only on the owning
// reactor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_server {

/// Maximum number of outstanding calls of the server per client. Limits the credits that the server is
/// granted.
inline constexpr std::size_t kMaxServerCalls = 16;

/// Interface of a gateway's client towards the connection to the server that it borrows.
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

/// Maximum number of users that retry per iteration.
inline constexpr std::uint32_t kResumedInATurn = 64;

/// Queue of server-side users that wait for a release: of a call, of memory, or of room in a queue. A release
/// may help any waiting user, so all of them retry in queue order, a limited number per iteration. A user
/// that still has to wait rejoins the queue at the end.
template <typename User, QueueLink<User> User::*Link>
class ReleaseWaiters {
 public:
  /// Adds a user at the end. No effect if the user already waits.
  void push_back(User& user) noexcept {
    if ((user.*Link).linked()) return;
    queue_.push_back(user);
    ++count_;
  }
  /// Marks all users that wait now for a retry.
  void on_release() noexcept { to_resume_ = count_; }
  /// Calls resume() for a limited number of marked users. Returns false if no user is marked.
  bool resume_some() noexcept {
    const std::uint32_t some = smaller_of(to_resume_, kResumedInATurn);
    SLUICE_INVARIANT_DEBUG(to_resume_ <= count_, list_membership);
    for (std::uint32_t i = 0; i < some; ++i) {
      SLUICE_INVARIANT_DEBUG(!queue_.empty() && count_ > 0, list_membership);
      --to_resume_;
      --count_;
      queue_.pop_front()->resume();
    }
    return some > 0;
  }

 private:
  IntrusiveQueue<User, Link> queue_;
  std::uint32_t count_ = 0;
  std::uint32_t to_resume_ = 0;  ///< number of users at the front of the queue that are marked for a retry
};

/// Completes a server's call with the client's reply message. Returns false and completes the call with
/// SYSTEM_ERR if the reply is not an RPC message or exceeds the room that the server offers.
inline bool complete_with_reply(service::Call& call, std::span<const std::byte> reply) noexcept {
  if (reply.size() < xdr::kUnit || !call.require_results(reply.size())) {
    call.complete(rpc::AcceptStat::SystemErr);
    return false;
  }
  call.write_whole_reply();
  call.results().opaque_fixed(reply.subspan(xdr::kUnit));
  call.complete(rpc::AcceptStat::Success);
  return true;
}

}  // namespace sluice::rdma_server
