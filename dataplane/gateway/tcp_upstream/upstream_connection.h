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
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"
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
/// The client of a call is disconnected after this many connections were lost with the call alone on them
/// while other calls were answered.
inline constexpr std::uint8_t kMaxStrikes = 3;
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

class ConnectionWork;

class UpstreamConnection {
 public:
  enum class State : std::uint8_t {
    Idle,        ///< connects on the next call; the socket for it may be there, bound to our port
    Connecting,  ///< waits for the TCP connection to be established
    Aborting,    ///< reset while Connecting; waits for that to end
    Up,          ///< sends and receives
    Moving,      ///< as Up, but sends no calls, because the upstream's address has changed
    Closing,     ///< reset; waits for the io_uring operations still in flight, then for settle()
    Retrying,    ///< waits for the time of the next connect
  };

  /// A message that has come, or its head.
  enum class Arrival : std::uint8_t {
    Nothing,   ///< more is received
    Record,    ///< record() is whole; its memory has to be taken
    Long,      ///< does not fit the stream's buffer: lend() has to follow
    Unwanted,  ///< a record for which there was no memory was skipped
    TooLong,   ///< a record longer than any valid reply was skipped; record() is its head
  };

  UpstreamConnection(UpstreamShared& shared, ConnectionWork& work);
  ~UpstreamConnection();
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  State state() const noexcept { return state_; }
  bool is_up() const noexcept { return state_ == State::Up || state_ == State::Moving; }
  /// Number of the upstream in the configuration.
  std::uint32_t upstream_number() const noexcept { return shared_.number; }
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
  /// Releases the connection from its client, whose calls have been given up. It is closed when every call
  /// is answered whose execution matters, and then has_left().
  void leave() noexcept;
  /// Returns whether retire() was called.
  bool retiring() const noexcept { return tenure_ == Tenure::Retiring || tenure_ == Tenure::Left; }
  bool retired() const noexcept { return retiring() && state_ == State::Idle; }
  /// leave() was called, and the connection is closed.
  bool has_left() const noexcept { return tenure_ == Tenure::Left && state_ == State::Idle; }
  /// Closes the connection: no call on it is to be sent again.
  void retire() noexcept;
  /// After retired(): makes the connection available for another client, or another upstream.
  void reuse() noexcept {
    tenure_ = Tenure::InUse;
    answered_ = false;
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
  /// Returns an XID that no call on the connection has.
  std::uint32_t new_xid() noexcept;
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
  bool needs_attention() const noexcept {
    return state_ == State::Retrying || state_ == State::Moving || tenure_ == Tenure::Leaving ||
           tenure_ == Tenure::Left;
  }
  /// Looks whether it leads to where the upstream's connections go now.
  void follow_address(std::uint64_t now_ns) noexcept;
  /// Asks an upstream that says nothing for a sign of life, and makes the connection again if none comes.
  void watch(std::uint64_t now_ns) noexcept;
  /// True: this is the XID of what watch() has sent.
  bool take_probe_answer(std::uint32_t xid) noexcept {
    if (probe_xid_ != xid) return false;
    probe_xid_.reset();
    return true;
  }
  /// Resets the connection, which gets into ConnectionWork::closed when no operation is in flight.
  void lose() noexcept;

  // A connection in ConnectionWork::closed: memory goes back, then end_stream(); then the upstream ends the calls that
  // are not to be sent again, and settle() makes the others wait for the next connection.
  /// Returns the call that has ended every connection it was sent on, or null.
  ForwardedCall* end_stream() noexcept;
  void settle() noexcept;

  // Ends of io_uring operations. next_arrival() has to follow on_connected(), and on_received() where that is true.
  void on_connected(int result) noexcept;
  bool on_received(const tcp::Uring::Completion& end, bool again) noexcept;
  /// `released` gets each call to whose message the send queue no longer refers.
  template <typename Released>
  void on_sent(int result, Released&& released) noexcept {
    if (!note_sent(result)) return;
    queue_.sent(static_cast<std::size_t>(result),
                [&](void* owner) { released(*static_cast<ForwardedCall*>(owner)); });
    pump();
    flush();
  }
  Arrival next_arrival() noexcept;
  std::span<std::byte> record() noexcept { return stream_.record(); }
  /// Returns whether the record is in memory of its call.
  bool record_in_memory() const noexcept { return stream_.in_memory(); }
  std::uint32_t record_xid() const noexcept { return record_xid_; }
  rpc::MessageType record_type() const noexcept { return record_type_; }
  /// Null: the record is skipped.
  void lend(std::byte* memory) noexcept;
  /// Returns the memory that was lent for a record, which has ended or is the caller's now; null: none was.
  std::byte* take_memory() noexcept { return stream_.take_memory(); }

  QueueLink<UpstreamConnection> flush_link;
  QueueLink<UpstreamConnection> attention_link;
  QueueLink<UpstreamConnection> closed_link;

 private:
  /// Relation of the connection to its client.
  enum class Tenure : std::uint8_t {
    InUse,     ///< carries calls of one client or of all
    Leaving,   ///< the client is disconnected; its calls may still be executed
    Retiring,  ///< to be closed while its client is connected
    Left,      ///< to be closed after the client was disconnected
  };
  /// Treatment of a record that does not fit the stream's buffer.
  enum class LongRecord : std::uint8_t { None, InMemory, Unwanted };

  static constexpr std::uint32_t kNoRound = ~std::uint32_t{0};

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
  void close_when_idle() noexcept;
  bool note_sent(int result) noexcept;
  bool prepare_socket(const PeerAddress& address) noexcept;
  bool nothing_in_flight() const noexcept;
  void pump() noexcept;
  bool may_send() noexcept;
  bool trial_lasts() const noexcept;
  void next_trial(std::uint32_t most) noexcept;
  ForwardedCall* judge_suspects() noexcept;
  bool strike(ForwardedCall& suspect) noexcept;
  bool enqueue(ForwardedCall& forwarded) noexcept;
  int next_socket() noexcept;
  void give_up_port() noexcept;
  void note_attempt(int result) noexcept;
  bool wants_port() const noexcept;
  void probe() noexcept;
  void retire_if_done() noexcept;

  UpstreamShared& shared_;
  ConnectionWork& work_;
  State state_ = State::Idle;  ///< changed by transition() alone
  Tenure tenure_ = Tenure::InUse;
  LongRecord long_record_ = LongRecord::None;
  /// A send is in flight in io_uring. No state, because sends begin and end while the connection is Up.
  bool sending_ = false;
  /// The upstream has answered a call since the last strike. No state, because connections are lost between.
  bool answered_ = false;
  int socket_ = -1;   ///< while there is no connection, the next one; negative: none
  int family_ = 0;    ///< of the socket
  PeerAddress peer_;  ///< to which it is connected, or is to be
  std::uint16_t peer_port_ = 0;
  sockaddr_storage peer_socket_address_{};
  std::uint64_t opened_ns_ = 0;
  std::uint64_t moving_since_ns_ = 0;
  std::uint32_t epoch_ = 0;
  service::Client* client_ = nullptr;
  ForwardedCallList calls_;
  ForwardedCall* unsent_ = nullptr;     ///< first of calls_ that is AwaitingSend
  ForwardedCall* next_call_ = nullptr;  ///< of next_call()
  std::uint32_t to_visit_ = kNoRound;   ///< by next_call(); kNoRound: it begins with the first
  std::uint32_t to_resend_ = 0;         ///< AwaitingSend, and sent before
  Trial trial_;
  tcp::SendQueue queue_;
  FixedArray<std::byte> stream_bytes_;
  tcp::RecordStream stream_;
  tcp::StreamReceiver receiver_;
  // The next two describe the long record.
  std::uint32_t record_xid_ = 0;
  rpc::MessageType record_type_{};
  msghdr message_{};
  std::uint16_t port_ = 0;       ///< ours; the same one for each socket, if it can be had. Zero: any
  std::uint32_t timed_out_ = 0;  ///< attempts from the port, one after the other
  std::uint32_t kept_xids_ = 0;  ///< calls that keep their XID
  std::optional<std::uint32_t> probe_xid_;  ///< of a NULL that is not answered
  std::uint64_t heard_ns_ = 0;              ///< or was connected
  std::uint64_t probed_ns_ =
      0;  ///< later than heard_ns_: a sign of life is awaited, even if there was no room to send
  std::uint64_t probe_answer_ns_ = kFirstProbeAnswerNs;
  std::uint64_t retry_ns_ = 0;
  std::uint64_t retry_after_ns_ = kFirstRetryNs;
};

/// Lists of connections that need a flush, attention or settlement. Each list has a connection at most
/// once.
class ConnectionWork {
 public:
  void flush(UpstreamConnection& connection) noexcept {
    if (!connection.flush_link.linked()) to_flush.push_back(connection);
  }
  void attend(UpstreamConnection& connection) noexcept {
    if (connection.attention_link.linked()) return;
    to_attend_.push_back(connection);
    ++attended_;
  }
  /// Number of connections that wait for attention.
  std::uint32_t attended() const noexcept { return attended_; }
  /// Not while there are none.
  UpstreamConnection& next_attended() noexcept {
    static_cast<void>(SLUICE_INVARIANT(attended_ > 0, list_membership));
    --attended_;
    return *to_attend_.pop_front();
  }

  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::flush_link> to_flush;
  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::closed_link> closed;

 private:
  /// Connections that needs_attention(); each is attended once in kTickNs.
  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::attention_link> to_attend_;
  std::uint32_t attended_ = 0;
};

using ConnectionTransitions =
    gateway::TransitionTable<UpstreamConnection::State, UpstreamConnection::State::Retrying>;
/// Successors of each state of a connection to an upstream.
inline constexpr ConnectionTransitions kConnectionTransitions = [] {
  using enum UpstreamConnection::State;
  return ConnectionTransitions{
      {Connecting, Closing},        // Idle: Closing, if there is no address or no socket
      {Aborting, Up, Closing},      // Connecting
      {Closing},                    // Aborting
      {Moving, Closing},            // Up
      {Closing},                    // Moving
      {Idle, Retrying},             // Closing
      {Idle, Connecting, Closing},  // Retrying: Closing, if there is no address or no socket
  };
}();

}  // namespace sluice::tcp_upstream
