// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection to an upstream server: opened when there is something to send, and reopened if it is
// lost with calls on it. Only the owning reactor may call.
//
// Calls are sent in order of arrival. Calls left unanswered by a lost connection are sent again on the next
// one, with their XIDs, as an RPC client over TCP does, but one at a time: a call that makes the upstream
// close the connection is thereby identified and cannot block the others forever.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>

#include "dataplane/service/forward/forwarded_call.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/send_queue.h"
#include "dataplane/tcp/uring.h"

namespace sluice::forward {

/// Delay between attempts to connect: doubles from the first to the last.
inline constexpr std::uint64_t kFirstRetryNs = 50'000'000;
inline constexpr std::uint64_t kLastRetryNs = 3'000'000'000;

class UpstreamConnection {
 public:
  enum class State : std::uint8_t {
    Idle,        ///< no socket; connects on the next call
    Connecting,  ///< waits for the TCP connection to be established
    Up,          ///< sends and receives
    Closing,     ///< shut down; waits for the io_uring operations still in flight
    Retrying,    ///< waits for the time of the next connect
  };

  UpstreamConnection(Upstream& upstream, tcp::Uring& uring);
  ~UpstreamConnection();
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  State state() const noexcept { return state_; }
  /// The client that the connection is dedicated to; null: shared, or unused.
  service::Client* client() const noexcept { return client_; }
  /// Changes when the connection is closed, so that a late reply to a callback is not sent on the next one.
  std::uint32_t epoch() const noexcept { return epoch_; }
  ForwardedCallList& calls() noexcept { return calls_; }

  void assign(service::Client& client) noexcept { client_ = &client; }
  /// The client is gone and its calls have been given up: closes the connection; retired() once closed.
  void retire() noexcept;
  bool retired() const noexcept { return retiring_ && state_ == State::Idle; }
  /// After retired(): makes the connection available for another client.
  void reuse() noexcept { retiring_ = false; }

  /// Takes a call that has its XID; it stays on the connection until remove().
  void submit(ForwardedCall& forwarded) noexcept;
  /// The upstream has answered a call: resets the retry delay.
  void note_answer() noexcept {
    answered_ = true;
    retry_after_ns_ = kFirstRetryNs;
  }
  /// Removes a finished call, which must not be in_send_queue.
  void remove(ForwardedCall& forwarded) noexcept;
  /// Sends the reply to a callback: `message` is copied, with its XID replaced by `xid`. False: dropped.
  bool answer(std::uint32_t xid, std::span<const std::byte> message) noexcept;

  /// End of a loop turn: submits what was queued.
  void flush() noexcept;
  void tick(std::uint64_t now_ns) noexcept;
  /// Closes the connection; calls whose reply is still needed are sent again on the next one.
  void lose() noexcept;

  void on_connected(int result) noexcept;
  void on_received(int result) noexcept;
  void on_sent(int result) noexcept;

  // For the upstream.
  bool dirty = false;          ///< in the list to be flushed
  bool in_retry_list = false;  ///< in the list that background() retries
  tcp::RecordStream& stream() noexcept { return stream_; }

 private:
  void open() noexcept;
  void pump() noexcept;
  void judge_suspect() noexcept;
  bool enqueue(ForwardedCall& forwarded) noexcept;
  void handle_records() noexcept;
  void give_memory_back() noexcept;
  void find_memory() noexcept;
  void finish_closing() noexcept;
  bool busy() const noexcept { return connecting_ || receiving_ || sending_; }
  void mark_dirty() noexcept;

  Upstream& upstream_;
  tcp::Uring& uring_;
  State state_ = State::Idle;
  bool connecting_ = false;  ///< connect in flight in io_uring; the same for the next two
  bool receiving_ = false;
  bool sending_ = false;
  bool retiring_ = false;
  bool serial_resend_ = false;  ///< resent calls go out one at a time
  bool answered_ = false;       ///< the upstream has answered a call since the last strike
  int socket_ = -1;
  std::uint32_t epoch_ = 0;
  service::Client* client_ = nullptr;
  ForwardedCallList calls_;
  ForwardedCall* unsent_ = nullptr;  ///< first of calls_ that is AwaitingSend
  tcp::SendQueue queue_;
  std::unique_ptr<std::byte[]> stream_bytes_;
  tcp::RecordStream stream_;
  // Of the record that the stream has memory for, or that is skipped.
  std::uint32_t record_xid_ = 0;
  rpc::MessageType record_type_{};
  bool skipping_unwanted_ = false;  ///< on our own account, not because of the record's length
  msghdr message_{};
  std::uint64_t retry_ns_ = 0;
  std::uint64_t retry_after_ns_ = kFirstRetryNs;
};

}  // namespace sluice::forward
