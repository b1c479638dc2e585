// SPDX-License-Identifier: Apache-2.0
//
// This file establishes, watches and closes connections; connection_stream.cc sends and receives on them.
#include "dataplane/gateway/tcp_upstream/upstream_connection.h"

#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::tcp_upstream {
namespace {

using Counter = segment::UpstreamCounter;

/// Returns whether the error means that no server is reachable at the address. All other errors are local or
/// show that the server is reachable.
bool is_of_address(int error) {
  return error == -ECONNREFUSED || error == -ECONNRESET || error == -ETIMEDOUT || error == -EHOSTUNREACH ||
         error == -ENETUNREACH || error == -EHOSTDOWN || error == -ENETDOWN;
}

}  // namespace

void UpstreamConnection::transition(State to) noexcept {
  gateway::change_state(kConnectionTransitions, state_, to);
}

UpstreamConnection::UpstreamConnection(UpstreamShared& shared, ConnectionWork& work)
    : shared_(shared),
      work_(work),
      stream_bytes_(FixedArray<std::byte>::for_overwrite(tcp::kStreamBytes)),
      stream_({stream_bytes_.data(), tcp::kStreamBytes}, shared.config.replies.record_bytes()),
      receiver_(shared.uring, this) {}

UpstreamConnection::~UpstreamConnection() {
  if (socket_ >= 0) ::close(socket_);
}

// --- The connection

/// Returns a socket for the next connection, or a negative value on failure. The socket is bound to the port
/// of the previous one before that one is closed, because an upstream recognises a retransmitted call by the
/// port, among other properties.
int UpstreamConnection::next_socket() noexcept {
  const bool privileged = shared_.config.privileged_port;
  if (privileged && port_ >= tcp::kPrivilegedPortsEnd && !wants_port())
    port_ = 0;  // a reload has changed the setting
  const int socket = tcp::bound_socket(family_, privileged, tcp::kPeerTimeoutMs, port_);
  if (socket >= 0)
    port_ = tcp::local_port(socket);
  else if (port_ != 0)
    give_up_port();
  return socket;
}

/// Provides a socket of the address's family. Returns false on failure.
bool UpstreamConnection::prepare_socket(const PeerAddress& address) noexcept {
  const int family = is_mapped_ipv4(address) ? AF_INET : AF_INET6;
  if (socket_ >= 0 && family != family_) {
    ::close(socket_);
    socket_ = -1;
  }
  family_ = family;
  if (socket_ < 0) socket_ = next_socket();
  return socket_ >= 0;
}

void UpstreamConnection::open() noexcept {
  static_cast<void>(SLUICE_INVARIANT(!sending_ && !receiver_.busy(), gateway_state));
  static_cast<void>(SLUICE_INVARIANT(queue_.empty(), pool_balance));
  const PeerAddress* const address = shared_.addresses.current();
  if (address == nullptr || !prepare_socket(*address)) {
    shared_.count(Counter::connect_failures);
    transition(State::Closing);
    return close_when_idle();
  }
  peer_ = *address;
  peer_port_ = shared_.addresses.port();
  opened_ns_ = shared_.now_ns();
  transition(State::Connecting);
  const socklen_t bytes = tcp::socket_address(peer_, peer_port_, peer_socket_address_);
  shared_.uring.connect(this, socket_, reinterpret_cast<const sockaddr*>(&peer_socket_address_), bytes);
}

void UpstreamConnection::on_connected(int result) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(state_ == State::Connecting || state_ == State::Aborting, gateway_state));
  if (result < 0) shared_.count(Counter::connect_failures);
  if (state_ == State::Connecting) {
    if (is_of_address(result)) shared_.address_failed(peer_);
    note_attempt(result);
  }
  if (result < 0 || state_ == State::Aborting) {
    transition(State::Closing);
    return close_when_idle();
  }
  shared_.count(Counter::connects);
  transition(State::Up);
  heard_ns_ = shared_.now_ns();
  pump();
}

void UpstreamConnection::lose() noexcept {
  if (!is_up() && state_ != State::Connecting) return;
  if (is_up()) shared_.count(Counter::disconnects);
  transition(is_up() ? State::Closing : State::Aborting);
  receiver_.stop();
  tcp::reset(socket_);  // completes the io_uring operations in flight
  close_when_idle();
}

void UpstreamConnection::close_when_idle() noexcept {
  if (state_ == State::Closing && !receiver_.busy() && !sending_) work_.closed.push_back(*this);
}

ForwardedCall* UpstreamConnection::end_stream() noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(state_ == State::Closing && !sending_ && !receiver_.busy(), gateway_state));
  if (socket_ >= 0) {
    const int next = port_ != 0 && !retiring() ? next_socket() : -1;
    ::close(socket_);
    socket_ = next;
  }
  ++epoch_;
  queue_.clear();
  long_record_ = LongRecord::None;
  stream_.reset();
  probe_xid_.reset();
  probed_ns_ = 0;
  // Calls that end now may submit new calls, which must find the connection closed and without calls to send.
  unsent_ = nullptr;
  return judge_suspects();
}

void UpstreamConnection::settle() noexcept {
  unsent_ = calls_.first();
  static_cast<void>(SLUICE_INVARIANT(queue_.empty() && batch_.open == 0, pool_balance));
  to_resend_ = 0;
  for (ForwardedCall* call = unsent_; call != nullptr; call = call->next) {
    to_resend_ += call->resent;
    call->probe_batch = 0;
  }
  if (calls_.empty() || retiring()) return transition(State::Idle);
  transition(State::Retrying);
  retry_ns_ = shared_.now_ns() + retry_after_ns_;
  retry_after_ns_ = smaller_of(2 * retry_after_ns_, kLastRetryNs);
  work_.attend(*this);
}

/// Gives up the local port, because another socket uses it, has a connection from it to the upstream, or no
/// packets return to it.
void UpstreamConnection::give_up_port() noexcept {
  shared_.count(Counter::port_changes);
  port_ = 0;
  timed_out_ = 0;
}

/// Counts the attempts to connect that timed out in succession. An attempt that was answered, even by a
/// refusal, shows that packets pass and resets the count.
void UpstreamConnection::note_attempt(int result) noexcept {
  if (result == -EADDRNOTAVAIL) return give_up_port();
  if (result >= 0 || result == -ECONNREFUSED) timed_out_ = 0;
  if (result == -ETIMEDOUT && (++timed_out_ >= kPortAttempts || !wants_port())) give_up_port();
}

/// Returns whether the upstream may already have executed one of the calls and has to recognise its
/// retransmission, for which it uses the port, among other properties.
bool UpstreamConnection::wants_port() const noexcept {
  for (const ForwardedCall* call = calls_.first(); call != nullptr; call = call->next)
    if (call->resent && call->repetition != service::Repetition::Harmless) return true;
  return false;
}

void UpstreamConnection::watch(std::uint64_t now_ns) noexcept {
  pump();  // a probe batch may have ended
  const ForwardedCall* const first = calls_.first();
  if (!is_up() || first == nullptr || !first->at_upstream()) return;
  const std::uint64_t silent_since_ns = larger_of(heard_ns_, first->sent_ns);
  if (now_ns <= silent_since_ns || now_ns - silent_since_ns < kSilenceNs) return;
  if (probed_ns_ <= heard_ns_) return probe();
  if (now_ns - probed_ns_ < probe_answer_ns_) return;
  shared_.count(Counter::silent_resets);
  shared_.address_failed(peer_);
  probe_answer_ns_ = smaller_of(2 * probe_answer_ns_, kLastProbeAnswerNs);
  lose();
}

/// Sends a NULL call unless the send queue has no room for it. The upstream has to show a sign of life in
/// either case, also if it accepts no bytes.
void UpstreamConnection::probe() noexcept {
  static_cast<void>(SLUICE_INVARIANT(is_up() && !calls_.empty(), gateway_state));
  probed_ns_ = shared_.now_ns();
  shared_.count(Counter::probes);
  if (!queue_.room_for(tcp::kRecordHeadBytes + rpc::kMinCallBytes)) return;
  const service::Binding& asked = calls_.first()->service->binding();
  const std::uint32_t xid = new_xid();
  probe_xid_ = xid;
  std::array<std::byte, rpc::kMinCallBytes> bytes;
  xdr::Writer writer(bytes);
  rpc::CallHeader null;
  null.xid = rpc::Xid{xid};
  null.program = asked.program;
  null.version = asked.version;
  rpc::encode_call(writer, null);
  queue_.copy(tcp::record_head(bytes.size(), xid));
  queue_.copy(std::span(bytes).subspan(xdr::kUnit));
  work_.flush(*this);
}

bool UpstreamConnection::nothing_in_flight() const noexcept {
  return calls_.first() == unsent_ && queue_.empty();  // sent calls precede unsent calls
}

void UpstreamConnection::attend(std::uint64_t now_ns) noexcept {
  retire_if_done();
  if (state_ == State::Retrying && now_ns >= retry_ns_) return open();
  if (state_ != State::Moving) return;
  if (!nothing_in_flight() && (now_ns <= moving_since_ns_ || now_ns - moving_since_ns_ < kMoveNs)) return;
  shared_.count(Counter::moves);
  lose();
}

void UpstreamConnection::follow_address(std::uint64_t now_ns) noexcept {
  const PeerAddress* const address = shared_.addresses.current();
  if (address == nullptr) return;
  if (state_ == State::Connecting) {
    const std::uint64_t limit_ns = shared_.addresses.has_others() ? kConnectNs : kAttemptNs;
    if (now_ns <= opened_ns_ || now_ns - opened_ns_ < limit_ns) return;
    shared_.address_failed(peer_);
    note_attempt(-ETIMEDOUT);
    return lose();
  }
  if (state_ != State::Up || (*address == peer_ && shared_.addresses.port() == peer_port_)) return;
  transition(State::Moving);
  moving_since_ns_ = now_ns;
  work_.attend(*this);
}

void UpstreamConnection::detach() noexcept {
  static_cast<void>(SLUICE_INVARIANT(client_ != nullptr, gateway_state));
  static_cast<void>(SLUICE_INVARIANT(tenure_ == Tenure::InUse || tenure_ == Tenure::Retiring, gateway_state));
  client_ = nullptr;
  tenure_ = retiring() ? Tenure::Detached : Tenure::Leaving;
  retire_if_done();
  work_.attend(*this);
}

/// Closes the connection of a disconnected client when no call on it may still be executed. A reset would not
/// stop a call that the upstream has read. UpstreamCalls::watch() bounds the wait.
void UpstreamConnection::retire_if_done() noexcept {
  if (tenure_ == Tenure::Leaving && calls_.empty()) retire();
}

void UpstreamConnection::retire() noexcept {
  tenure_ = tenure_ == Tenure::Leaving || tenure_ == Tenure::Detached ? Tenure::Detached : Tenure::Retiring;
  if (state_ == State::Retrying) transition(State::Idle);
  lose();
}

}  // namespace sluice::tcp_upstream
