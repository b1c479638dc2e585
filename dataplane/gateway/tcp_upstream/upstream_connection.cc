// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/upstream_connection.h"

#include <netinet/tcp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/forward_service.h"
#include "dataplane/gateway/tcp_upstream/upstream.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::tcp_upstream {
namespace {

/// Whether the error says that the address leads nowhere; others are ours, or say that the server is there.
bool is_of_address(int error) {
  return error == -ECONNREFUSED || error == -ECONNRESET || error == -ETIMEDOUT || error == -EHOSTUNREACH ||
         error == -ENETUNREACH || error == -EHOSTDOWN || error == -ENETDOWN;
}

}  // namespace

void UpstreamConnection::transition(State to) noexcept {
  gateway::change_state(kConnectionTransitions, state_, to);
}

UpstreamConnection::UpstreamConnection(Upstream& upstream, tcp::Uring& uring)
    : upstream_(upstream),
      uring_(uring),
      stream_bytes_(FixedArray<std::byte>::for_overwrite(tcp::kStreamBytes)),
      stream_({stream_bytes_.data(), tcp::kStreamBytes}, tcp::kMaxRecordBytes),
      receiver_(uring, this) {}

UpstreamConnection::~UpstreamConnection() {
  if (socket_ >= 0) ::close(socket_);
}

// --- The connection

/// By the port an upstream knows a call that is sent again, among other things; so each socket has that of the
/// last one, and is bound to it before that is closed.
int UpstreamConnection::next_socket() noexcept {
  const bool privileged = upstream_.config().privileged_port;
  const int socket = tcp::bound_socket(family_, privileged, tcp::kPeerTimeoutMs, port_);
  if (socket >= 0)
    port_ = tcp::local_port(socket);
  else if (port_ != 0)
    give_up_port();
  return socket;
}

/// A socket of the address's family.
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
  const PeerAddress* const address = upstream_.address();
  if (address == nullptr || !prepare_socket(*address)) {
    upstream_.count(Upstream::Counter::connect_failures);
    return finish_closing();
  }
  peer_ = *address;
  peer_port_ = upstream_.port();
  opened_ns_ = upstream_.now_ns();
  transition(State::Connecting);
  connecting_ = true;
  const socklen_t bytes = tcp::socket_address(peer_, peer_port_, peer_socket_address_);
  uring_.connect(this, socket_, reinterpret_cast<const sockaddr*>(&peer_socket_address_), bytes);
}

void UpstreamConnection::on_connected(int result) noexcept {
  connecting_ = false;
  if (result < 0 || state_ == State::Closing) {
    if (result < 0) upstream_.count(Upstream::Counter::connect_failures);
    if (state_ != State::Closing && is_of_address(result)) upstream_.on_address_failed(peer_);
    if (state_ != State::Closing) note_attempt(result);
    return finish_closing();
  }
  note_attempt(result);
  upstream_.count(Upstream::Counter::connects);
  transition(State::Up);
  heard_ns_ = upstream_.now_ns();
  handle_records();
  pump();
}

void UpstreamConnection::lose() noexcept {
  if (state_ != State::Up && state_ != State::Connecting) return;
  if (state_ == State::Up) upstream_.count(Upstream::Counter::disconnects);
  transition(State::Closing);
  receiver_.stop();
  tcp::reset(socket_);  // completes the io_uring operations in flight
  if (!busy()) finish_closing();
}

void UpstreamConnection::finish_closing() noexcept {
  if (socket_ >= 0) {
    const int next = port_ != 0 && !retiring_ ? next_socket() : -1;
    ::close(socket_);
    socket_ = next;
  }
  ++epoch_;
  queue_.clear();
  give_memory_back();
  skipping_unwanted_ = false;
  stream_.reset();
  probing_ = awaits_probe_ = moving_ = false;
  // Completing calls below may submit new ones: they must find the connection closed, with nothing to send.
  if (state_ != State::Closing) transition(State::Closing);
  unsent_ = nullptr;
  upstream_.on_lost(*this, judge_suspects());
  unsent_ = calls_.first();
  to_resend_ = 0;
  for (ForwardedCall* call = unsent_; call != nullptr; call = call->next) {
    to_resend_ += call->resent;
    call->trial = 0;
  }
  if (calls_.empty() || retiring_) {
    transition(State::Idle);
    return;
  }
  transition(State::Retrying);
  retry_ns_ = upstream_.now_ns() + retry_after_ns_;
  retry_after_ns_ = smaller_of(2 * retry_after_ns_, kLastRetryNs);
  upstream_.schedule_attention(*this);
}

/// Another socket has it, or has connected from it to the upstream; or nothing comes back to it.
void UpstreamConnection::give_up_port() noexcept {
  upstream_.count(Upstream::Counter::port_changes);
  port_ = 0;
  timed_out_ = 0;
}

/// Counts attempts that timed out. One that was answered, if only by a refusal, shows that packets pass.
void UpstreamConnection::note_attempt(int result) noexcept {
  if (result == -EADDRNOTAVAIL) return give_up_port();
  if (result >= 0 || result == -ECONNREFUSED) timed_out_ = 0;
  if (result == -ETIMEDOUT && (++timed_out_ >= kPortAttempts || !wants_port())) give_up_port();
}

/// Returns whether a call may have been executed already whose repetition the upstream has to recognise, by the port
/// among other things.
bool UpstreamConnection::wants_port() const noexcept {
  for (const ForwardedCall* call = calls_.first(); call != nullptr; call = call->next)
    if (call->resent && call->repetition != service::Repetition::Harmless) return true;
  return false;
}

void UpstreamConnection::watch(std::uint64_t now_ns) noexcept {
  pump();  // a trial may be over
  const ForwardedCall* const first = calls_.first();
  if (state_ != State::Up || first == nullptr || !first->at_upstream()) return;
  const std::uint64_t silent_since_ns = larger_of(heard_ns_, first->sent_ns);
  if (now_ns <= silent_since_ns || now_ns - silent_since_ns < kSilenceNs) return;
  if (!probing_) return probe();
  if (now_ns - probed_ns_ < probe_answer_ns_) return;
  upstream_.count(Upstream::Counter::silent_resets);
  upstream_.on_address_failed(peer_);
  probe_answer_ns_ = smaller_of(2 * probe_answer_ns_, kLastProbeAnswerNs);
  lose();
}

/// What the queue has no room for is not sent: an upstream that takes no bytes has to show that it lives too.
void UpstreamConnection::probe() noexcept {
  probing_ = true;
  probed_ns_ = upstream_.now_ns();
  upstream_.count(Upstream::Counter::probes);
  if (!queue_.room_for(tcp::kRecordHeadBytes + rpc::kMinCallBytes)) return;
  const service::Binding& asked = calls_.first()->service->binding();
  probe_xid_ = upstream_.new_xid(*this);
  awaits_probe_ = true;
  std::array<std::byte, rpc::kMinCallBytes> bytes;
  xdr::Writer writer(bytes);
  rpc::CallHeader null;
  null.xid = rpc::Xid{probe_xid_};
  null.program = asked.program;
  null.version = asked.version;
  rpc::encode_call(writer, null);
  queue_.copy(tcp::record_head(bytes.size(), probe_xid_));
  queue_.copy(std::span(bytes).subspan(xdr::kUnit));
  mark_dirty();
}

bool UpstreamConnection::nothing_in_flight() const noexcept {
  return calls_.first() == unsent_ && queue_.empty();  // those that have been sent are the first
}

void UpstreamConnection::attend(std::uint64_t now_ns) noexcept {
  retire_if_done();
  if (state_ == State::Retrying && now_ns >= retry_ns_) return open();
  if (!moving_ || state_ != State::Up) return;
  if (!nothing_in_flight() && (now_ns <= moving_since_ns_ || now_ns - moving_since_ns_ < kMoveNs)) return;
  upstream_.count(Upstream::Counter::moves);
  lose();
}

void UpstreamConnection::follow_address(std::uint64_t now_ns) noexcept {
  const PeerAddress* const address = upstream_.address();
  if (address == nullptr) return;
  if (state_ == State::Connecting) {
    const std::uint64_t limit_ns = upstream_.has_other_addresses() ? kConnectNs : kAttemptNs;
    if (now_ns <= opened_ns_ || now_ns - opened_ns_ < limit_ns) return;
    upstream_.on_address_failed(peer_);
    note_attempt(-ETIMEDOUT);
    return lose();
  }
  if (state_ != State::Up || moving_ || (*address == peer_ && upstream_.port() == peer_port_)) return;
  moving_ = true;
  moving_since_ns_ = now_ns;
  upstream_.schedule_attention(*this);
}

void UpstreamConnection::leave() noexcept {
  client_ = nullptr;
  leaving_ = true;
  retire_if_done();
  upstream_.schedule_attention(*this);
}

/// Closes the connection when no call on it may still be executed: a reset does not stop a call that the upstream has read.
/// Upstream::watch() bounds the wait.
void UpstreamConnection::retire_if_done() noexcept {
  if (leaving_ && !retiring_ && calls_.empty()) retire();
}

void UpstreamConnection::retire() noexcept {
  retiring_ = true;
  if (state_ == State::Retrying) transition(State::Idle);
  lose();
}

// --- TX

void UpstreamConnection::submit(ForwardedCall& forwarded) noexcept {
  forwarded.connection = this;
  forwarded.transition(ForwardedCall::State::AwaitingSend);
  calls_.push_back(forwarded);
  kept_xids_ += forwarded.keeps_xid;
  if (unsent_ == nullptr) unsent_ = &forwarded;
  if (state_ == State::Idle) open();
  pump();
  if (forwarded.state == ForwardedCall::State::AwaitingSend) upstream_.count(Upstream::Counter::waits_room);
}

void UpstreamConnection::send_again(ForwardedCall& forwarded) noexcept {
  remove(forwarded);
  forwarded.resent = false;  // no suspect of the loss of a connection
  forwarded.trial = 0;
  upstream_.count(Upstream::Counter::resent);
  submit(forwarded);
}

void UpstreamConnection::remove(ForwardedCall& forwarded) noexcept {
  if (unsent_ == &forwarded) unsent_ = forwarded.next;
  if (next_call_ == &forwarded) next_call_ = forwarded.next;
  calls_.remove(forwarded);
  kept_xids_ -= forwarded.keeps_xid;
  to_resend_ -= forwarded.resent && forwarded.state == ForwardedCall::State::AwaitingSend;
  forwarded.connection = nullptr;
  if (forwarded.trial == trial_.number && --trial_.open == 0) pump();
}

ForwardedCall* UpstreamConnection::next_call() noexcept {
  if (!std::exchange(visiting_, true)) {
    next_call_ = calls_.first();
    to_visit_ = calls_.size();
  }
  ForwardedCall* const call = to_visit_ > 0 ? next_call_ : nullptr;
  visiting_ = call != nullptr;
  if (visiting_) {
    next_call_ = call->next;
    --to_visit_;
  }
  return call;
}

ForwardedCall* UpstreamConnection::find_kept(std::uint32_t xid) noexcept {
  if (kept_xids_ == 0) return nullptr;
  ForwardedCall* forwarded = calls_.first();
  while (forwarded != nullptr && !(forwarded->keeps_xid && forwarded->xid == xid))
    forwarded = forwarded->next;
  return forwarded;
}

void UpstreamConnection::pump() noexcept {
  while (state_ == State::Up && !moving_ && unsent_ != nullptr && may_send() && enqueue(*unsent_))
    unsent_ = unsent_->next;
}

bool UpstreamConnection::may_send() noexcept {
  const bool lasts = trial_lasts();
  if (to_resend_ == 0) return !lasts;
  if (trial_.sent < trial_.most) return true;
  if (lasts) return false;
  next_trial(trial_.open == 0 ? trial_.most : 2 * trial_.most);
  return true;
}

bool UpstreamConnection::trial_lasts() const noexcept {
  return trial_.open > 0 && upstream_.now_ns() - trial_.begun_ns < kTrialNs;
}

void UpstreamConnection::next_trial(std::uint32_t most) noexcept {
  trial_ = {.number = larger_of(trial_.number + 1, 1u), .most = most, .sent = 0, .open = 0, .begun_ns = 0};
}

/// Returns the call that has to be given up, or null. Each call of the trial during which the connection was lost may
/// be the cause: if the trial has several, they come first and are tried alone.
ForwardedCall* UpstreamConnection::judge_suspects() noexcept {
  const bool suspicious = trial_lasts();
  const Trial lost = trial_;
  next_trial(1);
  if (!suspicious) return nullptr;
  for (ForwardedCall* call = calls_.first(); call != nullptr;) {
    ForwardedCall* const next = call->next;
    if (call->trial == lost.number) {
      calls_.remove(*call);
      if (lost.open == 1) {
        calls_.push_back(*call);
        return strike(*call) ? call : nullptr;
      }
      calls_.push_front(*call);
    }
    call = next;
  }
  return nullptr;
}

/// Returns whether the call has to be given up. If the upstream has answered no other call since the last strike, it may itself be the cause.
bool UpstreamConnection::strike(ForwardedCall& suspect) noexcept {
  if (suspect.given_up() || !std::exchange(answered_, false)) return false;
  if (++suspect.strikes < kMaxStrikes) return false;
  upstream_.suspect(suspect);
  return true;
}

bool UpstreamConnection::enqueue(ForwardedCall& forwarded) noexcept {
  const auto message = forwarded.message;
  const bool copied = message.size() <= tcp::kMaxCopiedBytes;
  const auto rest = message.subspan(xdr::kUnit);
  if (!queue_.room_for(tcp::kRecordHeadBytes + (copied ? rest.size() : 0))) return false;
  queue_.copy(tcp::record_head(message.size(), forwarded.xid));
  if (copied)
    queue_.copy(rest);
  else
    queue_.refer(rest, &forwarded);
  upstream_.on_sending(forwarded);
  forwarded.transition(copied ? ForwardedCall::State::AwaitingReply : ForwardedCall::State::Sending);
  if (to_resend_ > 0) {
    if (trial_.sent++ == 0) trial_.begun_ns = forwarded.sent_ns;
    ++trial_.open;
    forwarded.trial = trial_.number;
  }
  to_resend_ -= forwarded.resent;
  mark_dirty();
  return true;
}

bool UpstreamConnection::answer(std::uint32_t xid, std::span<const std::byte> message) noexcept {
  if (state_ != State::Up || message.size() < xdr::kUnit || !queue_.room_for(xdr::kUnit + message.size()))
    return false;
  queue_.copy(tcp::record_head(message.size(), xid));
  queue_.copy(message.subspan(xdr::kUnit));
  mark_dirty();
  return true;
}

void UpstreamConnection::mark_dirty() noexcept {
  if (!dirty) upstream_.schedule_flush(*this);
}

void UpstreamConnection::flush() noexcept {
  if (state_ != State::Up || sending_ || queue_.empty()) return;
  const auto vectors = queue_.gather();
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  sending_ = true;
  uring_.send(this, socket_, &message_);
}

void UpstreamConnection::on_sent(int result) noexcept {
  sending_ = false;
  if (state_ == State::Closing) {
    if (!busy()) finish_closing();
    return;
  }
  if (result <= 0) return lose();
  upstream_.count(Upstream::Counter::sent_bytes, static_cast<std::uint64_t>(result));
  queue_.sent(static_cast<std::size_t>(result),
              [this](void* owner) { upstream_.on_message_sent(*static_cast<ForwardedCall*>(owner)); });
  pump();
  flush();
}

// --- RX

void UpstreamConnection::on_received(const tcp::Uring::Completion& end) noexcept {
  take(receiver_.on_received(end));
}

void UpstreamConnection::on_received_again(const tcp::Uring::Completion& end) noexcept {
  take(receiver_.on_received_again(end));
}

void UpstreamConnection::take(std::optional<int> received) noexcept {
  if (state_ == State::Closing) {
    if (!busy()) finish_closing();
    return;
  }
  if (!received) return;
  if (*received <= 0) return lose();
  upstream_.count(Upstream::Counter::received_bytes, static_cast<std::uint64_t>(*received));
  stream_.received(static_cast<std::size_t>(*received));
  heard_ns_ = upstream_.now_ns();
  probing_ = false;
  handle_records();
}

void UpstreamConnection::receive() noexcept {
  const auto room = stream_.room();
  if (stream_.awaits_all_of_room())
    return receiver_.receive_all(socket_, room.first(smaller_of(room.size(), kReceivedAtOnce)));
  receiver_.receive(socket_, room);
}

void UpstreamConnection::give_memory_back() noexcept {
  if (std::byte* const memory = stream_.take_memory()) upstream_.take_back(*this, record_xid_, memory);
}

/// For a long record: what the call has that it answers. Others are not received.
void UpstreamConnection::find_memory() noexcept {
  const auto head = stream_.head();
  record_xid_ = xdr::load_u32(head.data());
  record_type_ = static_cast<rpc::MessageType>(xdr::load_u32(head.data() + xdr::kUnit));
  std::byte* const memory =
      record_type_ == rpc::MessageType::Reply ? upstream_.lend_memory(*this, record_xid_) : nullptr;
  if (memory != nullptr) return stream_.lend(memory);
  stream_.skip_record();
  skipping_unwanted_ = true;
}

void UpstreamConnection::handle_records() noexcept {
  while (state_ == State::Up) {
    switch (stream_.next()) {
      case tcp::RecordStream::Step::Record:
        upstream_.on_record(*this, stream_.record());
        give_memory_back();
        break;
      case tcp::RecordStream::Step::NeedBytes:
        return receive();
      case tcp::RecordStream::Step::NeedMemory:
        find_memory();
        break;
      case tcp::RecordStream::Step::Skipped:
        give_memory_back();
        if (std::exchange(skipping_unwanted_, false))
          upstream_.on_unwanted_record(*this, record_xid_, record_type_);
        else
          upstream_.on_long_record(*this, stream_.record());
        break;
      case tcp::RecordStream::Step::Broken:
        upstream_.count(Upstream::Counter::bad_records);
        return lose();
    }
  }
}

}  // namespace sluice::tcp_upstream
