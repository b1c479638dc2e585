// SPDX-License-Identifier: Apache-2.0
//
// One client of the reverse gateway. Owns the TCP connection, forwards its calls over its assigned connection
// to the server, and returns the replies. Only the owning reactor may call; only the constructor allocates.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/gateway/call_state.h"
#include "dataplane/gateway/rdma_server/call_translation.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/tcp_clients/hosts.h"
#include "dataplane/segment/gateways.h"
#include "dataplane/service/api/service.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/streams.h"

namespace sluice::tcp_clients {

/// Maximum bytes of a call of the server. Callbacks have a few hundred bytes.
inline constexpr std::size_t kMaxServerCallBytes = tcp::kSendRingBytes / 2;

/// Forwards the reverse-direction calls of the server (RFC 8167) unchanged to one TCP client, and completes
/// them with the client's replies. A call has no timeout here, because the server applies its own. It waits
/// until the client replies or one of the two connections ends. Never allocates. The transport owns the
/// calls.
class ServerCalls {
 public:
  /// Accepts the call, and queues it to the client when the send queue has room. Returns false without effect
  /// if the call is longer than kMaxServerCallBytes, or if the server exceeds its granted number of
  /// outstanding calls.
  bool start(service::Call& call, tcp::SendQueue& queue) noexcept;
  /// Queues the calls that wait for room. Returns true if any call was queued.
  bool pump(tcp::SendQueue& queue) noexcept;

  enum class Answer : std::uint8_t {
    Completed,
    TooLong,  ///< the reply exceeds the server's room; the call was completed with SYSTEM_ERR
    Unknown,  ///< no outstanding call has this XID
  };
  bool empty() const noexcept;
  /// Completes the call that the client's reply record answers. The record is at least as long as an RPC
  /// reply header.
  Answer on_reply(std::span<const std::byte> record) noexcept;

  /// Completes all calls with SYSTEM_ERR, because one of the two connections has ended. Returns the number of
  /// calls.
  std::uint32_t drop_all() noexcept;

 private:
  struct Outstanding {
    service::Call* call = nullptr;
    std::uint32_t xid = 0;
    std::uint64_t sequence = 0;
    bool queued = false;
  };
  Outstanding* next_to_queue() noexcept;

  std::uint64_t sequence_ = 0;
  std::array<Outstanding, rdma_server::kMaxServerCalls> outstanding_;
};

class ReverseGateway;
using rdma_server::ClientCall;
using rdma_server::PoolBuffer;
using rdma_server::ServerConnection;

/// Time in nanoseconds after which a client is disconnected if it accepts no bytes or does not continue a
/// record, because it holds a place and memory that other clients need.
inline constexpr std::uint64_t kStuckNs = 30'000'000'000;
/// Maximum time in nanoseconds from the first to the last byte of a record. A slower client is disconnected.
inline constexpr std::uint64_t kRecordNs = 120'000'000'000;

/// Time in nanoseconds for which a client that has shut down its sending side may receive the replies to its
/// calls.
inline constexpr std::uint64_t kHalfClosedNs = 30'000'000'000;
/// Time in nanoseconds after which an unsent call of a client that has shut down its sending side is dropped.
/// The client may have retransmitted the call on another connection, and a call that is sent late would
/// overtake newer ones.
inline constexpr std::uint64_t kUnsentNs = 1'000'000'000;

/// Maximum number of operations of a client in io_uring: a receive, a send, and the detection of its end.
inline constexpr std::uint32_t kClientOperations = 3;

class TcpClient final : public rdma_server::ServerUser {
 public:
  enum class State : std::uint8_t {
    Free,
    Open,
    Draining,   ///< accepts no calls, and disconnects when the calls in progress are answered
    Resetting,  ///< accepts no calls, and disconnects in the next flush() (disconnect_soon())
    Closing,    ///< waits for io_uring operations and outstanding requests to end
  };

  explicit TcpClient(ReverseGateway& gateway);
  ~TcpClient();
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  State state() const noexcept { return state_; }
  /// Returns the host for which the place is counted. Requires that the client is not Free.
  const Host& host() const noexcept { return *host_; }
  Host& host() noexcept { return *host_; }
  std::uint64_t opened_ns() const noexcept { return opened_ns_; }
  /// Returns the time at which bytes were last received or sent.
  std::uint64_t moved_ns() const noexcept { return moved_ns_; }
  /// Returns true if no call of either side, no partial record and no reply is in progress.
  bool is_idle() const noexcept;
  bool is_called_back() const noexcept { return !server_calls_.empty(); }

  /// Takes ownership of an accepted socket.
  void open(int socket, Host& host) noexcept;
  /// Ends the connection and cancels its calls.
  void disconnect() noexcept;
  /// Stops accepting calls of an open client, and ends the connection when the calls in progress are
  /// answered.
  void drain() noexcept {
    if (state_ == State::Open) transition(State::Draining);
  }
  void on_received(const tcp::Uring::Completion& end) noexcept;
  void on_received_again(const tcp::Uring::Completion& end) noexcept;
  void on_sent(int result) noexcept;
  /// Records that the client has shut down its sending side or that the connection has ended.
  void on_ended(int result) noexcept;
  /// Sends the queued bytes, or disconnects a client that is Resetting. Called in the loop iteration after
  /// schedule_flush().
  void flush() noexcept;
  /// Continues with the next record, because a resource for which it waits may be available.
  void resume() noexcept;
  /// Checks the time limits, and completes closing. Called once per kTickNs.
  void tick(std::uint64_t now_ns) noexcept;

  void on_lent(ServerConnection& connection) noexcept override;
  bool on_taken() noexcept override;
  void on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept override;
  void on_server_call(service::Call& call) noexcept override;
  void on_server_gone() noexcept override;

  QueueLink<TcpClient> waiting_link;  ///< link of a client that waits for memory, a free call or queue room

 private:
  void transition(State to) noexcept;
  /// Returns true if the connection has not been ended on this side.
  bool is_connected() const noexcept { return state_ != State::Free && state_ != State::Closing; }
  void take(std::optional<int> received) noexcept;
  void disconnect_soon() noexcept;
  bool has_replies() const noexcept;
  bool is_overdue(std::uint64_t now_ns) const noexcept;
  bool is_finished(std::uint64_t now_ns) const noexcept;
  void finish_closing() noexcept;
  std::uint32_t calls_in_use() const noexcept;
  void handle_records() noexcept;
  void wait_for_release() noexcept;
  bool count_wait(segment::ReverseCounter why) noexcept;
  void schedule_flush() noexcept;
  void send_queued() noexcept;

  // RX functions pass a received record to the requester.
  bool on_record(std::span<std::byte> record) noexcept;
  bool on_call(std::span<std::byte> record) noexcept;
  bool answer_bad_call(rpc::CallDecode defect, rpc::Xid xid) noexcept;
  bool begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
             std::size_t arguments_at) noexcept;
  void on_client_reply(std::span<const std::byte> record) noexcept;

  void release_record() noexcept;

  // TX functions pass the server's reply to the send queue.
  void lose(ClientCall& call) noexcept;
  void answer_refused(ClientCall& call) noexcept;
  void answer_small(ClientCall& call, std::size_t bytes) noexcept;
  void make_ready(ClientCall& call) noexcept;
  void pump() noexcept;
  void free(ClientCall& call) noexcept;

  ReverseGateway& gateway_;
  rdma_server::ClientBuffers buffers_;
  State state_ = State::Free;  ///< changed only by transition()
  // These flags are not states, because each of them changes in any state. They describe operations that are
  // in flight or scheduled, and actions of the client.
  bool sending_ = false;          ///< true: a send is in flight in io_uring
  bool awaiting_end_ = false;     ///< true: the detection of the connection's end is in flight in io_uring
  bool flush_scheduled_ = false;  ///< true: ReverseGateway::schedule_flush() was called
  bool gone_ = false;             ///< true: the connection was reset or closed in both directions
  int socket_ = -1;
  bool restored_ = false;  ///< true: ComparedAttributes::restore() was called for the next record
  Host* host_ = nullptr;
  std::uint64_t opened_ns_ = 0;
  std::uint64_t half_closed_ns_ = 0;    ///< time at which the client shut down its sending side; zero: never
  std::uint64_t moved_ns_ = 0;          ///< time at which bytes were last received or sent
  std::uint64_t record_since_ns_ = 0;   ///< time at which reception of the current record began; zero: none
  ServerConnection* server_ = nullptr;  ///< assigned connection; null: assigned with the next call
  FixedArray<std::byte> stream_bytes_;
  tcp::RecordStream stream_;
  tcp::StreamReceiver receiver_;
  tcp::SendQueue queue_;
  msghdr message_{};
  IntrusiveQueue<ClientCall, &ClientCall::link> ready_;
  ServerCalls server_calls_;
};

using TcpClientTransitions = TransitionTable<TcpClient::State, TcpClient::State::Closing>;
/// Successors of each state of a TCP client.
inline constexpr TcpClientTransitions kTcpClientTransitions = [] {
  using enum TcpClient::State;
  return TcpClientTransitions{
      {Open},                          // Free
      {Draining, Resetting, Closing},  // Open
      {Resetting, Closing},            // Draining
      {Closing},                       // Resetting
      {Free},                          // Closing
  };
}();

inline void TcpClient::transition(State to) noexcept {
  gateway::change_state(kTcpClientTransitions, state_, to);
}

/// Returns the approximate memory of one client in bytes.
inline std::uint64_t client_bytes() noexcept {
  return sizeof(TcpClient) + tcp::kStreamBytes + tcp::kSendRingBytes;
}

}  // namespace sluice::tcp_clients
