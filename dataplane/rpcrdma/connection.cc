// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/connection.h"

#include <algorithm>
#include <utility>

#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma {

const char* to_string(CloseReason reason) noexcept {
  switch (reason) {
    case CloseReason::None:
      return "it has not been closed";
    case CloseReason::PeerClosed:
      return "the peer ended it";
    case CloseReason::LocalClose:
      return "we ended it";
    case CloseReason::TransportError:
      return "of an error of the transport";
    case CloseReason::RemoteAccess:
      return "the peer's memory refused an access";
    case CloseReason::InvalidationError:
      return "memory could not be fenced";
    case CloseReason::CreditOverrun:
      return "the peer sent more than it was granted";
    case CloseReason::NoAnswer:
      return "the first message was not answered";
    case CloseReason::SequenceTimeout:
      return "a continued message did not go on";
    case CloseReason::NotAuthenticated:
      return "the peer did not show who it is";
    case CloseReason::NoCommonVersion:
      return "there is no common version of RPC-over-RDMA";
  }
  return "?";
}

Connection::Connection(Shared& shared, std::uint16_t number, const ConnectionCapacity& capacity,
                       const ConnectionMemory& memory)
    : shared_(shared),
      capacity_(capacity),
      number_(number),
      receive_region_(memory.receives),
      responder_(shared, *this, capacity.slots(), capacity.receives(), memory.replies,
                 capacity.reply_buffer_bytes),
      deferred_(capacity.receives() + 1),
      spare_receives_(capacity.receives()),
      control_region_(memory.control) {}

Connection::~Connection() = default;

void Connection::open(std::unique_ptr<rdma::QueuePair> qp, const ConnectionConfig& config,
                      const PeerAddress& peer, Requester* requester) noexcept {
  ++generation_;
  qp_ = std::move(qp);
  config_ = config;
  config_.receive_inline_bytes = std::min(config.receive_inline_bytes, capacity_.receive_bytes);
  config_.credit_grant = std::min(config.credit_grant, capacity_.call_slots);
  config_.credits_requested = std::min(config.credits_requested, capacity_.requests);
  set_client_class(config.client_class);
  peer_ = peer;
  close_reason_ = CloseReason::None;
  state_ = State::Open;
  waiting_ = touched_ = false;
  send_room_ = 0;
  requester_ = requester;
  ++counters().connections_opened;
  open_version_2();
  responder_.open(config_.max_version >= v2::kVersion ? std::max(config_.credit_grant, kLeastSlots)
                                                      : config_.credit_grant);
  credits_ = config_.first_grant != 0 ? config_.first_grant : config_.credit_grant;
  credit_limit_ = ~std::uint32_t{0};
  if (config_.first_grant != 0) set_credits(config_.first_grant);

  const std::uint32_t receives = config_.credit_grant + config_.credits_requested + kSpareReceives;
  for (std::uint32_t i = 0; i < receives; ++i) repost(static_cast<std::uint16_t>(i));
  flush_receives();
  if (requester_ != nullptr) requester_->attach(*this);
}

void Connection::established() noexcept {
  last_send_ns_ = shared_.now_ns;
  if (opening_ == Opening::Properties) send_greeting();
  if (requester_ != nullptr) requester_->on_established();
}

void Connection::close(CloseReason reason) noexcept {
  if (state_ != State::Open) return;
  state_ = State::Draining;
  close_reason_ = reason;
  ++counters().connections_closed;
  if (is_failure(reason)) ++counters().connection_errors;
  if (shared_.staged_for == this) {
    // What is staged counts as posted by the slots and requests: they get their completions as flushed work.
    flush_stage();
    shared_.staged_for = nullptr;
  }
  flush_receives();
  qp_->to_error();
  touch();  // to be looked at by the engine's reaper
  close_version_2();
  responder_.on_connection_lost();
}

bool Connection::reap() noexcept {
  if (state_ != State::Draining || posted_receives_ > 0 || !responder_.quiescent() || !responder_.idle() ||
      free_control_count_ < kControlBuffers)
    return false;
  if (requester_ != nullptr && !requester_->quiescent()) return false;
  qp_.reset();
  state_ = State::Closed;
  Requester* const requester = std::exchange(requester_, nullptr);
  if (requester == nullptr) return true;
  requester->detach();
  if (std::exchange(requester_borrowed_, false)) {
    requester->cancel_all();
    shared_.callers.push_back(requester);
  }
  return true;
}

bool Connection::call_back(std::span<const std::byte> call, CallBackDone done, void* context) noexcept {
  if (!is_open() || config_.credits_requested == 0) return false;
  if (requester_ == nullptr) {
    if (shared_.callers.empty()) return false;
    requester_ = shared_.callers.back();
    shared_.callers.pop_back();
    requester_borrowed_ = true;
    requester_->attach(*this);
    requester_->on_established();
  }
  return requester_->call_back(call, done, context);
}

// --- RX

void Connection::on_completion(const rdma::WorkCompletion& wc) noexcept {
  const WrId id = WrId::decode(wc.wr_id);
  if (id.generation != generation_ || state_ == State::Closed) return;
  if (wc.status != rdma::WcStatus::Success) return on_failed_completion(wc, id);
  switch (id.kind) {
    case WrKind::Receive:
      --posted_receives_;
      if (state_ != State::Open) return;
      ++counters().messages_received;
      counters().inline_bytes_received += wc.byte_len;
      if (version_ != v1::kVersion && is_version_2(id.index, wc.byte_len))
        return arrive({id.index, wc.byte_len, wc.remote_invalidate ? wc.invalidated : rdma::Rkey{}});
      return classify(id.index, wc.byte_len);
    case WrKind::Transfer:
      return;
    case WrKind::ReadsDone:
      return responder_.on_reads_done(id.index);
    case WrKind::ReplySent:
      return responder_.on_reply_sent(id.index);
    case WrKind::CallSent:
      return requester_->on_call_sent(id.index);
    case WrKind::Invalidated:
      return requester_->on_invalidated(id.index);
    case WrKind::ControlSent:
      return on_control_sent(id.index);
  }
}

void Connection::on_failed_completion(const rdma::WorkCompletion& wc, WrId id) noexcept {
  const bool transfer = id.kind == WrKind::Transfer || id.kind == WrKind::ReadsDone;
  switch (wc.status) {
    case rdma::WcStatus::RemoteAccessError:
      if (transfer) shared_.failed_transfers.add(peer_, responder_.xid_of(id.index));
      close(CloseReason::RemoteAccess);
      break;
    case rdma::WcStatus::BindError:
      ++counters().invalidation_errors;
      close(CloseReason::InvalidationError);
      break;
    case rdma::WcStatus::WrFlushError:
      close(CloseReason::PeerClosed);
      break;
    default:
      close(CloseReason::TransportError);
      break;
  }
  switch (id.kind) {
    case WrKind::Receive:
      --posted_receives_;
      return;
    case WrKind::Transfer:
      return responder_.on_failed(id.index, false);
    case WrKind::ReadsDone:
    case WrKind::ReplySent:
      return responder_.on_failed(id.index, true);
    case WrKind::CallSent:
      return requester_->on_call_sent(id.index);
    case WrKind::Invalidated:
      return requester_->on_invalidation_failed(id.index);
    case WrKind::ControlSent:
      return on_control_sent(id.index);
  }
}

/// Decides what a message is and whose: direction follows from msg_type, never from the XID (V1-157). Where
/// it cannot be known, a message that names one of our outstanding calls ends that call and is not answered
///
void Connection::classify(std::uint16_t buffer, std::uint32_t bytes) noexcept {
  Counters& counters = this->counters();
  ReceivedMessage message{.buffer = buffer, .bytes = receive_buffer(buffer).first(bytes), .header = {}};
  const v1::DecodeResult decoded = v1::decode(message.bytes);
  // From the wire again: what was stored word by word a moment ago is slow to read as a whole.
  if (bytes >= kFixedBytes) message.header.fixed = load_fixed(message.bytes.data());
  message.header.no_msg = decoded.header.procedure == v1::Procedure::NoMsg;
  if (!decoded.header.chunks.empty()) message.header.chunks = decoded.header.chunks;
  message.header.header_bytes = decoded.header.header_bytes;
  switch (decoded.status) {
    case v1::Decode::Ok:
      break;
    case v1::Decode::Fragment:
      ++counters.bad_fragment;
      return repost(buffer);
    case v1::Decode::BadError:
      ++counters.bad_error_message;
      return repost(buffer);
    case v1::Decode::BadVersion:
      ++counters.bad_version;
      return unknown_direction(message, kRefuseVersion);
    case v1::Decode::BadProcedure:
      ++counters.bad_procedure;
      return unknown_direction(message, kRefuseXdr);
    case v1::Decode::BadChunks:
      ++counters.bad_chunk_lists;
      return unknown_direction(message, kRefuseXdr);
    case v1::Decode::TooManySegments:
      ++counters.too_many_segments;
      return unknown_direction(message, kRefuseXdr);
  }
  if (version_ == 0 && decoded.header.procedure != v1::Procedure::Error) {
    if (supported_versions().low > v1::kVersion) {
      ++counters.bad_version;
      return responder_.on_call(message, kRefuseVersion);
    }
    fix_version(v1::kVersion);
  }
  switch (decoded.header.procedure) {
    case v1::Procedure::Msg:
      return classify_msg(message);
    case v1::Procedure::NoMsg:
      // Only forward messages have chunks (V1-157): a reply to the side that opened the connection, else a
      // call.
      if (!config_.active) return to_responder(message, std::nullopt);
      if (requester_ != nullptr && requester_->is_outstanding(message.header.fixed.xid))
        return to_requester(message);
      ++counters.reverse_chunks_refused;
      return to_responder(message, kRefuseXdr);
    case v1::Procedure::Error:
      if (requester_ != nullptr) requester_->on_error(decoded.header);
      return repost(buffer);
    case v1::Procedure::Done:
      ++counters.done_dropped;
      return repost(buffer);
    case v1::Procedure::MsgP:
      ++counters.msgp_refused;
      if (config_.active) return repost(buffer);
      return to_responder(message, kRefuseXdr);
  }
}

void Connection::classify_msg(const ReceivedMessage& message) noexcept {
  const auto payload = message.payload();
  if (payload.size() < 2 * xdr::kUnit) {
    ++counters().no_payload;
    return unknown_direction(message, kRefuseXdr);
  }
  const std::uint32_t type = xdr::load_u32(payload.data() + xdr::kUnit);
  if (type == static_cast<std::uint32_t>(rpc::MessageType::Reply)) return to_requester(message);
  if (type != static_cast<std::uint32_t>(rpc::MessageType::Call)) {
    ++counters().no_payload;
    return unknown_direction(message, kRefuseXdr);
  }
  if (config_.active && !message.header.chunks.empty()) {
    ++counters().reverse_chunks_refused;
    return to_responder(message, kRefuseXdr);
  }
  to_responder(message, std::nullopt);
}

void Connection::to_responder(const ReceivedMessage& message, const Refusal& refusal) noexcept {
  if (config_.credit_grant > 0) return responder_.on_call(message, refusal);
  ++counters().direction_not_served;  // V1-171
  repost(message.buffer);
}

void Connection::to_requester(const ReceivedMessage& message) noexcept {
  if (requester_ != nullptr) return requester_->on_reply(message);
  ++counters().unknown_xid;
  repost(message.buffer);
}

void Connection::unknown_direction(const ReceivedMessage& message, const Refusal& refusal) noexcept {
  if (requester_ != nullptr && requester_->is_outstanding(message.header.fixed.xid)) {
    requester_->on_unusable(message.header.fixed.xid);
    return repost(message.buffer);
  }
  to_responder(message, refusal);
}

// --- TX

void Connection::repost(std::uint16_t buffer) noexcept {
  if (speaks_version_2() && posted_receives_ + staged_receives_ >= flow_.most_receives()) {
    spare_receives_[spare_receive_count_++] = buffer;
    return;
  }
  if (staged_receives_ == kReceiveBatch) flush_receives();
  touch();
  const auto bytes = receive_buffer(buffer).first(config_.receive_inline_bytes);
  receive_batch_[staged_receives_++] = {
      wr_id(WrKind::Receive, buffer),
      {bytes.data(), static_cast<std::uint32_t>(bytes.size()), receive_region_.lkey}};
}

void Connection::flush_receives() noexcept {
  if (staged_receives_ == 0) return;
  // The receive queue has room for every buffer there is; a queue pair in Error takes none.
  posted_receives_ += static_cast<std::uint32_t>(qp_->post_recv({receive_batch_.data(), staged_receives_}));
  staged_receives_ = 0;
}

SendStage& Connection::stage() noexcept {
  if (shared_.staged_for != this) {
    if (shared_.staged_for != nullptr) shared_.staged_for->flush_stage();
    shared_.staged_for = this;
  }
  touch();
  return shared_.stage;
}

bool Connection::stage_fits(std::size_t further) noexcept {
  const std::size_t needed = shared_.stage.size() + further;
  if (needed > send_room_) send_room_ = qp_->send_room();
  return needed <= send_room_ && needed <= SendStage::kMaxWrs;
}

void Connection::flush_stage() noexcept {
  flush_receives();
  SendStage& stage = shared_.stage;
  if (stage.empty()) return;
  // All of it is taken: room was checked, and a queue pair in Error takes work requests to flush them.
  send_room_ -= qp_->post_send(stage.wrs());
  stage.clear();
}

void Connection::touch() noexcept {
  if (touched_) return;
  touched_ = true;
  shared_.touched[shared_.touched_count++] = this;
}

void Connection::flush() noexcept {
  if (state_ != State::Closed) {
    if (speaks_version_2() && state_ == State::Open && opening_ == Opening::None &&
        flow_.grant_due(posted_receives_ + staged_receives_))
      send_grant();
    if (shared_.staged_for == this) flush_stage();
    flush_receives();
  }
  touched_ = false;
  if (waiting_) touch();  // again in the next turn
}

void Connection::retry_waiting() noexcept {
  waiting_ = tx_waiting_ = false;
  if (state_ != State::Open) return;
  if (opening_ == Opening::Properties && version_ != 0) send_greeting();
  if (outgoing_ != nullptr) send_properties();
  responder_.retry_send_room();
  if (requester_ != nullptr) requester_->pump();
}

}  // namespace sluice::rpcrdma
