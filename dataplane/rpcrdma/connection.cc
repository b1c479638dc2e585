// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/connection.h"

#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/probes.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/version_rules.h"

namespace sluice::rpcrdma {

Connection::Connection(LinkContext& links, ResponderContext& responders, ReverseCallers& callers,
                       std::uint16_t number, const ConnectionCapacity& capacity,
                       const ConnectionMemory& memory)
    : roles_(link_, responder_),
      intake_v1_(link_, roles_, version_),
      link_(links, *this, number, capacity, memory.receives),
      session_(link_, *this, memory.control),
      responder_(responders, link_, session_, *this, capacity, memory.replies),
      intake_v2_(link_, session_, roles_, version_, capacity.receives()),
      version_(link_, session_, roles_),
      callers_(callers) {}

// --- Setup and teardown

void Connection::open(Owned<rdma::QueuePair> qp, const ConnectionConfig& config, const PeerAddress& peer,
                      Requester* requester) noexcept {
  static_cast<void>(SLUICE_INVARIANT(state() == State::Closed, connection_state));
  static_cast<void>(
      SLUICE_INVARIANT(roles_.requester() == nullptr && !requester_borrowed_, connection_state));
  static_cast<void>(SLUICE_INVARIANT(responder_.idle() && responder_.quiescent(), pool_balance));
  ConnectionQueue::unlink(*this);
  link_.open(std::move(qp), config, peer);
  session_.open();
  opened_ns_ = link_.context().now_ns();
  version_.open();
  intake_v2_.open();
  const ConnectionConfig& clamped = link_.config();
  const bool version_2 = link_.version_state() != VersionState::Version1;
  responder_.open(clamped.max_version >= v2::kVersion ? larger_of(clamped.credit_grant, kLeastSlots)
                                                      : clamped.credit_grant,
                  version_2 && clamped.version2.hold_calls, clamped.sole_service);
  responder_.set_grant(clamped.credit_grant);  // it may have more slots than credits
  credit_limit_ = ~std::uint32_t{0};
  credits_ = clamped.credit_grant;
  if (clamped.first_grant != 0) set_credits(clamped.first_grant);
  link_.post_first_receives();
  roles_.set_requester(requester);
  if (requester != nullptr) requester->attach(link_, session_);
}

void Connection::established() noexcept {
  link_.established();
  opened_ns_ = link_.context().now_ns();
  probe::connection_established(number());
  session_.greet();
  if (roles_.requester() != nullptr) roles_.requester()->on_established();
}

void Connection::on_link_closed() noexcept {
  session_.on_closed();
  intake_v2_.on_closed();
  responder_.on_connection_lost();
}

bool Connection::reap_drained() noexcept {
  if (!link_.drained() || !session_.drained() || !responder_.quiescent() || !responder_.idle()) return false;
  Requester* const requester = roles_.requester();
  if (requester != nullptr && !requester->quiescent()) return false;
  version_.on_drained();
  static_cast<void>(SLUICE_INVARIANT(responder_.shared_bytes() == 0, pool_balance));
  link_.release_queue_pair();
  roles_.set_requester(nullptr);
  if (requester != nullptr) requester->detach();
  if (requester != nullptr && std::exchange(requester_borrowed_, false)) {
    requester->cancel_all();
    callers_.release(*requester);
  }
  static_cast<void>(SLUICE_INVARIANT(shared_bytes() == 0, pool_balance));  // the connection holds nothing
  return true;
}

bool Connection::call_back(std::span<const std::byte> call, CallBackDone done, void* context) noexcept {
  if (!is_open() || config().credits_requested == 0) return false;
  if (roles_.requester() == nullptr) {
    Requester* const requester = callers_.acquire();
    if (requester == nullptr) return false;
    roles_.set_requester(requester);
    requester_borrowed_ = true;
    requester->attach(link_, session_);
    requester->on_established();
  }
  return roles_.requester()->call_back(call, done, context);
}

void Connection::set_credits(std::uint32_t credits) noexcept {
  credits_ = credits;
  responder_.set_grant(smaller_of(credits, credit_limit_));
  const auto grant = static_cast<std::uint32_t>(responder_.grant());
  session_.set_window(smaller_of(grant, config().credit_grant) + config().credits_requested);
  link_.repost_spares();
}

void Connection::limit_credits(std::uint32_t limit) noexcept {
  if (limit == credit_limit_) return;
  credit_limit_ = limit;
  if (is_open()) set_credits(credits_);
}

void Connection::admit(const HostName& host) noexcept {
  link_.set_peer_host(host);
  responder_.set_holding(false);
  if (is_open()) responder_.serve_pending();
}

// --- RX

/// Handles a completion that failed, or that belongs to a closed connection.
[[gnu::cold, gnu::noinline]] void Connection::on_other_completion(const rdma::WorkCompletion& wc) noexcept {
  const WrId id = WrId::decode(wc.wr_id);
  if (!link_.owns(id)) return;
  if (!is_open()) link_.touch();  // it may have been the last completion
  if (wc.status != rdma::WcStatus::Success) return on_failed_completion(wc, id);
  link_.note_alive();
  if (id.kind == WrKind::Receive) return link_.on_receive_completed();
  link_.notify_waiting_senders();
  on_sent(wc);
}

/// Handles the successful completion of a work request of the send queue.
[[gnu::noinline]] void Connection::on_sent(const rdma::WorkCompletion& wc) noexcept {
  const WrId id = WrId::decode(wc.wr_id);
  switch (id.kind) {
    case WrKind::Receive:
    case WrKind::Transfer:
      return;
    case WrKind::ReadsDone:
      return responder_.on_reads_done(id.index);
    case WrKind::ReplySent:
      return responder_.on_reply_sent(id.index);
    case WrKind::CallSent:
      SLUICE_INVARIANT_DEBUG(roles_.requester() != nullptr, connection_state);
      version_.on_delivered();
      return roles_.requester()->on_call_sent(id.index);
    case WrKind::Invalidated:
      SLUICE_INVARIANT_DEBUG(roles_.requester() != nullptr, connection_state);
      return roles_.requester()->on_invalidated(id.index);
    case WrKind::ControlSent:
      version_.on_delivered();
      return on_control_sent(id.index);
    case WrKind::Probe:
      return link_.on_probed();
    case WrKind::Registered:
      SLUICE_INVARIANT_DEBUG(roles_.requester() != nullptr, connection_state);
      return roles_.requester()->on_registered(id.index, wc.rkey);
  }
}

/// Handles a plain reply to a plain call. Returns false if the message is anything else.
template <std::uint32_t kVersion>
[[gnu::always_inline]] inline bool Connection::take_plain_reply(std::uint16_t buffer,
                                                                std::span<const std::byte> message) noexcept {
  constexpr std::size_t header_bytes = kVersion == v2::kVersion ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes;
  Requester* const requester = roles_.requester();
  if (requester == nullptr) return false;
  RequestSlot* const call = requester->plain_call_of(message, header_bytes);
  if (call == nullptr) return false;
  return requester->take_plain_reply<kVersion>(*call, buffer, message), true;
}

/// Fast path of version 1. Returns false without side effects if the message is not plain.
[[gnu::always_inline]] inline bool Connection::take_plain_version_1(
    std::uint16_t buffer, std::span<const std::byte> message) noexcept {
  const Shortcut shortcut = link_.shortcut();
  if (shortcut == Shortcut::None || !v1::is_plain(message)) [[unlikely]]
    return false;
  if (v1::plain_response(message.data())) return take_plain_reply<v1::kVersion>(buffer, message);
  if (shortcut != Shortcut::CallsAndReplies) return false;
  return responder_.on_plain_call<v1::kVersion>(buffer, message), true;
}

/// Fast path of version 2. Runs the checks of the intake, in their order, that a plain message can fail.
/// Returns false without side effects if the message is not plain.
[[gnu::always_inline]] inline bool Connection::take_plain_version_2(
    std::uint16_t buffer, std::span<const std::byte> message) noexcept {
  const Shortcut shortcut = link_.shortcut();
  if (shortcut == Shortcut::None || !v2::is_plain(message)) [[unlikely]]
    return false;
  if (!session_.flow().on_credited_message(v2::plain_credit(message.data()))) [[unlikely]]
    return false;
  link_.notify_waiting_senders();
  if (v2::plain_response(message.data())) {
    if (take_plain_reply<v2::kVersion>(buffer, message)) return true;
  } else if (shortcut == Shortcut::CallsAndReplies) {
    return responder_.on_plain_call<v2::kVersion>(buffer, message), true;
  }
  return intake_v2_.on_plain(buffer, message), true;
}

/// Plain messages leave through a tail call, so this function saves no callee-saved registers for them.
[[gnu::noinline]] void Connection::on_received(std::uint16_t buffer,
                                               const rdma::WorkCompletion& wc) noexcept {
  link_.on_receive_completed();
  ++counters().messages_received;
  link_.count_received(&Counters::inline_bytes_received, wc.byte_len);
  SLUICE_INVARIANT_DEBUG(wc.byte_len <= link_.receive_buffer(buffer).size(), buffer_bounds);
  const std::span<const std::byte> message = link_.receive_buffer(buffer).first(wc.byte_len);
  if (link_.version_state() == VersionState::Version1) {
    if (take_plain_version_1(buffer, message)) return;
  } else if (wc.rkey == rdma::Rkey{}) {
    if (take_plain_version_2(buffer, message)) return;
  }
  on_other_received(buffer, wc);
}

[[gnu::noinline]] void Connection::on_other_received(std::uint16_t buffer,
                                                     const rdma::WorkCompletion& wc) noexcept {
  if (link_.version_state() != VersionState::Version1 && version_.is_version_2(buffer, wc.byte_len))
    return intake_v2_.arrive(buffer, wc.byte_len, wc.rkey);
  intake_v1_.arrive(buffer, link_.receive_buffer(buffer).first(wc.byte_len));
}

[[gnu::cold, gnu::noinline]] void Connection::on_failed_completion(const rdma::WorkCompletion& wc,
                                                                   WrId id) noexcept {
  const bool transfer = id.kind == WrKind::Transfer || id.kind == WrKind::ReadsDone;
  if (wc.status != rdma::WcStatus::WrFlushError)
    link_.set_failure({.status = wc.status, .vendor_error = wc.vendor_error});
  switch (wc.status) {
    case rdma::WcStatus::RemoteAccessError:
      if (transfer) responder_.note_failed_transfer(id.index);
      close(CloseReason::RemoteAccess);
      break;
    case rdma::WcStatus::BindError:
      ++counters().invalidation_errors;
      close(CloseReason::InvalidationError);
      break;
    case rdma::WcStatus::WrFlushError:
      close(link_.queue_pair().is_broken() ? CloseReason::TransportError : CloseReason::PeerClosed);
      break;
    default:
      close(CloseReason::TransportError);
      break;
  }
  switch (id.kind) {
    case WrKind::Receive:
      return link_.on_receive_completed();
    case WrKind::Transfer:
      return responder_.on_failed(id.index, false);
    case WrKind::ReadsDone:
    case WrKind::ReplySent:
      return responder_.on_failed(id.index, true);
    case WrKind::CallSent:
      return roles_.requester()->on_call_sent(id.index);
    case WrKind::Invalidated:
      return roles_.requester()->on_invalidation_failed(id.index);
    case WrKind::ControlSent:
      return on_control_sent(id.index);
    case WrKind::Probe:
      return link_.on_probed();
    case WrKind::Registered:
      return roles_.requester()->on_registration_failed(id.index);
  }
}

[[gnu::noinline]] void Connection::on_control_sent(std::uint16_t index) noexcept {
  const v2::Sender sender = session_.on_control_sent(index);
  switch (sender.kind) {
    case v2::Sender::Kind::None:
    case v2::Sender::Kind::Properties:
      break;
    case v2::Sender::Kind::Reply:
      responder_.on_part_sent(sender.index);
      break;
    case v2::Sender::Kind::Call:
      SLUICE_INVARIANT_DEBUG(roles_.requester() != nullptr, connection_state);
      roles_.requester()->on_part_sent(sender.index);
      break;
  }
  if (!is_open()) return;
  link_.notify_waiting_senders();
  link_.touch();  // a grant may have waited for the buffer
}

// --- TX and timers

void Connection::end_turn() noexcept {
  // Payload goes before grants: a credit spent on a grant is not available to waiting messages (D2-15).
  if (link_.retry_due()) {
    link_.begin_retry();
    if (is_open()) {
      session_.greet();
      session_.retry();
      responder_.retry_send_room();
      if (roles_.requester() != nullptr) roles_.requester()->pump();
    }
  }
  if (link_.rules().credit_per_message) session_.send_due_grant();
  link_.flush();
}

/// Closes a connection whose peer has not authenticated itself in time. The control plane normally ends a
/// handshake earlier; this limit applies when the control plane is down.
void Connection::close_stranger() noexcept {
  const std::uint64_t limit_ns = config().progress_timeout_ns;
  const std::uint64_t now_ns = link_.context().now_ns();
  if (holds_calls() && limit_ns > 0 && now_ns > opened_ns_ && now_ns - opened_ns_ > limit_ns)
    close(CloseReason::NotAuthenticated);
}

void Connection::tick() noexcept {
  if (!is_open()) return;
  link_.probe_if_silent();
  close_stranger();
  responder_.tick();
  if (!is_open()) return;
  if (!speaks_version_2()) return;
  version_.tick();
  if (!is_open()) return;
  intake_v2_.tick();
  session_.tick();
}

}  // namespace sluice::rpcrdma
