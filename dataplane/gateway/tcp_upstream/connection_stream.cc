// SPDX-License-Identifier: Apache-2.0
//
// This file sends calls on a connection to an upstream, chooses the calls to retransmit, and receives
// records.
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/tcp_upstream/upstream_connection.h"

namespace sluice::tcp_upstream {

using Counter = segment::UpstreamCounter;

void UpstreamConnection::submit(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.connection == nullptr, list_membership);
  forwarded.connection = this;
  forwarded.transition(ForwardedCall::State::AwaitingSend);
  calls_.push_back(forwarded);
  kept_xids_ += forwarded.keeps_xid;
  if (unsent_ == nullptr) unsent_ = &forwarded;
  if (state_ == State::Idle) open();
  pump();
  if (forwarded.state == ForwardedCall::State::AwaitingSend) shared_.count(Counter::waits_room);
}

void UpstreamConnection::send_again(ForwardedCall& forwarded) noexcept {
  remove(forwarded);
  forwarded.resent = false;  // the call is not suspected of a lost connection
  forwarded.probe_batch = 0;
  shared_.count(Counter::resent);
  submit(forwarded);
}

void UpstreamConnection::remove(ForwardedCall& forwarded) noexcept {
  if (!SLUICE_INVARIANT(forwarded.connection == this, list_membership)) return;
  if (unsent_ == &forwarded) unsent_ = forwarded.next;
  if (next_call_ == &forwarded) next_call_ = forwarded.next;
  calls_.remove(forwarded);
  SLUICE_INVARIANT_DEBUG(kept_xids_ >= forwarded.keeps_xid, xid_table);
  kept_xids_ -= forwarded.keeps_xid;
  const bool to_resend = forwarded.resent && forwarded.state == ForwardedCall::State::AwaitingSend;
  const bool in_batch = forwarded.probe_batch == batch_.number;
  static_cast<void>(SLUICE_INVARIANT(to_resend_ >= to_resend && batch_.open >= in_batch, pool_balance));
  to_resend_ -= to_resend;
  forwarded.connection = nullptr;
  if (in_batch && --batch_.open == 0) pump();
}

ForwardedCall* UpstreamConnection::next_call() noexcept {
  if (to_visit_ == kNoRound) {
    next_call_ = calls_.first();
    to_visit_ = calls_.size();
  }
  ForwardedCall* const call = to_visit_ > 0 ? next_call_ : nullptr;
  if (call == nullptr) {
    to_visit_ = kNoRound;
    return nullptr;
  }
  next_call_ = call->next;
  --to_visit_;
  return call;
}

ForwardedCall* UpstreamConnection::find_among_calls(std::uint32_t xid) noexcept {
  ForwardedCall* forwarded = calls_.first();
  while (forwarded != nullptr && !(forwarded->keeps_xid && forwarded->xid == xid))
    forwarded = forwarded->next;
  return forwarded;
}

void UpstreamConnection::send_unsent() noexcept {
  while (state_ == State::Up && unsent_ != nullptr && may_send() && enqueue(*unsent_))
    unsent_ = unsent_->next;
}

/// Returns whether another call may be sent while a probe batch lasts or calls are sent again.
bool UpstreamConnection::batch_permits() noexcept {
  const bool lasts = batch_lasts();
  if (to_resend_ == 0) return !lasts;
  if (batch_.sent < batch_.most) return true;
  if (lasts) return false;
  next_batch(batch_.open == 0 ? batch_.most : 2 * batch_.most);
  return true;
}

bool UpstreamConnection::batch_lasts() const noexcept {
  return batch_.open > 0 && shared_.now_ns() - batch_.begun_ns < kProbeBatchNs;
}

void UpstreamConnection::next_batch(std::uint32_t most) noexcept {
  batch_ = {.number = larger_of(batch_.number + 1, 1u), .most = most, .sent = 0, .open = 0, .begun_ns = 0};
}

/// Returns the call that has to be given up, or null. Each call of the probe batch during which the
/// connection was lost may be the cause. If the probe batch has several calls, they move to the front and are
/// tried one at a time.
ForwardedCall* UpstreamConnection::judge_suspects() noexcept {
  const bool suspicious = batch_lasts();
  const ProbeBatch lost = batch_;
  next_batch(1);
  if (!suspicious) return nullptr;
  for (ForwardedCall* call = calls_.first(); call != nullptr;) {
    ForwardedCall* const next = call->next;
    if (call->probe_batch == lost.number) {
      calls_.remove(*call);
      if (lost.open == 1) {
        calls_.push_back(*call);
        return count_failure(*call) ? call : nullptr;
      }
      calls_.push_front(*call);
    }
    call = next;
  }
  return nullptr;
}

/// Counts a failure and returns whether the call has to be given up. Counts none if the upstream has answered
/// no other call since the last failure, because then the upstream itself may be the cause.
bool UpstreamConnection::count_failure(ForwardedCall& suspect) noexcept {
  if (suspect.given_up() || !std::exchange(answered_, false)) return false;
  if (++suspect.failures < kMaxFailures) return false;
  return true;
}

bool UpstreamConnection::enqueue(ForwardedCall& forwarded) noexcept {
  SLUICE_INVARIANT_DEBUG(forwarded.connection == this, list_membership);
  SLUICE_INVARIANT_DEBUG(forwarded.state == ForwardedCall::State::AwaitingSend, gateway_state);
  const auto message = forwarded.message;
  const bool copied = message.size() <= tcp::kMaxCopiedBytes;
  const auto rest = message.subspan(xdr::kUnit);
  if (!queue_.room_for(tcp::kRecordHeadBytes + (copied ? rest.size() : 0))) return false;
  queue_.copy(tcp::record_head(message.size(), forwarded.xid));
  if (copied)
    queue_.copy(rest);
  else
    queue_.refer(rest, &forwarded);
  shared_.note_sending(forwarded);
  forwarded.transition(copied ? ForwardedCall::State::AwaitingReply : ForwardedCall::State::Sending);
  if (to_resend_ > 0) {
    if (batch_.sent++ == 0) batch_.begun_ns = forwarded.sent_ns;
    ++batch_.open;
    forwarded.probe_batch = batch_.number;
  }
  SLUICE_INVARIANT_DEBUG(to_resend_ >= forwarded.resent, pool_balance);
  to_resend_ -= forwarded.resent;
  work_.flush(*this);
  return true;
}

bool UpstreamConnection::answer(std::uint32_t xid, std::span<const std::byte> message) noexcept {
  if (!is_up() || message.size() < xdr::kUnit || !queue_.room_for(xdr::kUnit + message.size())) return false;
  queue_.copy(tcp::record_head(message.size(), xid));
  queue_.copy(message.subspan(xdr::kUnit));
  work_.flush(*this);
  return true;
}

void UpstreamConnection::flush() noexcept {
  if (!is_up() || sending_ || queue_.empty()) return;
  SLUICE_INVARIANT_DEBUG(socket_ >= 0, gateway_state);
  const auto vectors = queue_.gather();
  message_.msg_iov = vectors.data();
  message_.msg_iovlen = vectors.size();
  sending_ = true;
  shared_.uring.send(this, socket_, &message_);
}

/// Returns whether bytes were sent on a connection that is up.
bool UpstreamConnection::note_sent(int result) noexcept {
  SLUICE_INVARIANT_DEBUG(sending_ && state_ != State::Idle, gateway_state);
  sending_ = false;
  if (!is_up()) {
    close_when_idle();
    return false;
  }
  if (result <= 0) {
    lose();
    return false;
  }
  shared_.count(Counter::sent_bytes, static_cast<std::uint64_t>(result));
  return true;
}

// --- RX

bool UpstreamConnection::on_received(const tcp::Uring::Completion& end, bool again) noexcept {
  const std::optional<int> received = again ? receiver_.on_received_again(end) : receiver_.on_received(end);
  if (!is_up()) close_when_idle();
  if (!is_up() || !received) return false;
  if (*received <= 0) {
    lose();
    return false;
  }
  shared_.count(Counter::received_bytes, static_cast<std::uint64_t>(*received));
  stream_.received(static_cast<std::size_t>(*received));
  heard_ns_ = shared_.now_ns();
  return true;
}

void UpstreamConnection::lend(std::byte* memory) noexcept {
  SLUICE_INVARIANT_DEBUG(long_record_ == LongRecord::None, gateway_state);
  long_record_ = memory != nullptr ? LongRecord::InMemory : LongRecord::Unwanted;
  if (memory != nullptr) return stream_.lend(memory);
  stream_.skip_record();
}

UpstreamConnection::Arrival UpstreamConnection::next_arrival() noexcept {
  if (!is_up()) return Arrival::Nothing;
  switch (stream_.next()) {
    case tcp::RecordStream::Step::Record:
      long_record_ = LongRecord::None;
      return Arrival::Record;
    case tcp::RecordStream::Step::NeedBytes: {
      const auto room = stream_.room();
      if (stream_.awaits_all_of_room())
        receiver_.receive_all(socket_, room.first(smaller_of(room.size(), kReceivedAtOnce)));
      else
        receiver_.receive(socket_, room);
      break;
    }
    case tcp::RecordStream::Step::NeedMemory: {
      const auto head = stream_.head();
      record_xid_ = xdr::load_u32(head.data());
      record_type_ = static_cast<rpc::MessageType>(xdr::load_u32(head.data() + xdr::kUnit));
      return Arrival::Long;
    }
    case tcp::RecordStream::Step::Skipped:
      return std::exchange(long_record_, LongRecord::None) == LongRecord::Unwanted ? Arrival::Unwanted
                                                                                   : Arrival::TooLong;
    case tcp::RecordStream::Step::Broken:
      shared_.count(Counter::bad_records);
      lose();
      break;
  }
  return Arrival::Nothing;
}

}  // namespace sluice::tcp_upstream
