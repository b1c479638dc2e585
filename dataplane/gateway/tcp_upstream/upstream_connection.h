// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection to an upstream server: opened when there is something to send, and reopened if it is
// lost with calls on it. Only the owning reactor may call.
//
// Calls are sent in order of arrival. Calls left unanswered by a lost connection are sent again on the next
// one, with their XIDs, as an RPC client over TCP does, but one after the other: a call that makes the upstream
// close the connection is thereby identified and cannot block the others forever.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/net_address.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/send_queue.h"
#include "dataplane/tcp/stream_receiver.h"
#include "dataplane/tcp/uring.h"

namespace sluice::tcp_upstream {

/// Delay between attempts to connect: doubles from the first to the last.
inline constexpr std::uint64_t kFirstRetryNs = 50'000'000;
inline constexpr std::uint64_t kLastRetryNs = 3'000'000'000;
/// After a loss, calls go out one at a time, the next one when the one before is answered. If it is not for so
/// long, and the connection lasts, it is no suspect, and then two go out at once, then four, and so on.
inline constexpr std::uint64_t kTrialNs = 1'000'000'000;
/// An upstream that says nothing for so long while calls wait for it is asked for a reply to NULL, which
/// takes it no work.
inline constexpr std::uint64_t kSilenceNs = 15'000'000'000;
/// If it says nothing at all for so long after that, the connection is made again. Doubles from the first to the
/// last until a call is answered: an upstream that does one thing at a time must be able to end it.
inline constexpr std::uint64_t kFirstProbeAnswerNs = 30'000'000'000;
inline constexpr std::uint64_t kLastProbeAnswerNs = 16 * kFirstProbeAnswerNs;

/// Where the upstream has other addresses, one at which no connection comes about for so long has failed.
inline constexpr std::uint64_t kConnectNs = 5'000'000'000;
/// An attempt to connect to the only address times out after this time: five seconds after the last of the
/// kernel's SYNs.
inline constexpr std::uint64_t kAttemptNs = 12'000'000'000;
/// Number of attempts from one port that time out before the port is given up. A firewall or balancer may drop all
/// packets of one port, and none of others.
inline constexpr std::uint32_t kPortAttempts = 3;
/// A connection to an address that is no longer used sends no more, and ends when its calls are answered, or after
/// this time.
inline constexpr std::uint64_t kMoveNs = 10'000'000'000;

/// Of a long record so many bytes are received by one operation, however they come in. Not all of them, because what
/// is received is a sign of life: an upstream that takes longer than kSilenceNs for so many is asked for another.
inline constexpr std::size_t kReceivedAtOnce = 256u << 10;

/// A connection's operations in io_uring at once: receives and a send.
inline constexpr std::uint32_t kConnectionOperations = tcp::kReceiveOperations + 1;

class UpstreamConnection {
 public:
  enum class State : std::uint8_t {
    Idle,        ///< connects on the next call; the socket for it may be there, bound to our port
    Connecting,  ///< waits for the TCP connection to be established
    Up,          ///< sends and receives
    Closing,     ///< reset; waits for the io_uring operations still in flight
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
  /// When something was received last, or the connection established.
  std::uint64_t heard_ns() const noexcept { return heard_ns_; }
  ForwardedCallList& calls() noexcept { return calls_; }
  /// One call after the other, as many as there were at the first; then null, and from the first again. Calls may end
  /// or come between.
  ForwardedCall* next_call() noexcept;

  void assign(service::Client& client) noexcept { client_ = &client; }
  /// The client is gone and its calls have been given up: closes the connection when the last call of which
  /// has to be known whether it was executed is answered; retired() once closed.
  void leave() noexcept;
  /// Returns whether retire() was called.
  bool retiring() const noexcept { return retiring_; }
  bool retired() const noexcept { return retiring_ && state_ == State::Idle; }
  /// leave() was called, and the connection is closed.
  bool has_left() const noexcept { return leaving_ && retired(); }
  /// Closes the connection: no call on it is to be sent again.
  void retire() noexcept;
  /// After retired(): makes the connection available for another client, or another upstream.
  void reuse() noexcept {
    leaving_ = retiring_ = answered_ = false;
    port_ = 0;
    timed_out_ = 0;
    retry_after_ns_ = kFirstRetryNs;
    probe_answer_ns_ = kFirstProbeAnswerNs;
  }

  /// Takes a call that has its XID; it stays on the connection until remove().
  void submit(ForwardedCall& forwarded) noexcept;
  /// Sends one of its calls once more that was sent and is not answered, with the same XID.
  void send_again(ForwardedCall& forwarded) noexcept;
  /// The upstream has answered a call: resets the retry delay.
  void note_answer() noexcept {
    answered_ = true;
    retry_after_ns_ = kFirstRetryNs;
    probe_answer_ns_ = kFirstProbeAnswerNs;
  }
  /// The call on it that has kept this XID; null: none. Linear in the calls if there are any that have kept
  /// theirs, which only connections that are dedicated to a client have.
  ForwardedCall* find_kept(std::uint32_t xid) noexcept;
  /// Removes a finished call, which must not be in_send_queue().
  void remove(ForwardedCall& forwarded) noexcept;
  /// `other`, a copy, takes the place of a call that has been sent.
  void replace(ForwardedCall& forwarded, ForwardedCall& other) noexcept {
    if (next_call_ == &forwarded) next_call_ = &other;
    calls_.replace(forwarded, other);
  }
  /// Sends the reply to a callback: `message` is copied, with its XID replaced by `xid`. False: dropped.
  bool answer(std::uint32_t xid, std::span<const std::byte> message) noexcept;

  /// End of a loop turn: submits what was queued.
  void flush() noexcept;
  /// While needs_attention(): connects again, moves or retires when it is time.
  void attend(std::uint64_t now_ns) noexcept;
  bool needs_attention() const noexcept { return state_ == State::Retrying || moving_ || leaving_; }
  /// Looks whether it leads to where the upstream's connections go now.
  void follow_address(std::uint64_t now_ns) noexcept;
  /// Asks an upstream that says nothing for a sign of life, and makes the connection again if none comes.
  void watch(std::uint64_t now_ns) noexcept;
  /// True: this is the XID of what watch() has sent.
  bool take_probe_answer(std::uint32_t xid) noexcept {
    return xid == probe_xid_ && std::exchange(awaits_probe_, false);
  }
  /// Closes the connection; calls whose reply is still needed are sent again on the next one.
  void lose() noexcept;

  void on_connected(int result) noexcept;
  void on_received(const tcp::Uring::Completion& end) noexcept;
  void on_received_again(const tcp::Uring::Completion& end) noexcept;
  void on_sent(int result) noexcept;

  // For the upstream.
  bool dirty = false;  ///< in the list to be flushed
  QueueLink<UpstreamConnection> attended_link;
  tcp::RecordStream& stream() noexcept { return stream_; }

 private:
  /// What is sent after a loss, until it is answered or has not ended the connection for kTrialNs.
  struct Trial {
    std::uint32_t number = 1;
    std::uint32_t most = 1;  ///< calls in it
    std::uint32_t sent = 0;
    std::uint32_t open = 0;  ///< of those, not answered yet
    std::uint64_t begun_ns = 0;
  };

  void transition(State to) noexcept;
  void open() noexcept;
  bool prepare_socket(const PeerAddress& address) noexcept;
  bool nothing_in_flight() const noexcept;
  void pump() noexcept;
  bool may_send() noexcept;
  bool trial_lasts() const noexcept;
  void next_trial(std::uint32_t most) noexcept;
  ForwardedCall* judge_suspects() noexcept;
  bool strike(ForwardedCall& suspect) noexcept;
  bool enqueue(ForwardedCall& forwarded) noexcept;
  void handle_records() noexcept;
  void take(std::optional<int> received) noexcept;
  void receive() noexcept;
  void give_memory_back() noexcept;
  void find_memory() noexcept;
  void finish_closing() noexcept;
  int next_socket() noexcept;
  void give_up_port() noexcept;
  void note_attempt(int result) noexcept;
  bool wants_port() const noexcept;
  void probe() noexcept;
  void retire_if_done() noexcept;
  bool busy() const noexcept { return connecting_ || receiver_.busy() || sending_; }
  void mark_dirty() noexcept;

  Upstream& upstream_;
  tcp::Uring& uring_;
  State state_ = State::Idle;  ///< changed by transition() alone
  bool connecting_ = false;    ///< connect in flight in io_uring; the same for the next
  bool sending_ = false;
  bool leaving_ = false;   ///< the client is gone
  bool retiring_ = false;  ///< and the connection is to be closed
  bool moving_ = false;    ///< to another address
  bool answered_ = false;  ///< the upstream has answered a call since the last strike
  int socket_ = -1;        ///< while there is no connection, the next one; negative: none
  int family_ = 0;         ///< of the socket
  PeerAddress peer_;       ///< to which it is connected, or is to be
  std::uint16_t peer_port_ = 0;
  sockaddr_storage peer_socket_address_{};
  std::uint64_t opened_ns_ = 0;
  std::uint64_t moving_since_ns_ = 0;
  std::uint32_t epoch_ = 0;
  service::Client* client_ = nullptr;
  ForwardedCallList calls_;
  ForwardedCall* unsent_ = nullptr;     ///< first of calls_ that is AwaitingSend
  ForwardedCall* next_call_ = nullptr;  ///< of next_call()
  std::uint32_t to_visit_ = 0;          ///< by next_call()
  bool visiting_ = false;               ///< next_call() does not begin with the first
  std::uint32_t to_resend_ = 0;         ///< AwaitingSend, and sent before
  Trial trial_;
  tcp::SendQueue queue_;
  FixedArray<std::byte> stream_bytes_;
  tcp::RecordStream stream_;
  tcp::StreamReceiver receiver_;
  // Of the record that the stream has memory for, or that is skipped.
  std::uint32_t record_xid_ = 0;
  rpc::MessageType record_type_{};
  bool skipping_unwanted_ = false;  ///< on our own account, not because of the record's length
  msghdr message_{};
  std::uint16_t port_ = 0;       ///< ours; the same one for each socket, if it can be had. Zero: any
  std::uint32_t timed_out_ = 0;  ///< attempts from the port, one after the other
  std::uint32_t kept_xids_ = 0;  ///< calls that keep their XID
  bool probing_ = false;         ///< asked for a sign of life, or would have been if there were room
  bool awaits_probe_ = false;    ///< the reply to it
  std::uint32_t probe_xid_ = 0;
  std::uint64_t heard_ns_ = 0;  ///< or was connected
  std::uint64_t probed_ns_ = 0;
  std::uint64_t probe_answer_ns_ = kFirstProbeAnswerNs;
  std::uint64_t retry_ns_ = 0;
  std::uint64_t retry_after_ns_ = kFirstRetryNs;
};

using ConnectionTransitions =
    gateway::TransitionTable<UpstreamConnection::State, UpstreamConnection::State::Retrying>;
/// Successors of each state of a connection to an upstream.
inline constexpr ConnectionTransitions kConnectionTransitions = [] {
  using enum UpstreamConnection::State;
  return ConnectionTransitions{
      {Connecting, Closing},        // Idle: Closing, if there is no address or no socket
      {Up, Closing},                // Connecting
      {Closing},                    // Up
      {Idle, Retrying},             // Closing
      {Idle, Connecting, Closing},  // Retrying: Closing, if there is no address or no socket
  };
}();

}  // namespace sluice::tcp_upstream
