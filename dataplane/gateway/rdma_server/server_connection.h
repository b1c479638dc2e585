// SPDX-License-Identifier: Apache-2.0
//
// A connection to the server and the calls of the client that it is assigned to. Servers bind state,
// callbacks and XIDs to a connection, so two clients never share one, and each client starts with a new one.
// Callable only on the owning reactor. Never allocates after construction.
#pragma once

#include <array>
#include <cstdint>
#include <vector>
#include "dataplane/base/invariant.h"

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/client_call.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/tcp/record_stream.h"

namespace sluice::rdma_server {

/// Time in nanoseconds without an answer to outstanding calls after which the server is probed by a NULL
/// call.
inline constexpr std::uint64_t kSilenceNs = 15'000'000'000;
/// Time in nanoseconds without an answer to the probe after which the connection is replaced.
inline constexpr std::uint64_t kProbeAnswerNs = 15'000'000'000;
/// Factor for the probe timeout if the probe could not be sent for lack of a credit, because silence is
/// weaker evidence then.
inline constexpr std::uint64_t kUnaskedPatience = 8;
/// Maximum backoff factor of both times. The factor doubles with each reconnect until the server answers,
/// because every reconnect retransmits all calls to a server that may only be slow.
inline constexpr std::uint64_t kMaxPatience = 16;

/// Liveness timer of a server that owes answers: decides when to probe it and when to reconnect. Pure
/// arithmetic; the caller provides the clock. Single-threaded.
class LivenessTimer {
 public:
  enum class Step : std::uint8_t { Wait, Probe, Reconnect };

  /// Restarts the timer because no answer is owed or the connection is new.
  void restart(std::uint64_t now_ns) noexcept {
    since_ns_ = now_ns;
    probed_ = false;
  }
  /// Records any answer of the server.
  void heard(std::uint64_t now_ns) noexcept {
    restart(now_ns);
    patience_ = 1;
  }
  /// Returns the step that is due. Each step is returned once. `asked` is true if the NULL probe has been
  /// sent.
  Step next(std::uint64_t now_ns, bool asked) noexcept {
    std::uint64_t limit = patience_ * kSilenceNs;
    static_cast<void>(SLUICE_INVARIANT(patience_ >= 1 && patience_ <= kMaxPatience, timer_state));
    if (probed_) limit = patience_ * kProbeAnswerNs * (asked ? 1 : kUnaskedPatience);
    if (now_ns - since_ns_ <= limit) return Step::Wait;
    since_ns_ = now_ns;
    probed_ = !probed_;
    if (probed_) return Step::Probe;
    patience_ = smaller_of(2 * patience_, kMaxPatience);
    return Step::Reconnect;
  }

 private:
  std::uint64_t since_ns_ = 0;
  std::uint64_t patience_ = 1;
  bool probed_ = false;
};

class ServerSide;

/// Delay in nanoseconds between attempts to connect to the server. It doubles from the first value to the
/// last.
inline constexpr std::uint64_t kFirstDialNs = 50'000'000;
inline constexpr std::uint64_t kLastDialNs = 3'000'000'000;
/// Time in nanoseconds after which a connection to the server's previous address is closed even if it still
/// has calls.
inline constexpr std::uint64_t kMoveNs = 10'000'000'000;

/// Period in nanoseconds for checking the retransmission timers of a connection's calls.
inline constexpr std::uint64_t kRetransmissionTickNs = 1'000'000'000;

/// Buffers of one connection for long calls and replies.
inline constexpr std::uint32_t kLongBuffers = 4;
/// Each call has a buffer for a Reply chunk of at most this size, such as that of a COMPOUND with attributes.
inline constexpr std::uint32_t kShortReplyBytes = tcp::kStreamBytes;

/// Returns the approximate memory of one connection in bytes, including its requester. The longest message
/// has `record_bytes`, and the longest segment in its pool `pool_segment_bytes`.
inline std::uint64_t server_connection_bytes(std::uint32_t calls, std::uint32_t record_bytes,
                                             std::uint32_t pool_segment_bytes) noexcept {
  const std::uint64_t requests = std::uint64_t{2} * rpcrdma::RequesterConfig{}.inline_bytes * calls;
  return requests + kLongBuffers * std::uint64_t{record_bytes} +
         calls * (std::uint64_t{kSmallReplyBytes} + kShortReplyBytes + pool_segment_bytes);
}

class ServerConnection {
 public:
  enum class State : std::uint8_t {
    Free,
    Assigned,  ///< in use by client()
    Returned,  ///< waits until the connection has closed
  };

  ServerConnection(ServerSide& side, rpcrdma::Engine& engine);
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  State state() const noexcept { return state_; }
  /// Returns the client that the connection is assigned to, or null unless Assigned.
  ServerUser* client() const noexcept { return client_; }
  bool connected() const noexcept { return requester_.connected(); }
  std::uint32_t in_use() const noexcept { return in_use_; }
  std::uint64_t lent_ns() const noexcept { return lent_ns_; }
  /// Returns true if other clients wait or the server's address has changed. The connection then accepts no
  /// new calls and is returned once idle.
  bool yields() const noexcept { return yields_ || moves_; }
  void set_yields(bool yields) noexcept { yields_ = yields; }
  bool moves() const noexcept { return moves_; }
  /// Drains the connection because the server's address has changed. Calls left when it closes are
  /// retransmitted on the next connection, to the new address.
  void move() noexcept;

  /// Assigns a Free connection to a client and starts connecting.
  void assign(ServerUser& client) noexcept;
  /// Cancels the calls of a disconnected client. They complete in any order, during this call or later.
  void cancel_calls() noexcept;
  /// Takes back an Assigned connection without calls.
  void take_back() noexcept;
  /// Makes a Returned connection Free. Returns false if the connection has not closed yet.
  bool become_free() noexcept;
  void tick(std::uint64_t now_ns) noexcept;

  bool is_outstanding(std::uint32_t xid) noexcept { return find(xid) != nullptr; }
  /// Records that the client has retransmitted an outstanding call, so that the call's own timer applies.
  /// Returns false if no outstanding call has this XID.
  bool note_repetition(std::uint32_t xid) noexcept;
  /// Allocates a call. Returns null if the limit of outstanding calls is reached.
  ClientCall* take_call(std::uint32_t xid) noexcept;
  /// Submits a call. The completion is delivered to ServerUser::on_reply(); completion fields of `request`
  /// are ignored. Returns false if no memory is available now. Sets ClientCall::refused if the call can never
  /// be sent.
  bool submit(ClientCall& call, rpcrdma::Request request) noexcept;
  /// Keeps the reply message in its Reply chunk until free(). Callable in the call's completion. Returns
  /// false if the message is not in a Reply chunk.
  bool keep_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept;
  rdma::Lkey kept_reply_lkey(const std::byte* memory) const noexcept {
    return requester_.kept_reply_lkey(memory);
  }
  /// Frees a call whose buffers have been released.
  void free(ClientCall& call) noexcept;
  /// Records that the server has answered a call.
  void note_answer() noexcept;
  std::span<ClientCall> calls() noexcept { return calls_; }

  QueueLink<ServerConnection> idle_link;  ///< in ServerConnections, while Assigned without calls

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
  bool cancelled_ = false;   ///< cancel_calls() was called: do not reconnect
  bool hanging_up_ = false;  ///< close requested; cleared once the requester is detached
  rpcrdma::Connection* connection_ = nullptr;
  std::uint64_t dial_ns_ = 0;
  std::uint64_t dial_after_ns_ = kFirstDialNs;
  LivenessTimer silence_;
  std::uint64_t dials_ = 0;             ///< connections started
  std::uint64_t connected_ns_ = 0;      ///< time of the first tick() that saw the connection up; zero while
                                        ///< it is down
  std::uint64_t answered_ns_ = 0;       ///< time of the server's latest answer to any call
  std::uint64_t look_at_calls_ns_ = 0;  ///< time of the next check by retransmit_overdue()
  bool probing_ = false;                ///< a NULL probe is outstanding
  std::uint32_t probe_xid_ = 0;
  rpcrdma::Requester requester_;
  std::vector<ClientCall> calls_;
  FixedArray<std::array<std::byte, kSmallReplyBytes>> small_replies_;
  std::vector<std::uint32_t> xids_;  ///< by index of the call; contiguous, so that a search touches few cache
                                     ///< lines
  IntrusiveQueue<ClientCall, &ClientCall::link> free_;
  std::uint32_t in_use_ = 0;
};

using ServerConnectionTransitions =
    TransitionTable<ServerConnection::State, ServerConnection::State::Returned>;
/// Successors of each state of a connection to a server.
inline constexpr ServerConnectionTransitions kServerConnectionTransitions = [] {
  using enum ServerConnection::State;
  return ServerConnectionTransitions{
      {Assigned},  // Free
      {Returned},  // Assigned
      {Free},      // Returned
  };
}();

/// Returns true if the status shows that the server has answered, even if with an error.
bool is_answer(rpcrdma::CallStatus status) noexcept;

}  // namespace sluice::rdma_server
