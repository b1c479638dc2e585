// SPDX-License-Identifier: Apache-2.0
//
// One client of the reverse gateway: its TCP connection, its calls, and its connection to the server. Only
// the owning reactor may call; no allocation after construction.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/ingress/client_call.h"
#include "dataplane/ingress/server_calls.h"
#include "dataplane/rpcrdma/engine.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/segment/ingress.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/send_queue.h"

namespace sluice::ingress {

class Ingress;

/// A client that for this long accepts no bytes, or stops inside a long record, is disconnected, because it
/// holds memory that other clients need.
inline constexpr std::uint64_t kStuckNs = 30'000'000'000;
/// Delay between attempts to connect to the server: doubles from the first to the last.
inline constexpr std::uint64_t kFirstDialNs = 50'000'000;
inline constexpr std::uint64_t kLastDialNs = 3'000'000'000;
/// One client holds at most this fraction (1/n) of the long buffers.
inline constexpr std::uint32_t kShareOfRecords = 4;

/// Approximate memory of one client, including its requester's.
std::uint64_t client_bytes(std::uint32_t calls) noexcept;

class TcpClient {
 public:
  enum class State : std::uint8_t {
    Free,
    Open,
    Closing,  ///< waits for io_uring operations, outstanding requests and the connection to the server to end
  };

  TcpClient(Ingress& ingress, rpcrdma::Engine& engine);
  ~TcpClient();
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  State state() const noexcept { return state_; }
  bool connected() const noexcept { return requester_.connected(); }
  std::uint32_t outstanding() const noexcept { return in_use_; }

  /// Takes ownership of an accepted socket.
  void open(int socket) noexcept;
  void on_received(int result) noexcept;
  void on_sent(int result) noexcept;
  void flush() noexcept;
  /// A resource that the next call waits for may be available.
  void resume() noexcept;
  void tick(std::uint64_t now_ns) noexcept;

  void on_server_call(service::Call& call) noexcept;
  /// The connection to the server has ended.
  void on_server_gone() noexcept;

 private:
  void disconnect() noexcept;
  void finish_closing() noexcept;
  void dial() noexcept;
  void handle_records() noexcept;
  void wait_for_release() noexcept;
  bool count_wait(segment::IngressCounter why) noexcept;
  void schedule_flush() noexcept;

  // RX: from a record to the requester.
  bool on_record(std::span<std::byte> record) noexcept;
  bool on_call(std::span<std::byte> record) noexcept;
  void answer_bad_call(ClientCall& call, rpc::CallDecode defect, rpc::Xid xid) noexcept;
  bool begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
             std::size_t arguments_at) noexcept;
  bool submit(ClientCall& call, const rpcrdma::Request& request) noexcept;
  void on_client_reply(std::span<const std::byte> record) noexcept;
  bool is_outstanding(std::uint32_t xid) const noexcept;
  ClientCall* take_call(std::uint32_t xid) noexcept;

  void release_record() noexcept;
  PoolBuffer acquire_buffer(std::size_t bytes) noexcept;
  void release_buffer(PoolBuffer& buffer) noexcept;

  // TX: from the server's reply to the send queue.
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  void on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept;
  std::span<std::byte> buffer_for_reply(ClientCall& call, std::size_t bytes) noexcept;
  void note_answer() noexcept;
  void on_timeout(const ClientCall& call) noexcept;
  void fail(ClientCall& call) noexcept;
  void answer_small(ClientCall& call, std::size_t bytes) noexcept;
  void make_ready(ClientCall& call) noexcept;
  void pump() noexcept;
  void free(ClientCall& call) noexcept;

  Ingress& ingress_;
  State state_ = State::Free;
  bool receiving_ = false;  ///< a receive is in flight in io_uring
  bool sending_ = false;    ///< a send is in flight in io_uring
  bool flush_scheduled_ = false;
  bool waiting_ = false;  ///< for memory, a free call or queue room
  int socket_ = -1;
  std::uint64_t moved_ns_ = 0;     ///< last time that bytes were received or sent
  std::uint64_t answered_ns_ = 0;  ///< last reply of the server
  rpcrdma::Connection* connection_ = nullptr;
  bool was_connected_ = false;
  std::uint64_t dial_ns_ = 0;
  std::uint64_t dial_after_ns_ = kFirstDialNs;
  std::uint32_t records_held_ = 0;
  rpcrdma::Requester requester_;
  std::unique_ptr<std::byte[]> stream_bytes_;
  tcp::RecordStream stream_;
  tcp::SendQueue queue_;
  msghdr message_{};
  std::vector<ClientCall> calls_;
  std::unique_ptr<std::array<std::byte, kSmallReplyBytes>[]> small_replies_;
  std::vector<std::uint32_t> xids_;  ///< by index of the call; contiguous, to search few cache lines
  IntrusiveQueue<ClientCall, &ClientCall::link> free_;
  IntrusiveQueue<ClientCall, &ClientCall::link> ready_;
  std::uint32_t in_use_ = 0;
  ServerCalls server_calls_;
};

}  // namespace sluice::ingress
