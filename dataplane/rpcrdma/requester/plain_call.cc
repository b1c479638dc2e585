// SPDX-License-Identifier: Apache-2.0
//
// The calls that most are: without chunks, sent at once, and answered in one Send. One function takes such a call to its
// Send, and one its reply to the caller; they touch nothing of the slot but what such a call needs.
#include <cstring>

#include "dataplane/rpcrdma/requester/steps.h"

namespace sluice::rpcrdma {

using State = RequestSlot::State;

/// Whether nothing of ours keeps a call from being sent at once, whatever the peer allows.
[[gnu::always_inline]] inline bool Requester::is_plain_and_ready(const Request& request) const noexcept {
  const std::size_t bytes = request.payload.size();
  return request.reads.size() + request.writes.size() == 0 && !request.as_long_call &&
         !request.offer_reply_chunk && plain_calls_ && !free_.empty() && connected() && peer_ready_ &&
         waiting_.empty() && unfenced_.empty() && bytes >= rpc::kMinCallBytes &&
         bytes <= config_.inline_bytes && link_->is_open();
}

/// Whether it needs nothing but a credit and a place in the send queue of the peer's version, and has both.
template <std::uint32_t kVersion>
[[gnu::always_inline]] inline bool Requester::sends_at_once(const Request& request) noexcept {
  const std::size_t bytes = request.payload.size();
  if constexpr (kVersion == v2::kVersion)
    return v2::kMinMsgHeaderBytes + bytes <= link_->send_bytes(true) &&
           request.max_reply_bytes <= config_.continue_up_to && link_->may_call_now() &&
           link_->has_room_for_one();
  else
    return kMinMsgHeaderBytes + bytes <= link_->send_bytes(false) &&
           kMinMsgHeaderBytes + request.max_reply_bytes <= link_->config().receive_inline_bytes &&
           has_credit(request.urgent) && link_->has_room_for_one();
}

SubmittedXid Requester::submit(const Request& request) noexcept {
  if (!is_plain_and_ready(request)) [[unlikely]]
    return submit_other(request);
  if (link_->speaks_version_2()) return submit_plain<v2::kVersion>(request);
  if (link_->version_state() == VersionState::Version1) [[likely]]
    return submit_plain<v1::kVersion>(request);
  return submit_other(request);
}

template <std::uint32_t kVersion>
[[gnu::always_inline]] inline SubmittedXid Requester::submit_plain(const Request& request) noexcept {
  if (!sends_at_once<kVersion>(request)) [[unlikely]]
    return submit_other(request);
  const std::uint16_t index = free_.pop();
  Slot& slot = take_slot(request, index);
  slot.plain = true;
  slot.payload_bytes = static_cast<std::uint32_t>(request.payload.size());
  std::byte* const payload = send_buffer(index) + config_.inline_bytes;
  std::memcpy(payload, request.payload.data(), request.payload.size());
  xdr::store_u32(payload, static_cast<std::uint32_t>(slot.xid));
  step<State::Free, State::AwaitingTurn>(slot);
  stage_plain_send(slot, index, kVersion == v2::kVersion);
  step<State::AwaitingTurn, State::AwaitingReply>(slot);
  set_sent(slot, index);
  return SubmittedXid(slot.xid);
}

/// A free one. What only some calls need is as in a new slot.
[[gnu::always_inline]] inline RequestSlot& Requester::take_slot(const Request& request,
                                                                std::uint16_t index) noexcept {
  Slot& slot = slots_[index];
  slot.xid = static_cast<rpc::Xid>(++xid_sequence_ * config_.requests | index);
  slot.sequence = ++sequence_;
  slot.completion = request.completion;
  slot.context = request.context;
  slot.deadline_ns = request.deadline_ns;
  slot.max_reply_bytes = request.max_reply_bytes;
  slot.repeatable = request.repeatable;
  slot.send_once = request.send_once;
  slot.urgent = request.urgent;
  return slot;
}

[[gnu::noinline]] SubmittedXid Requester::submit_other(const Request& request) noexcept {
  if (free_.empty()) return {};
  if (request.payload.size() > config_.inline_bytes &&
      request.payload.size() <= long_memory_.buffer_bytes() && long_memory_.available() == 0)
    return {};
  if (needs_bounce(request) && bounce_memory_.available() == 0) return {};
  Slot& slot = take_slot(request, free_.pop());
  slot.plain = false;
  if (config_.keep_xids && request.payload.size() >= xdr::kUnit) {
    slot.xid = static_cast<rpc::Xid>(xdr::load_u32(request.payload.data()));
    xids_[slot.index] = slot.xid;
  }
  const rpc::Xid xid = slot.xid;
  if (!copy_request(slot, request)) {
    end_call(slot, CallStatus::TooLarge);
    return SubmittedXid(xid);
  }
  transition(slot, State::AwaitingTurn);
  // Nothing may go between the parts of a continued call.
  const Slot* const first = waiting_.front();
  if (slot.urgent && (first == nullptr || !first->in_parts()))
    waiting_.push_front(slot);
  else
    waiting_.push_back(slot);
  pump();
  return SubmittedXid(xid);
}

template <std::uint32_t kVersion>
[[gnu::noinline]] void Requester::take_plain_reply(Slot& slot, std::uint16_t buffer,
                                                   std::span<const std::byte> message) noexcept {
  constexpr bool version_2 = kVersion == v2::kVersion;
  ++link_->counters().replies_received;
  if (!version_2) granted_ = xdr::load_u32(message.data() + 2 * xdr::kUnit);
  --outstanding_;
  ++held_receives_;
  Reply& reply = plain_reply_;  // its status is Ok
  reply.xid_ = slot.xid;
  reply.slot_ = slot.index;
  reply.version_2_ = version_2;
  reply.message_ = message.subspan(version_2 ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes);
  step<State::AwaitingReply, State::AwaitingSendDone>(slot);
  if (slot.completion != nullptr) slot.completion(slot.context, reply);
  end_delivery(slot, buffer);
  pump();
}

template void Requester::take_plain_reply<v1::kVersion>(Slot&, std::uint16_t,
                                                        std::span<const std::byte>) noexcept;
template void Requester::take_plain_reply<v2::kVersion>(Slot&, std::uint16_t,
                                                        std::span<const std::byte>) noexcept;

}  // namespace sluice::rpcrdma
