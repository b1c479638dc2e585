// SPDX-License-Identifier: Apache-2.0
//
// One client of a relay: the way of its calls to the connection to the server that it is lent, and back. Only the
// owning reactor may call; no allocation after construction.
#pragma once

#include <cstdint>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/gateway/rdma_server/client_buffers.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/rdma_upstream/relay_call.h"
#include "dataplane/gateway/rdma_upstream/server_calls.h"
#include "dataplane/segment/upstreams.h"

namespace sluice::rdma_upstream {

class Relay;

class RelayClient final : public rdma_server::ServerUser {
 public:
  explicit RelayClient(Relay& relay);
  RelayClient(const RelayClient&) = delete;
  RelayClient& operator=(const RelayClient&) = delete;

  // For the services.
  void submit(RelayCall& relayed, service::Client& client) noexcept;
  /// Writes the results of a call with its reply. False: the transport has no room for them yet.
  bool deliver(RelayCall& relayed) noexcept;
  /// The call needs nothing any more.
  void release(RelayCall& relayed) noexcept;
  /// The client's connection has ended.
  void gone() noexcept;

  // For the relay.
  std::uint32_t records_held() const noexcept { return buffers_.records_held(); }
  /// Does what was put off because the requester or the transport was busy: Relay::schedule().
  void act() noexcept;
  /// What the next call waits for may be there.
  void resume() noexcept { pump(); }
  /// The connection to the server may have become empty. False: there is nothing to look for any more.
  bool finish_closing() noexcept;

  void on_lent(rdma_server::ServerConnection& connection) noexcept override;
  bool on_taken() noexcept override;
  void on_reply(rdma_server::ClientCall& call, const rpcrdma::Reply& reply) noexcept override;
  void on_server_call(service::Call& call) noexcept override;
  void on_server_gone() noexcept override { server_calls_.drop_all(); }

  QueueLink<RelayClient> scheduled_link;  ///< for act()
  QueueLink<RelayClient> waiting_link;    ///< for resume()
  QueueLink<RelayClient> closing_link;    ///< for finish_closing()

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
  service::Client* client_ = nullptr;  ///< null: its connection has ended
  bool closing_ = false;               ///< calls of a client that has gone are still at the server
  bool cancels_ = false;               ///< and are to be cancelled
  bool disconnects_ = false;           ///< the client has to send some calls again
  rdma_server::ServerConnection* server_ = nullptr;  ///< null: lent with the next call
  rdma_server::ClientBuffers buffers_;
  RelayCallList waiting_;
  RelayCallList lost_;
  ServerCalls server_calls_;
};

}  // namespace sluice::rdma_upstream
