// SPDX-License-Identifier: Apache-2.0
//
// One client of a relay: forwards the client's calls over its assigned connection to the server and returns
// the replies. Callable only on the owning reactor. Never allocates after construction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include "dataplane/base/invariant.h"

#include "dataplane/base/intrusive_lists.h"
#include "dataplane/gateway/call_state.h"
#include "dataplane/gateway/rdma_server/call_translation.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/service.h"

namespace sluice::rdma_upstream {

class RelayClient;

/// State of one call forwarded to an RPC-over-RDMA server, stored in service::Call::state().
struct RelayCall {
  enum class State : std::uint8_t {
    None,         ///< not executed yet, or completed
    Waiting,      ///< waits for a connection to the server, a free call on it, or memory
    Outstanding,  ///< sent to the server
    Held,         ///< the reply waits in `message` until the transport has room for it
    Lost,         ///< no reply is possible; the client is being disconnected
  };
  State state;  ///< changed only by transition()
  service::Call* call;
  const service::Binding* binding;  ///< binding of the call's service
  RelayClient* client;
  RelayCall* next;                     ///< next call in the only list that contains this call
  rdma_server::ClientCall* at_server;  ///< set from Outstanding until release; otherwise null
  std::span<std::byte> message;        ///< the reply without placed data, while in Held

  void transition(State to) noexcept;
};

using RelayCallTransitions = TransitionTable<RelayCall::State, RelayCall::State::Lost>;
/// Successors of each state of a forwarded call.
inline constexpr RelayCallTransitions kRelayCallTransitions = [] {
  using enum RelayCall::State;
  return RelayCallTransitions{
      {Waiting},            // None
      {Outstanding, Lost},  // Waiting
      {None, Held, Lost},   // Outstanding
      {None, Lost},         // Held
      {None},               // Lost
  };
}();

inline void RelayCall::transition(State to) noexcept {
  gateway::change_state(kRelayCallTransitions, state, to);
}

/// FIFO of calls, in order of arrival.
class RelayCallList {
 public:
  bool empty() const noexcept { return first_ == nullptr; }
  RelayCall* front() const noexcept { return first_; }
  std::uint32_t size() const noexcept { return size_; }
  void push_back(RelayCall& call) noexcept {
    SLUICE_INVARIANT_DEBUG(call.next == nullptr && last_ != &call, list_membership);
    call.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &call;
    last_ = &call;
    ++size_;
  }
  /// Removes and returns the first call, or returns null if the list is empty.
  RelayCall* pop_front() noexcept {
    RelayCall* const call = first_;
    if (call == nullptr) return nullptr;
    SLUICE_INVARIANT_DEBUG(size_ > 0 && (size_ > 1) == (call->next != nullptr), list_membership);
    first_ = call->next;
    if (first_ == nullptr) last_ = nullptr;
    call->next = nullptr;
    --size_;
    return call;
  }

 private:
  RelayCall* first_ = nullptr;
  RelayCall* last_ = nullptr;
  std::uint32_t size_ = 0;
};

/// Calls that the server makes to one client (RFC 8167). They are forwarded unchanged and completed with the
/// client's reply. The transport owns the calls.
class ServerCalls {
 public:
  ServerCalls() = default;
  ServerCalls(const ServerCalls&) = delete;
  ServerCalls& operator=(const ServerCalls&) = delete;

  bool empty() const noexcept;
  /// Forwards a call. Returns false, without effect, if the client cannot take calls or has too many
  /// outstanding.
  bool start(service::Call& call, service::Client& client) noexcept;
  /// Completes all calls because the connection that they arrived on has ended. Later replies are discarded.
  void drop_all() noexcept;

 private:
  struct Outstanding {
    service::Call* call = nullptr;  ///< null after drop_all()
    bool in_use = false;            ///< true until the client's reply arrives or fails
  };
  static void on_reply(void* context, std::span<const std::byte> reply) noexcept;

  std::array<Outstanding, rdma_server::kMaxServerCalls> outstanding_;
};

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
  /// Ends the service for the client, because the upstream is replaced. Disconnects it if it has calls here.
  /// Requires that neither the requester nor the transport is busy.
  void leave() noexcept;
  /// Returns whether calls of a disconnected client are still at the server.
  bool closing() const noexcept { return closing_; }

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
