// SPDX-License-Identifier: Apache-2.0
//
// One client of a relay: forwards the client's calls over its assigned connection to the server and returns
// the replies. Callable only on the owning reactor. Never allocates after construction.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/gateway/rdma_server/client_buffers.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/rdma_upstream/relay_call.h"
#include "dataplane/gateway/rdma_upstream/server_calls.h"
#include "dataplane/segment/gateways.h"

namespace sluice::rdma_upstream {

class Relay;

class RelayClient final : public rdma_server::ServerUser {
 public:
  explicit RelayClient(Relay& relay);
  RelayClient(const RelayClient&) = delete;
  RelayClient& operator=(const RelayClient&) = delete;

  // Called by the services.
  void submit(RelayCall& relayed, service::Client& client) noexcept;
  /// Writes the results of a call from its reply. Returns false if the transport has no room for them yet.
  bool deliver(RelayCall& relayed) noexcept;
  /// Releases everything that a call holds at the server.
  void release(RelayCall& relayed) noexcept;
  /// The client's connection has ended.
  void gone() noexcept;

  // Called by the relay.
  std::uint32_t records_held() const noexcept { return buffers_.records_held(); }
  /// Performs the work that was deferred by Relay::schedule() while the requester or the transport was busy.
  void act() noexcept;
  /// Retries the first waiting call after a release.
  void resume() noexcept { pump(); }
  /// Returns the connection to the server once it has no calls. Returns false when closing is complete.
  bool finish_closing() noexcept;

  void on_lent(rdma_server::ServerConnection& connection) noexcept override;
  bool on_taken() noexcept override;
  void on_reply(rdma_server::ClientCall& call, const rpcrdma::Reply& reply) noexcept override;
  void on_server_call(service::Call& call) noexcept override;
  void on_server_gone() noexcept override { server_calls_.drop_all(); }

  QueueLink<RelayClient> scheduled_link;  ///< link for act()
  QueueLink<RelayClient> waiting_link;    ///< link for resume()
  QueueLink<RelayClient> closing_link;    ///< link for finish_closing()

 private:
  void pump() noexcept;
  bool begin(RelayCall& relayed) noexcept;
  bool send(RelayCall& relayed, rdma_server::ClientCall& call) noexcept;
  void wait_for_release() noexcept;
  bool wait(segment::UpstreamCounter why) noexcept;
  void lose(RelayCall& relayed) noexcept;
  void free(rdma_server::ClientCall& call) noexcept;
  void cancel_calls() noexcept;

  Relay& relay_;
  service::Client* client_ = nullptr;  ///< null after the client's connection has ended
  bool closing_ = false;               ///< calls of a disconnected client are still at the server
  bool cancels_ = false;               ///< act() has to cancel these calls
  bool disconnects_ = false;           ///< act() has to disconnect the client, so that it retransmits lost
                                       ///< calls
  rdma_server::ServerConnection* server_ = nullptr;  ///< null: assigned with the next call
  rdma_server::ClientBuffers buffers_;
  RelayCallList waiting_;
  RelayCallList lost_;
  ServerCalls server_calls_;
};

}  // namespace sluice::rdma_upstream
