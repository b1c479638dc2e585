// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection to an upstream server: brought up when there is something to send, and again when it was
// lost with calls on it. One reactor.
//
// Calls are sent in order of their arrival. Those that a lost connection leaves unanswered are sent again on
// the next one, with the XIDs they had, as an RPC client over TCP does. One at a time, then: a call that
// makes the upstream end the connection shows itself so, and does not take the others with it for ever.
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

/// Between attempts to connect: doubled from the first to the last.
inline constexpr std::uint64_t kFirstRetryNs = 50'000'000;
inline constexpr std::uint64_t kLastRetryNs = 3'000'000'000;

class UpstreamConnection {
 public:
  enum class State : std::uint8_t {
    Idle,        ///< no socket; connects when there is a call
    Connecting,  ///< waits for the connection to come up
    Up,          ///< sends and receives
    Closing,     ///< shut down: waits for what io_uring still has of it
    Retrying,    ///< waits for the time of the next attempt
  };

  UpstreamConnection(Upstream& upstream, tcp::Uring& uring);
  ~UpstreamConnection();
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  State state() const noexcept { return state_; }
  /// The one client whose connection it is; null: shared, or without use.
  service::Client* client() const noexcept { return client_; }
  /// Changes with every connection that is made, so that late answers are not given to the wrong one.
  std::uint32_t epoch() const noexcept { return epoch_; }
  ForwardedCallList& calls() noexcept { return calls_; }

  void assign(service::Client& client) noexcept { client_ = &client; }
  /// The client is gone, and its calls have been given up: ends the connection, and is free when it has
  /// ended.
  void retire() noexcept;
  bool retired() const noexcept { return retiring_ && state_ == State::Idle; }
  /// After retired().
  void reuse() noexcept { retiring_ = false; }

  /// Takes a call that has its XID.
  void submit(ForwardedCall& exchange) noexcept;
  /// The upstream has answered a call: it is there.
  void note_answer() noexcept {
    answered_ = true;
    retry_after_ns_ = kFirstRetryNs;
  }
  /// A call is over: it is not on this connection any more. Its memory is not named by the queue.
  void remove(ForwardedCall& exchange) noexcept;
  /// Answers a call of the upstream with an RPC message whose XID is replaced. False: it is lost.
  bool answer(std::uint32_t xid, std::span<const std::byte> message) noexcept;

  /// End of a turn: what was queued goes out.
  void flush() noexcept;
  /// There is memory again for what waits for it.
  void resume() noexcept;
  void tick(std::uint64_t now_ns) noexcept;
  /// Ends the connection; calls that are wanted are sent again on the next one.
  void lose() noexcept;

  void on_connected(int result) noexcept;
  void on_received(int result) noexcept;
  void on_sent(int result) noexcept;

  // For the upstream.
  bool dirty = false;    ///< among those to be flushed
  bool stalled = false;  ///< among those that wait for memory
  bool listed = false;   ///< among those that are looked at until they connect again
  tcp::RecordStream& stream() noexcept { return stream_; }

 private:
  void open() noexcept;
  void pump() noexcept;
  void judge_suspect() noexcept;
  bool enqueue(ForwardedCall& exchange) noexcept;
  void handle_records() noexcept;
  void finish_closing() noexcept;
  bool busy() const noexcept { return connecting_ || receiving_ || sending_; }
  void touch() noexcept;

  Upstream& upstream_;
  tcp::Uring& uring_;
  State state_ = State::Idle;
  bool connecting_ = false;  ///< io_uring has one
  bool receiving_ = false;
  bool sending_ = false;
  bool retiring_ = false;
  bool suspicious_ = false;  ///< calls that were sent before go out one at a time
  bool answered_ = false;    ///< since the last strike
  int socket_ = -1;
  std::uint32_t epoch_ = 0;
  service::Client* client_ = nullptr;
  ForwardedCallList calls_;
  ForwardedCall* unsent_ = nullptr;  ///< first of calls_ that is Numbered
  tcp::SendQueue queue_;
  std::unique_ptr<std::byte[]> stream_bytes_;
  tcp::RecordStream stream_;
  msghdr message_{};
  std::uint64_t retry_ns_ = 0;
  std::uint64_t retry_after_ns_ = kFirstRetryNs;
};

}  // namespace sluice::forward
