// SPDX-License-Identifier: Apache-2.0
//
// One client of the reverse gateway: its TCP connection, and the way of its calls to the connection to the
// server that it is lent, and back. Only the owning reactor may call; no allocation after construction.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/gateway/rdma_server/client_buffers.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/tcp_clients/hosts.h"
#include "dataplane/gateway/tcp_clients/server_calls.h"
#include "dataplane/gateway/transition_table.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/send_queue.h"
#include "dataplane/tcp/stream_receiver.h"

namespace sluice::tcp_clients {

class Ingress;
using rdma_server::ClientCall;
using rdma_server::PoolBuffer;
using rdma_server::ServerConnection;

/// A client that for this long accepts no bytes, or sends none of a record that it has begun, is disconnected, because
/// it holds a place and memory that other clients need.
inline constexpr std::uint64_t kStuckNs = 30'000'000'000;
/// A record has to arrive within this time from its first byte.
inline constexpr std::uint64_t kRecordNs = 120'000'000'000;

/// A client that has shut its sending side has this long to get the replies to its calls.
inline constexpr std::uint64_t kHalfClosedNs = 30'000'000'000;
/// Such a client's call that no connection to the server has taken is dropped after this time: the client may have
/// repeated it on another connection, and a call that is sent late would overtake newer ones.
inline constexpr std::uint64_t kUnsentNs = 1'000'000'000;

/// A client's operations in io_uring at once: a receive, a send, and to learn of its end.
inline constexpr std::uint32_t kClientOperations = 3;

class TcpClient final : public rdma_server::ServerUser {
 public:
  enum class State : std::uint8_t {
    Free,
    Open,
    Draining,  ///< takes no calls, and ends the connection when the calls in progress are answered
    Resetting,  ///< takes no calls, and ends the connection in the next flush(): the requester was busy with its calls
    Closing,  ///< waits for io_uring operations and outstanding requests to end
  };

  explicit TcpClient(Ingress& ingress);
  ~TcpClient();
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  State state() const noexcept { return state_; }
  /// The host that the place is counted for. Not of a free client.
  const Host& host() const noexcept { return *host_; }
  Host& host() noexcept { return *host_; }
  std::uint64_t opened_ns() const noexcept { return opened_ns_; }
  /// Time at which bytes were last received or sent.
  std::uint64_t moved_ns() const noexcept { return moved_ns_; }
  /// Returns true if nothing is in progress: no call of either side, no part of a record, and no reply.
  bool is_idle() const noexcept;
  bool is_called_back() const noexcept { return !server_calls_.empty(); }

  /// Takes ownership of an accepted socket.
  void open(int socket, Host& host) noexcept;
  /// Ends the connection, and cancels its calls.
  void disconnect() noexcept;
  /// Stops taking calls of an open client, and ends the connection when the calls in progress are answered.
  void drain() noexcept {
    if (state_ == State::Open) transition(State::Draining);
  }
  void on_received(const tcp::Uring::Completion& end) noexcept;
  void on_received_again(const tcp::Uring::Completion& end) noexcept;
  void on_sent(int result) noexcept;
  /// The client has shut its sending side, or the connection has ended.
  void on_ended(int result) noexcept;
  /// In the turn after schedule_flush().
  void flush() noexcept;
  /// A resource that the next call waits for may be available.
  void resume() noexcept;
  void tick(std::uint64_t now_ns) noexcept;

  void on_lent(ServerConnection& connection) noexcept override;
  bool on_taken() noexcept override;
  void on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept override;
  void on_server_call(service::Call& call) noexcept override;
  void on_server_gone() noexcept override;

  QueueLink<TcpClient> waiting_link;  ///< for memory, a free call or queue room

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
  bool count_wait(segment::IngressCounter why) noexcept;
  void schedule_flush() noexcept;
  void send_queued() noexcept;

  // RX: from a record to the requester.
  bool on_record(std::span<std::byte> record) noexcept;
  bool on_call(std::span<std::byte> record) noexcept;
  bool answer_bad_call(rpc::CallDecode defect, rpc::Xid xid) noexcept;
  bool begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
             std::size_t arguments_at) noexcept;
  void on_client_reply(std::span<const std::byte> record) noexcept;

  void release_record() noexcept;

  // TX: from the server's reply to the send queue.
  void lose(ClientCall& call) noexcept;
  void answer_refused(ClientCall& call) noexcept;
  void answer_small(ClientCall& call, std::size_t bytes) noexcept;
  void make_ready(ClientCall& call) noexcept;
  void pump() noexcept;
  void free(ClientCall& call) noexcept;

  Ingress& ingress_;
  rdma_server::ClientBuffers buffers_;
  State state_ = State::Free;  ///< changed by transition() alone
  // These flags are no states, because each changes in any state: they say what is in flight or scheduled, and what
  // the client has done.
  bool sending_ = false;          ///< a send is in flight in io_uring
  bool awaiting_end_ = false;     ///< in io_uring
  bool flush_scheduled_ = false;  ///< Ingress::schedule_flush() was called
  bool gone_ = false;             ///< the connection was reset or closed in both directions
  int socket_ = -1;
  bool restored_ = false;  ///< ComparedAttributes::restore() was called for the next record
  Host* host_ = nullptr;
  std::uint64_t opened_ns_ = 0;
  std::uint64_t half_closed_ns_ = 0;    ///< time at which the client shut its sending side; zero: it has not
  std::uint64_t moved_ns_ = 0;          ///< last time that bytes were received or sent
  std::uint64_t record_since_ns_ = 0;   ///< beginning of the record that is being received; zero: none is
  ServerConnection* server_ = nullptr;  ///< null: lent with the next call
  FixedArray<std::byte> stream_bytes_;
  tcp::RecordStream stream_;
  tcp::StreamReceiver receiver_;
  tcp::SendQueue queue_;
  msghdr message_{};
  IntrusiveQueue<ClientCall, &ClientCall::link> ready_;
  ServerCalls server_calls_;
};

using TcpClientTransitions = gateway::TransitionTable<TcpClient::State, TcpClient::State::Closing>;
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

/// Returns the approximate memory of one client.
inline std::uint64_t client_bytes() noexcept {
  return sizeof(TcpClient) + tcp::kStreamBytes + tcp::kSendRingBytes;
}

}  // namespace sluice::tcp_clients
