// SPDX-License-Identifier: Apache-2.0
//
// One TCP connection to an upstream server. It is opened for the first call, and reopened if it is lost with
// calls on it. Only the owning reactor may call.
//
// Calls are sent in order of arrival. Like any RPC client over TCP, the connection retransmits calls without
// a reply on its successor, with the same XIDs, but one after the other. This identifies a call that makes
// the upstream close the connection, so that such a call cannot block the others forever.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/net_address.h"
#include "dataplane/gateway/tcp_upstream/forwarded_call.h"
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/streams.h"
#include "dataplane/tcp/uring.h"

namespace sluice::tcp_upstream {

/// Delay in nanoseconds between attempts to connect. It doubles from the first to the last value.
inline constexpr std::uint64_t kFirstRetryNs = 50'000'000;
inline constexpr std::uint64_t kLastRetryNs = 3'000'000'000;
/// Duration in nanoseconds of a probe batch. After a lost connection, calls are retransmitted in probe
/// batches, first of one call. The next probe batch begins when the calls of the current one are answered. If
/// they are not answered within this time and the connection lasts, they are no longer suspected, and the
/// number of calls per probe batch doubles.
inline constexpr std::uint64_t kProbeBatchNs = 1'000'000'000;
/// Number of lost connections after which the client of a call is disconnected. A loss counts if the call was
/// alone in a probe batch and the upstream had answered other calls.
inline constexpr std::uint8_t kMaxFailures = 3;
/// Time in nanoseconds without received bytes after which an upstream with outstanding calls is probed. The
/// probe is a NULL call, which costs the upstream no work.
inline constexpr std::uint64_t kSilenceNs = 15'000'000'000;
/// Time in nanoseconds without received bytes after a probe, after which the connection is reset. It doubles
/// from the first to the last value until a call is answered, so that an upstream that executes one call at a
/// time can complete a long one.
inline constexpr std::uint64_t kFirstProbeAnswerNs = 30'000'000'000;
inline constexpr std::uint64_t kLastProbeAnswerNs = 16 * kFirstProbeAnswerNs;

/// Timeout in nanoseconds of an attempt to connect if the upstream has other addresses. The address has then
/// failed.
inline constexpr std::uint64_t kConnectNs = 5'000'000'000;
/// Timeout in nanoseconds of an attempt to connect to the only address. It ends five seconds after the last
/// of the kernel's SYNs.
inline constexpr std::uint64_t kAttemptNs = 12'000'000'000;
/// Number of attempts from one port that time out before the port is given up. A firewall or load balancer
/// may drop all packets of one port and pass the packets of other ports.
inline constexpr std::uint32_t kPortAttempts = 3;
/// Maximum time in nanoseconds for which a connection to an address that is no longer used waits for the
/// replies to its calls. It sends no further calls.
inline constexpr std::uint64_t kMoveNs = 10'000'000'000;

/// Maximum bytes of a long record that one receive operation waits for. It is smaller than a long record,
/// because only the completion of an operation counts as a sign of life: an upstream that needs longer than
/// kSilenceNs for these bytes is probed.
inline constexpr std::size_t kReceivedAtOnce = 256u << 10;

/// Maximum number of operations of a connection in io_uring: its receives and one send.
inline constexpr std::uint32_t kConnectionOperations = tcp::kReceiveOperations + 1;

class ConnectionWork;

class UpstreamConnection {
 public:
  enum class State : std::uint8_t {
    Idle,        ///< connects on the next call; its socket may already be open and bound to the local port
    Connecting,  ///< waits for the TCP connection to be established
    Aborting,    ///< reset while Connecting; waits for the connect operation to end
    Up,          ///< sends and receives
    Moving,      ///< receives but sends no calls, because the upstream's address has changed
    Closing,     ///< reset; waits for the io_uring operations in flight, then for settle()
    Retrying,    ///< waits until retry_ns_ to connect again
  };

  /// Result of next_arrival(): a received message or its beginning.
  enum class Arrival : std::uint8_t {
    Nothing,   ///< no message yet; further bytes are received
    Record,    ///< record() is complete; the caller takes its memory
    Long,      ///< the record does not fit the stream's buffer; the caller calls lend()
    Unwanted,  ///< a record for which there was no memory was skipped
    TooLong,   ///< a record longer than any valid reply was skipped; record() is its first word
  };

  UpstreamConnection(UpstreamShared& shared, ConnectionWork& work);
  ~UpstreamConnection();
  UpstreamConnection(const UpstreamConnection&) = delete;
  UpstreamConnection& operator=(const UpstreamConnection&) = delete;

  State state() const noexcept { return state_; }
  bool is_up() const noexcept { return state_ == State::Up || state_ == State::Moving; }
  /// Returns the number of the upstream in the configuration.
  std::uint32_t upstream_number() const noexcept { return shared_.number; }
  /// Returns the client to which the connection is dedicated, or null if the connection is shared or unused.
  service::Client* client() const noexcept { return client_; }
  /// Returns a number that changes when the connection is closed, so that a late reply to a callback is not
  /// sent on the next connection.
  std::uint32_t epoch() const noexcept { return epoch_; }
  /// Returns the time at which bytes were last received or the connection was established.
  std::uint64_t heard_ns() const noexcept { return heard_ns_; }
  ForwardedCallList& calls() noexcept { return calls_; }
  /// Returns the next element of a round over the connection's calls. Returns null at the end of the round
  /// and then begins a new one. The length of a round is the number of calls at its beginning. Calls may end
  /// or be added during a round.
  ForwardedCall* next_call() noexcept;

  void assign(service::Client& client) noexcept {
    static_cast<void>(SLUICE_INVARIANT(client_ == nullptr && calls_.empty(), pool_balance));
    client_ = &client;
  }
  /// Detaches the connection from its client, whose calls have been given up. The connection is closed after
  /// all orphans on it have ended; has_left() is true from then on.
  void detach() noexcept;
  /// Returns whether retire() was called.
  bool retiring() const noexcept { return tenure_ == Tenure::Retiring || tenure_ == Tenure::Detached; }
  bool retired() const noexcept { return retiring() && state_ == State::Idle; }
  /// Returns whether detach() was called and the connection is closed.
  bool has_left() const noexcept { return tenure_ == Tenure::Detached && state_ == State::Idle; }
  /// Closes the connection, whose calls are not retransmitted.
  void retire() noexcept;
  /// Makes the connection available for another client or another upstream. Requires retired().
  void reuse() noexcept {
    static_cast<void>(SLUICE_INVARIANT(retired() && calls_.empty(), gateway_state));
    tenure_ = Tenure::InUse;
    answered_ = false;
    port_ = 0;
    timed_out_ = 0;
    retry_after_ns_ = kFirstRetryNs;
    probe_answer_ns_ = kFirstProbeAnswerNs;
  }

  /// Queues a call that has its XID. The call stays on the connection until remove().
  void submit(ForwardedCall& forwarded) noexcept;
  /// Retransmits a call that was sent on this connection and is not answered, with the same XID.
  void send_again(ForwardedCall& forwarded) noexcept;
  /// Records that the upstream has answered a call, and resets the retry delay and the probe timeout.
  void note_answer() noexcept {
    answered_ = true;
    retry_after_ns_ = kFirstRetryNs;
    probe_answer_ns_ = kFirstProbeAnswerNs;
  }
  /// Returns an XID that no call on the connection has.
  std::uint32_t new_xid() noexcept {
    std::uint32_t xid = shared_.xids.next();
    while (find_kept(xid) != nullptr) xid = shared_.xids.next();
    return xid;
  }
  /// Returns the call on the connection that keeps its client's XID and has this XID, or null. Linear in the
  /// number of calls if any of them keeps its XID, which occurs only on dedicated connections.
  ForwardedCall* find_kept(std::uint32_t xid) noexcept {
    return kept_xids_ == 0 ? nullptr : find_among_calls(xid);
  }
  /// Removes a finished call, which must not be in_send_queue().
  void remove(ForwardedCall& forwarded) noexcept;
  /// Replaces a call that has been sent by its copy `other`.
  void replace(ForwardedCall& forwarded, ForwardedCall& other) noexcept {
    static_cast<void>(SLUICE_INVARIANT(unsent_ != &forwarded && other.connection == this, list_membership));
    if (next_call_ == &forwarded) next_call_ = &other;
    calls_.replace(forwarded, other);
  }
  /// Sends the reply to a callback. Copies `message` and replaces its XID by `xid`. Returns false if the
  /// reply was dropped.
  bool answer(std::uint32_t xid, std::span<const std::byte> message) noexcept;

  /// Submits the queued bytes to io_uring. Called at the end of a loop iteration.
  void flush() noexcept;
  /// Connects again, moves or retires the connection when that is due. Called while needs_attention().
  void attend(std::uint64_t now_ns) noexcept;
  bool needs_attention() const noexcept {
    return state_ == State::Retrying || state_ == State::Moving || tenure_ == Tenure::Leaving ||
           tenure_ == Tenure::Detached;
  }
  /// Begins to move the connection if the upstream's address has changed, and ends an attempt to connect that
  /// timed out.
  void follow_address(std::uint64_t now_ns) noexcept;
  /// Probes an upstream that sends nothing, and resets the connection if the probe shows no sign of life.
  void watch(std::uint64_t now_ns) noexcept;
  /// Returns true if this is the XID of the outstanding probe, which is then answered.
  bool take_probe_answer(std::uint32_t xid) noexcept {
    if (probe_xid_ != xid) return false;
    probe_xid_.reset();
    return true;
  }
  /// Resets the connection, which is added to ConnectionWork::closed when no operation is in flight.
  void lose() noexcept;

  // The caller takes a connection from ConnectionWork::closed, takes back its lent memory, calls
  // end_stream(), ends the calls that are not retransmitted, and calls settle().

  /// Closes the socket and resets the stream. Returns the call to give up, because its connections were lost
  /// repeatedly, or null.
  ForwardedCall* end_stream() noexcept;
  /// Makes the remaining calls wait for the next connection.
  void settle() noexcept;

  // The next three functions handle completions of io_uring operations. The caller calls next_arrival() after
  // on_connected(), and after on_received() if it returns true.
  void on_connected(int result) noexcept;
  bool on_received(const tcp::Uring::Completion& end, bool again) noexcept;
  /// Handles the completion of a send. Calls `released` for each call to whose message the send queue no
  /// longer refers.
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
  /// Returns whether the record is in lent memory.
  bool record_in_memory() const noexcept { return stream_.in_memory(); }
  std::uint32_t record_xid() const noexcept { return record_xid_; }
  rpc::MessageType record_type() const noexcept { return record_type_; }
  /// Lends memory for the record of Arrival::Long. Skips the record if `memory` is null.
  void lend(std::byte* memory) noexcept;
  /// Returns the lent memory with the record or a part of it to the caller, or null if no memory is lent.
  std::byte* take_memory() noexcept { return stream_.take_memory(); }

  QueueLink<UpstreamConnection> flush_link;
  QueueLink<UpstreamConnection> attention_link;
  QueueLink<UpstreamConnection> closed_link;

 private:
  /// Relation of the connection to its client.
  enum class Tenure : std::uint8_t {
    InUse,     ///< carries calls of one client or of all
    Leaving,   ///< the client is disconnected, but its calls may still be executed
    Retiring,  ///< retire() was called, but detach() was not
    Detached,  ///< both retire() and detach() were called
  };
  /// Treatment of a record that does not fit the stream's buffer.
  enum class LongRecord : std::uint8_t { None, InMemory, Unwanted };

  static constexpr std::uint32_t kNoRound = ~std::uint32_t{0};

  /// Calls sent together after a lost connection, until they are answered or the connection has lasted for
  /// kProbeBatchNs.
  struct ProbeBatch {
    std::uint32_t number = 1;
    std::uint32_t most = 1;  ///< maximum number of calls
    std::uint32_t sent = 0;
    std::uint32_t open = 0;  ///< number of sent calls that are not answered yet
    std::uint64_t begun_ns = 0;
  };

  void transition(State to) noexcept;
  void open() noexcept;
  void close_when_idle() noexcept;
  bool note_sent(int result) noexcept;
  bool prepare_socket(const PeerAddress& address) noexcept;
  bool nothing_in_flight() const noexcept;
  /// Sends the calls that are AwaitingSend, as far as the connection and its send queue permit.
  void pump() noexcept {
    if (unsent_ != nullptr && state_ == State::Up) send_unsent();
  }
  void send_unsent() noexcept;
  ForwardedCall* find_among_calls(std::uint32_t xid) noexcept;
  bool may_send() noexcept { return (to_resend_ == 0 && batch_.open == 0) || batch_permits(); }
  bool batch_permits() noexcept;
  bool batch_lasts() const noexcept;
  void next_batch(std::uint32_t most) noexcept;
  ForwardedCall* judge_suspects() noexcept;
  bool count_failure(ForwardedCall& suspect) noexcept;
  bool enqueue(ForwardedCall& forwarded) noexcept;
  int next_socket() noexcept;
  void give_up_port() noexcept;
  void note_attempt(int result) noexcept;
  bool wants_port() const noexcept;
  void probe() noexcept;
  void retire_if_done() noexcept;

  UpstreamShared& shared_;
  ConnectionWork& work_;
  State state_ = State::Idle;  ///< changed only by transition()
  Tenure tenure_ = Tenure::InUse;
  LongRecord long_record_ = LongRecord::None;
  /// True if a send is in flight in io_uring. This flag is not a state, because sends begin and end while the
  /// connection is Up.
  bool sending_ = false;
  /// True if the upstream has answered a call since the last failure. This flag is not a state, because it
  /// survives lost connections.
  bool answered_ = false;
  int socket_ = -1;   ///< socket of the current or the next connection; negative: none
  int family_ = 0;    ///< address family of the socket
  PeerAddress peer_;  ///< address of the current or last connection
  std::uint16_t peer_port_ = 0;
  sockaddr_storage peer_socket_address_{};
  std::uint64_t opened_ns_ = 0;
  std::uint64_t moving_since_ns_ = 0;
  std::uint32_t epoch_ = 0;
  service::Client* client_ = nullptr;
  ForwardedCallList calls_;
  ForwardedCall* unsent_ = nullptr;     ///< first element of calls_ that is AwaitingSend
  ForwardedCall* next_call_ = nullptr;  ///< next result of next_call()
  std::uint32_t to_visit_ = kNoRound;  ///< calls left in the round of next_call(); kNoRound: a new one begins
  std::uint32_t to_resend_ = 0;        ///< number of calls that are AwaitingSend and were sent before
  ProbeBatch batch_;
  tcp::SendQueue queue_;
  FixedArray<std::byte> stream_bytes_;
  tcp::RecordStream stream_;
  tcp::StreamReceiver receiver_;
  // The next two members describe the record of Arrival::Long.
  std::uint32_t record_xid_ = 0;
  rpc::MessageType record_type_{};
  msghdr message_{};
  std::uint16_t port_ = 0;       ///< local port, kept for the next socket if possible; zero: any port
  std::uint32_t timed_out_ = 0;  ///< number of successive attempts from the port that timed out
  std::uint32_t kept_xids_ = 0;  ///< number of calls that keep their client's XID
  std::optional<std::uint32_t> probe_xid_;  ///< XID of the NULL call that is not answered
  std::uint64_t heard_ns_ = 0;  ///< time at which bytes were last received or the connection was established
  /// Time of the last probe, whether or not there was room to send it. If it is later than heard_ns_, a sign
  /// of life is pending.
  std::uint64_t probed_ns_ = 0;
  std::uint64_t probe_answer_ns_ = kFirstProbeAnswerNs;
  std::uint64_t retry_ns_ = 0;
  std::uint64_t retry_after_ns_ = kFirstRetryNs;
};

/// Lists of connections that need a flush, attention or settlement. A connection is in each list at most
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
  /// Returns the number of connections that wait for attention.
  std::uint32_t attended() const noexcept { return attended_; }
  /// Removes and returns the first connection that waits for attention. Requires attended() > 0.
  UpstreamConnection& next_attended() noexcept {
    static_cast<void>(SLUICE_INVARIANT(attended_ > 0, list_membership));
    --attended_;
    return *to_attend_.pop_front();
  }

  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::flush_link> to_flush;
  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::closed_link> closed;

 private:
  /// Connections for which needs_attention() is true. Each is attended once per kTickNs.
  IntrusiveQueue<UpstreamConnection, &UpstreamConnection::attention_link> to_attend_;
  std::uint32_t attended_ = 0;
};

using ConnectionTransitions = TransitionTable<UpstreamConnection::State, UpstreamConnection::State::Retrying>;
/// Successors of each state of a connection to an upstream.
inline constexpr ConnectionTransitions kConnectionTransitions = [] {
  using enum UpstreamConnection::State;
  return ConnectionTransitions{
      {Connecting, Closing},        // Idle (Closing without an address or a socket)
      {Aborting, Up, Closing},      // Connecting
      {Closing},                    // Aborting
      {Moving, Closing},            // Up
      {Closing},                    // Moving
      {Idle, Retrying},             // Closing
      {Idle, Connecting, Closing},  // Retrying (Closing without an address or a socket)
  };
}();

}  // namespace sluice::tcp_upstream
