// SPDX-License-Identifier: Apache-2.0
//
// A connection to the server, and the calls of the one client that it is lent to: servers tie state,
// callbacks and XIDs to a connection, so two clients never share one at the same time, and each client begins
// with a new one. Only the owning reactor may call; no allocation after construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/rdma_server/silence.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::rdma_server {

class ServerSide;

/// Delay between attempts to connect to the server: doubles from the first to the last.
inline constexpr std::uint64_t kFirstDialNs = 50'000'000;
inline constexpr std::uint64_t kLastDialNs = 3'000'000'000;
/// A connection to where the server is no more ends when its calls are answered, or after this time.
inline constexpr std::uint64_t kMoveNs = 10'000'000'000;

/// Period of examining the retransmission timers of a connection's calls.
inline constexpr std::uint64_t kRetransmissionTickNs = 1'000'000'000;

/// Buffers of a connection for long calls and replies.
inline constexpr std::uint32_t kLongBuffers = 4;
/// Each call has a buffer for a Reply chunk of at most this size, such as that of a COMPOUND with attributes.
inline constexpr std::uint32_t kShortReplyBytes = tcp::kStreamBytes;

/// Returns the approximate memory of one connection, with its requester's.
inline std::uint64_t server_connection_bytes(std::uint32_t calls) noexcept {
  const std::uint64_t requests = std::uint64_t{2} * rpcrdma::RequesterConfig{}.inline_bytes * calls;
  return requests + kLongBuffers * std::uint64_t{tcp::kMaxRecordBytes} +
         calls * (std::uint64_t{kSmallReplyBytes} + kShortReplyBytes);
}

class ServerConnection {
 public:
  enum class State : std::uint8_t {
    Free,
    Lent,      ///< to client()
    Returned,  ///< waits for the end of the connection
  };

  ServerConnection(ServerSide& side, rpcrdma::Engine& engine);
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  State state() const noexcept { return state_; }
  /// Null unless Lent.
  ServerUser* client() const noexcept { return client_; }
  bool connected() const noexcept { return requester_.connected(); }
  std::uint32_t in_use() const noexcept { return in_use_; }
  std::uint64_t lent_ns() const noexcept { return lent_ns_; }
  /// Others wait, or the server is elsewhere: it takes no more calls, and is returned when it has none.
  bool yields() const noexcept { return yields_ || moves_; }
  void set_yields(bool yields) noexcept { yields_ = yields; }
  bool moves() const noexcept { return moves_; }
  /// The next connection goes elsewhere: this one ends, and calls that are left by then go again on that one.
  void move() noexcept;

  /// Free: dials.
  void lend(ServerUser& client) noexcept;
  /// Of a client that has gone. The calls come back in any order, now and later.
  void cancel_calls() noexcept;
  /// Lent, without calls.
  void take_back() noexcept;
  /// Returned. False: it has not ended yet.
  bool become_free() noexcept;
  void tick(std::uint64_t now_ns) noexcept;

  bool is_outstanding(std::uint32_t xid) noexcept { return find(xid) != nullptr; }
  /// Notes that the client of the connection has retransmitted an outstanding call: its own timer follows. Returns false
  /// if no outstanding call has this XID.
  bool note_repetition(std::uint32_t xid) noexcept;
  /// Null: as many are outstanding as may be.
  ClientCall* take_call(std::uint32_t xid) noexcept;
  /// Its completion goes to ServerUser::on_reply(), whatever `request` says. False: no memory now. ClientCall::refused
  /// is set if the call can never be sent.
  bool submit(ClientCall& call, rpcrdma::Request request) noexcept;
  /// In its completion: the reply message stays where it is until free(). False: it is in no Reply chunk.
  bool keep_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept;
  rdma::Lkey kept_reply_lkey(const std::byte* memory) const noexcept {
    return requester_.kept_reply_lkey(memory);
  }
  /// Its buffers have been released.
  void free(ClientCall& call) noexcept;
  /// The server has answered some call.
  void note_answer() noexcept;
  std::span<ClientCall> calls() noexcept { return calls_; }

  QueueLink<ServerConnection> idle_link;  ///< Lent, without calls: ServerConnections

 private:
  ClientCall* find(std::uint32_t xid) noexcept;
  void dial() noexcept;
  void hang_up(rpcrdma::CloseReason reason) noexcept;
  void watch_server(std::uint64_t now_ns) noexcept;
  void retransmit_overdue(std::uint64_t now_ns) noexcept;
  void probe() noexcept;
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  static void probed(void* context, const rpcrdma::Reply& reply) noexcept;
  void reconnect() noexcept;

  ServerSide& side_;
  State state_ = State::Free;
  ServerUser* client_ = nullptr;
  std::uint64_t lent_ns_ = 0;
  bool yields_ = false;
  bool moves_ = false;
  std::uint64_t moves_until_ns_ = 0;
  bool cancelled_ = false;   ///< cancel_calls() was called: no more dialing
  bool hanging_up_ = false;  ///< until the requester is detached
  rpcrdma::Connection* connection_ = nullptr;
  std::uint64_t dial_ns_ = 0;
  std::uint64_t dial_after_ns_ = kFirstDialNs;
  Silence silence_;
  std::uint64_t dials_ = 0;             ///< connections started
  std::uint64_t connected_ns_ = 0;      ///< when tick() saw the connection up first; zero: it is not
  std::uint64_t answered_ns_ = 0;       ///< when the server answered any call last
  std::uint64_t look_at_calls_ns_ = 0;  ///< when retransmit_overdue() examines the calls next
  bool probing_ = false;                ///< a NULL call of ours is out
  std::uint32_t probe_xid_ = 0;
  rpcrdma::Requester requester_;
  std::vector<ClientCall> calls_;
  FixedArray<std::array<std::byte, kSmallReplyBytes>> small_replies_;
  std::vector<std::uint32_t> xids_;  ///< by index of the call; contiguous, to search few cache lines
  IntrusiveQueue<ClientCall, &ClientCall::link> free_;
  std::uint32_t in_use_ = 0;
};

using ServerConnectionTransitions =
    gateway::TransitionTable<ServerConnection::State, ServerConnection::State::Returned>;
/// Successors of each state of a connection to a server.
inline constexpr ServerConnectionTransitions kServerConnectionTransitions = [] {
  using enum ServerConnection::State;
  return ServerConnectionTransitions{
      {Lent},      // Free
      {Returned},  // Lent
      {Free},      // Returned
  };
}();

/// The server has said something, though perhaps not what was asked for.
bool is_answer(rpcrdma::CallStatus status) noexcept;

}  // namespace sluice::rdma_server
