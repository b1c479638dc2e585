// SPDX-License-Identifier: Apache-2.0
//
// Always-inline steps of the responder, for its .cc files only. Most calls are so short that a function call
// per step would double their cost.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/invariant.h"
#include "dataplane/base/probes.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/version_rules.h"
#include "dataplane/rpcrdma/responder/responder.h"

namespace sluice::rpcrdma {

// --- Replies

/// Destinations of the parts of a reply.
struct Responder::ReplyPlan {
  enum class Mechanism : std::uint8_t { Inline, ReplyChunk, Continued };
  Mechanism mechanism = Mechanism::Inline;
  /// Bit mask: result item i goes to a Write chunk if bit i is set, otherwise to the payload.
  std::uint32_t items_in_chunks = 0;
  std::uint32_t chunk_count = 0;  ///< Write chunks with an entry in `written`
  std::array<std::uint64_t, kMaxWriteChunks> written;
  std::uint64_t payload_bytes = 0;  ///< length of the payload stream with the items that stay in it
  std::size_t header_bytes = 0;
  rdma::Rkey invalidate{};

  bool in_reply_chunk() const noexcept { return mechanism == Mechanism::ReplyChunk; }
  /// Returns the bytes written to each Write chunk.
  std::span<const std::uint64_t> bytes_written() const noexcept { return {written.data(), chunk_count}; }
};

// --- States

/// Adds the time spent in the current state. Most calls change their state within the iteration in which they
/// are received, so no time is added.
[[gnu::always_inline]] inline void Responder::note_state(CallSlot& slot) noexcept {
  std::uint64_t now_ns = turn_ns();
  if (traced_) [[unlikely]]
    now_ns = context_.measurement.times.now_ns();
  if (now_ns > slot.state_since_ns_) [[unlikely]]
    add_state_time(slot, now_ns);
}

/// An illegal transition is still made because the code that follows relies on the new state.
[[gnu::always_inline]] inline void Responder::set_state(CallSlot& slot, CallSlot::State state) noexcept {
  const CallSlot::State before = slot.state_;
  if (state != CallSlot::State::Free && before != CallSlot::State::Free) note_state(slot);
  slot.state_ = state;
  if (waits_for_peer(state)) slot.progress_ns_ = link_.context().now_ns();
  if (!SLUICE_INVARIANT(may_follow(before, state), call_slot_state)) [[unlikely]]
    link_.close(CloseReason::InternalError);
}

/// Variant of set_state() for a known previous state that began in this iteration, and for a call that is not
/// traced. No time has passed, so the intermediate states may be skipped.
template <CallSlot::State kFrom, CallSlot::State... kNext>
[[gnu::always_inline]] inline void Responder::step(CallSlot& slot) noexcept {
  constexpr CallSlot::State kStates[]{kFrom, kNext...};
  constexpr CallSlot::State kTo = kStates[sizeof...(kNext)];
  static_assert([] {
    for (std::size_t i = 0; i < sizeof...(kNext); ++i)
      if (!may_follow(kStates[i], kStates[i + 1])) return false;
    return true;
  }());
  const bool as_known = SLUICE_INVARIANT(slot.state_ == kFrom, call_slot_state);
  slot.state_ = kTo;
  if (waits_for_peer(kTo)) slot.progress_ns_ = link_.context().now_ns();
  if (!as_known) [[unlikely]]
    link_.close(CloseReason::InternalError);
}

[[gnu::always_inline]] inline void Responder::count_state(CallSlot& slot) noexcept {
  auto& slots_in_state = context_.measurement.slots_in_state;
  SLUICE_INVARIANT_DEBUG(slots_in_state[static_cast<std::size_t>(slot.counted_state_)] > 0, call_slot_state);
  --slots_in_state[static_cast<std::size_t>(slot.counted_state_)];
  ++slots_in_state[static_cast<std::size_t>(slot.state_)];
  slot.counted_state_ = slot.state_;
}

// --- RX

/// Takes a free slot. The caller sets its message and refusal.
[[gnu::always_inline]] inline CallSlot& Responder::take_slot() noexcept {
  CallSlot& slot = free_.pop();
  SLUICE_INVARIANT_DEBUG(busy_ < max_slots_ && slot.state_ == CallSlot::State::Free, pool_balance);
  SLUICE_INVARIANT_DEBUG(slot.call_memory_ == nullptr && slot.reply_memory_ == nullptr, pool_balance);
  ++busy_;
  peak_busy_ = larger_of(peak_busy_, busy_);
  ++calls_;
  slot.header_.program = 0;
  slot.offered_results_ = slot.placed_bytes_ = 0;
  slot.results_offset_ = rpc::kMinReplyBytes;
  slot.auth_error_ = rpc::AuthStat::Ok;
  slot.piece_count_ = slot.item_count_ = 0;
  slot.has_state_ = false;
  slot.advancing_ = slot.holds_receive_ = true;
  slot.with_service_ = slot.completed_ = slot.into_sink_ = slot.impossible_ = false;
  slot.traced_ = traced_;
  slot.plain_ = true;
  slot.procedure_ = segment::kOtherProcedure;
  slot.begun_ns_ = slot.state_since_ns_ = context_.measurement.times.turn_ns();
  return slot;
}

/// Starts a call whose message is in the slot.
[[gnu::always_inline]] inline void Responder::start(CallSlot& slot) noexcept {
  step<CallSlot::State::Free, CallSlot::State::Received>(slot);
  ++link_.counters().calls_received;
  probe::call_received(link_.number(), slot.xid(), slot.index_, slot.message_.bytes.size());
}

[[gnu::always_inline]] inline void Responder::end_advance(CallSlot& slot) noexcept {
  slot.advancing_ = false;
  count_state(slot);
  context_.measurement.times.touch(link_.client_class(), slot.procedure_);
}

[[gnu::always_inline]] inline bool Responder::reserve_headroom(CallSlot& slot,
                                                               std::size_t headroom) noexcept {
  constexpr std::size_t kLargestErrorReply = 32;  // PROG_MISMATCH with its range
  if (headroom + kLargestErrorReply > slot.reply_buffer_.size()) [[unlikely]]
    return refuse(slot, link_.counters().reply_too_large, kRefuseSystem), false;
  slot.payload_ = slot.reply_buffer_.data() + headroom;
  slot.results_ = xdr::Writer(slot.reply_buffer_.subspan(headroom + rpc::kMinReplyBytes));
  return true;
}

/// Decodes the RPC header and finds the service. For a procedure that is not idempotent it also checks that
/// the reply will fit. `prepare` reserves room for the results. Returns false if the call has been answered
/// or refused.
template <typename Prepare>
[[gnu::always_inline]] inline bool Responder::find_service(CallSlot& slot, xdr::Reader& reader,
                                                           const Prepare& prepare) noexcept {
  Counters& counters = link_.counters();
  const rpc::CallDecode decoded = rpc::decode_call(reader, slot.header_);
  if (decoded == rpc::CallDecode::NotACall) {
    const VersionRules& rules = link_.rules();
    return refuse(slot, counters.*rules.not_a_call_counter, rules.not_a_call), false;
  }
  if (decoded == rpc::CallDecode::Truncated) return refuse(slot, counters.no_payload), false;
  if (!prepare()) return false;

  switch (decoded) {
    case rpc::CallDecode::RpcMismatch:
      ++counters.rpc_mismatch;
      return answer(slot, CallSlot::Outcome::RpcMismatch), false;
    case rpc::CallDecode::BadCred:
    case rpc::CallDecode::BadVerf:
      ++counters.rpc_bad_auth;
      slot.auth_error_ =
          decoded == rpc::CallDecode::BadCred ? rpc::AuthStat::BadCred : rpc::AuthStat::BadVerf;
      return answer(slot, CallSlot::Outcome::AuthError), false;
    default:
      break;
  }
  if (sole_service_ != nullptr) {
    slot.service_ = sole_service_;
    slot.binding_ = &sole_service_->binding();
  } else {
    const ServiceTable::Entry* const entry =
        context_.services.find(slot.header_.program, slot.header_.version, link_.config().services_at);
    if (entry == nullptr) return refuse_program(slot), false;
    slot.service_ = entry->service;
    slot.binding_ = entry->binding;
    slot.procedure_ = entry->place_of(slot.header_.procedure);
  }
  const service::Binding& binding = *slot.binding_;
  const service::ProcedureBinding procedure = binding.procedure(slot.header_.procedure);
  if (!slot.plain_ && !slot.message_.header.chunks.writes.empty() &&
      binding.unusable == service::UnusableChunks::Refuse && link_.rules().refuses_useless_writes &&
      procedure.eligible_results == 0)
    return refuse(slot, counters.not_eligible), false;
  return procedure.idempotent ||
         reply_will_fit(slot, binding.max_results_bytes(slot.header_.procedure, reader.rest()));
}

[[gnu::always_inline]] inline void Responder::enter_service(CallSlot& slot) noexcept {
  slot.with_service_ = true;
  set_state(slot, CallSlot::State::Executing);
}

[[gnu::always_inline]] inline void Responder::execute(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.service_ != nullptr && slot.with_service_, call_slot_state);
  SLUICE_INVARIANT_DEBUG(slot.state_ == CallSlot::State::Executing, call_slot_state);
  probe::call_executing(link_.number(), slot.xid(), slot.index_, slot.arguments_.size());
  if (slot.service_->execute(slot) == service::Execution::Started) return;
  await_reply_memory(slot);
}

// --- Answers of the service

inline void Responder::release_assembly(CallSlot& slot) noexcept {
  if (slot.message_.assembly == nullptr) return;
  link_.context().assembly.release(std::exchange(slot.message_.assembly, nullptr));
  slot.arguments_ = {};
}

[[gnu::always_inline]] inline void Responder::answer(CallSlot& slot, CallSlot::Outcome outcome) noexcept {
  slot.completed_ = true;
  slot.outcome_ = outcome;
  begin_pushing(slot);
}

/// Starts sending the reply of a completed call.
[[gnu::always_inline]] inline void Responder::begin_pushing(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.completed_, call_slot_state);
  set_state(slot, CallSlot::State::Pushing);
  // The reply may wait for a credit that arrives only after continued calls find memory, so it must not hold
  // any.
  if (!slot.plain_) release_assembly(slot);
}

// --- TX

/// Writes the RPC reply header before the results. Results are dropped unless the outcome is Success.
[[gnu::always_inline]] inline void Responder::finish_payload(CallSlot& slot) noexcept {
  if (slot.outcome_ != CallSlot::Outcome::Success || !slot.results_.ok() ||
      slot.results_offset_ != rpc::kMinReplyBytes)
    return finish_other_payload(slot);
  SLUICE_INVARIANT_DEBUG(slot.payload_ != nullptr, buffer_bounds);
  rpc::encode_success(slot.payload_, slot.message_.header.fixed.xid);
  slot.payload_bytes_ = static_cast<std::uint32_t>(rpc::kMinReplyBytes + slot.results_.position());
}

/// Posts the call's Receive before its reply is sent (V1-052). The views in the header become invalid.
[[gnu::always_inline]] inline void Responder::return_receive(CallSlot& slot) noexcept {
  if (slot.holds_receive_) link_.repost_now(slot.message_.buffer);
  slot.holds_receive_ = false;
}

/// Counts a staged Send that ends the call. The caller sets the state.
[[gnu::always_inline]] inline void Responder::on_reply_staged(CallSlot& slot) noexcept {
  return_receive(slot);
  ++posted_;
  ++replying_;
  SLUICE_INVARIANT_DEBUG(replying_ <= posted_ && posted_ <= max_slots_, pool_balance);
}

/// Stages a reply without chunks, items and waiting, whose header and payload are one piece of reply_buffer_.
/// Requires plain_. Returns false without side effects if the reply does not qualify.
[[gnu::always_inline]] inline bool Responder::stage_plain_reply(CallSlot& slot, bool version_2) noexcept {
  Link& link = link_;
  const std::size_t header_bytes = version_2 ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes;
  const std::size_t bytes = header_bytes + slot.payload_bytes_;
  if (slot.item_count_ > 0 || bytes > link.send_bytes()) return false;
  if (version_2 && !(waiting_send_room_.empty() && session_.may_reply_now())) return false;
  if (!link.has_room_for_one()) return false;

  std::byte* const at = slot.payload_ - header_bytes;
  SLUICE_INVARIANT_DEBUG(slot.plain_ && at >= slot.reply_buffer_.data(), buffer_bounds);
  SLUICE_INVARIANT_DEBUG(at + bytes <= slot.reply_buffer_.data() + slot.reply_buffer_.size(), buffer_bounds);
  const rpc::Xid xid = slot.message_.header.fixed.xid;
  return_receive(slot);  // the credit word already counts it
  if (version_2)
    v2::store_plain_reply(at, xid, session_.use_credit());
  else
    v1::store_plain_reply(at, xid, grant());
  slot.sent_before_ =
      link.stage_one(WrKind::ReplySent, slot.index_, {at, static_cast<std::uint32_t>(bytes), reply_lkey_});
  ++link.counters().replies_sent;
  link.count_sent(&Counters::inline_bytes_sent, bytes);
  const bool success = slot.outcome_ == CallSlot::Outcome::Success;
  context_.measurement.times.replied(link.client_class(), slot.procedure_,
                                     success ? segment::CallStatus::success : failure_of(slot),
                                     slot.begun_ns_);
  probe::reply_posted(link.number(), static_cast<std::uint32_t>(xid), slot.index_, slot.payload_bytes_);
  ++posted_;
  ++replying_;
  return true;
}

// --- End of a call

/// Releases the resources of a call. The caller sets the state.
[[gnu::always_inline]] inline void Responder::let_go(CallSlot& slot, bool replied) noexcept {
  context_.measurement.times.touch(link_.client_class(), slot.procedure_);
  if (std::exchange(slot.with_service_, false)) slot.service_->release(slot);
  if (slot.holds_receive_ && link_.is_open()) [[unlikely]]
    link_.repost(slot.message_.buffer);
  const std::uint64_t took_ns = turn_ns() - slot.begun_ns_;
  if (replied) ++served_, served_ns_ += took_ns;
  const bool slow = took_ns >= context_.measurement.slow_ns.load(std::memory_order_relaxed);
  if (slow || slot.traced_) [[unlikely]]
    note_end(slot, replied, slow);
  if (!slot.plain_) release_extras(slot);
}

/// Returns a slot that has become Free.
[[gnu::always_inline]] inline void Responder::give_back(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.state_ == CallSlot::State::Free && busy_ > 0, call_slot_state);
  SLUICE_INVARIANT_DEBUG(slot.call_memory_ == nullptr && slot.reply_memory_ == nullptr, pool_balance);
  SLUICE_INVARIANT_DEBUG(slot.parts_posted_ == 0 && !slot.waits() && !slot.refusal_, pool_balance);
  SLUICE_INVARIANT_DEBUG(busy_ > 1 || (posted_ == 0 && replying_ == 0), pool_balance);
  count_state(slot);
  probe::slot_released(link_.number(), slot.xid(), slot.index_);
  if (--busy_ == 0) link_.notify_waiting_senders();
  if (!link_.is_open()) [[unlikely]]
    link_.touch();
  free_.push(slot);
}

// --- Checks and counters

/// Returns false if the call was refused.
[[gnu::always_inline]] inline bool Responder::xid_agrees(CallSlot& slot,
                                                         std::span<const std::byte> message) noexcept {
  if (message.size() < xdr::kUnit) return refuse(slot, link_.counters().no_payload), false;
  if (static_cast<rpc::Xid>(xdr::load_u32(message.data())) == slot.message_.header.fixed.xid) return true;
  return refuse(slot, link_.counters().xid_mismatch), false;
}

inline void Responder::count_sent(const CallSlot& slot, const ReplyPlan& plan) noexcept {
  Counters& counters = link_.counters();
  context_.measurement.times.replied(link_.client_class(), slot.procedure_, status_of(slot), slot.begun_ns_);
  if (slot.refusal_) [[unlikely]] {
    probe::error_sent(link_.number(), slot.xid(), slot.index_,
                      static_cast<std::uint32_t>(slot.refusal_->code));
    if (link_.version() != v1::kVersion) session_.count_error_send();
    ++(slot.refusal_->code == v2::ErrorCode::Vers ? counters.err_vers_sent
                                                  : counters.*link_.rules().errors_sent);
    return;
  }
  probe::reply_posted(link_.number(), slot.xid(), slot.index_, plan.payload_bytes);
  if (link_.rules().credit_per_message) session_.count_send(slot.credit_);
  ++counters.replies_sent;
  if (plan.invalidate != rdma::Rkey{}) ++counters.remote_invalidations;
  link_.count_sent(
      &Counters::inline_bytes_sent,
      plan.header_bytes + (plan.in_reply_chunk() ? 0 : plan.payload_bytes - slot.continued_bytes_));
  if (plan.in_reply_chunk()) link_.count_sent(&Counters::rdma_write_bytes, plan.payload_bytes);
  for (std::uint64_t bytes : plan.bytes_written()) link_.count_sent(&Counters::rdma_write_bytes, bytes);
}

}  // namespace sluice::rpcrdma
