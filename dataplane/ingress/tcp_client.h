// SPDX-License-Identifier: Apache-2.0
//
// One client of the reverse gateway: its TCP connection, its calls, and its connection to the server. One
// reactor; no allocation after construction.
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

/// A client that takes none of our bytes, or stops in the middle of a long record, for so long is ended: the
/// memory is wanted by others.
inline constexpr std::uint64_t kStuckNs = 30'000'000'000;
/// Between attempts to connect to the server: doubled from the first to the last.
inline constexpr std::uint64_t kFirstDialNs = 50'000'000;
inline constexpr std::uint64_t kLastDialNs = 3'000'000'000;
/// One client holds no more than this part of the long buffers.
inline constexpr std::uint32_t kShareOfRecords = 4;

/// Memory that one client takes, roughly, with its requester's.
std::uint64_t client_bytes(std::uint32_t calls) noexcept;

class TcpClient {
 public:
  enum class State : std::uint8_t {
    Free,
    Open,
    Closing,  ///< waits for what io_uring, the requester and the connection to the server still have of it
  };

  TcpClient(Ingress& ingress, rpcrdma::Engine& engine);
  ~TcpClient();
  TcpClient(const TcpClient&) = delete;
  TcpClient& operator=(const TcpClient&) = delete;

  State state() const noexcept { return state_; }
  bool connected() const noexcept { return requester_.connected(); }
  std::uint32_t outstanding() const noexcept { return in_use_; }

  /// Takes over a socket.
  void open(int socket) noexcept;
  void on_received(int result) noexcept;
  void on_sent(int result) noexcept;
  void flush() noexcept;
  /// What the next call waited for may be there.
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
  void answer_bad_call(ClientCall& call, const rpc::CallDecodeResult& decoded) noexcept;
  bool begin(ClientCall& call, const rpc::CallHeader& header, std::span<std::byte> record,
             std::size_t arguments_at) noexcept;
  bool submit(ClientCall& call, const rpcrdma::Request& request) noexcept;
  void on_client_reply(std::span<const std::byte> record) noexcept;
  bool is_outstanding(std::uint32_t xid) const noexcept;
  ClientCall* take_call(std::uint32_t xid) noexcept;

  void release_record() noexcept;
  Loan borrow(std::size_t bytes) noexcept;
  void give_back(Loan& loan) noexcept;

  // TX: from the server's reply to the send queue.
  static void completed(void* context, const rpcrdma::Reply& reply) noexcept;
  void on_reply(ClientCall& call, const rpcrdma::Reply& reply) noexcept;
  std::span<std::byte> room_for_reply(ClientCall& call, std::size_t bytes) noexcept;
  void note_answer() noexcept;
  void on_timeout(const ClientCall& call) noexcept;
  void fail(ClientCall& call) noexcept;
  void answer_small(ClientCall& call, std::size_t bytes) noexcept;
  void make_ready(ClientCall& call) noexcept;
  void pump() noexcept;
  void free(ClientCall& call) noexcept;

  Ingress& ingress_;
  State state_ = State::Free;
  bool receiving_ = false;  ///< io_uring has one
  bool sending_ = false;
  bool flush_scheduled_ = false;
  bool waiting_ = false;  ///< for memory, a call or room in a queue
  int socket_ = -1;
  std::uint64_t moved_ns_ = 0;     ///< when bytes came or went last
  std::uint64_t answered_ns_ = 0;  ///< when the server answered last
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
  std::vector<std::uint32_t> xids_;  ///< by index of the call: what is compared lies close together
  IntrusiveQueue<ClientCall, &ClientCall::next> free_;
  IntrusiveQueue<ClientCall, &ClientCall::next> ready_;
  std::uint32_t in_use_ = 0;
  ServerCalls server_calls_;
};

}  // namespace sluice::ingress
