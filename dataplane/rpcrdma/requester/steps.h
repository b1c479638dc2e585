// SPDX-License-Identifier: Apache-2.0
//
// Always-inline steps of the requester, for its .cc files only. Most calls are so short that a function call
// per step would double their cost.
#pragma once

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/version_rules.h"
#include "dataplane/rpcrdma/requester/requester.h"

namespace sluice::rpcrdma {

/// Variant of transition() for a known previous state.
template <RequestSlot::State kFrom, RequestSlot::State kTo>
[[gnu::always_inline]] inline void Requester::step(Slot& slot) noexcept {
  static_assert(may_follow(kFrom, kTo));
  const bool as_known = SLUICE_INVARIANT(slot.state == kFrom, request_state);
  slot.state = kTo;
  if (!as_known && link_ != nullptr) [[unlikely]]
    link_->close(CloseReason::InternalError);
}

/// Returns true if a call may be sent in version 1.
[[gnu::always_inline]] inline bool Requester::has_credit(bool urgent) const noexcept {
  const std::uint32_t in_flight = outstanding_ + abandoned_ + held_receives_;
  // A zero grant stops new calls, but never the only one (V1-055).
  std::uint32_t limit = smaller_of(link_->config().credits_requested, larger_of<std::uint32_t>(granted_, 1));
  if (config_.spare_credit && !urgent && limit > 1) --limit;
  return in_flight < limit && (granted_ > 0 || in_flight == 0);
}

/// Returns true if a call fits one Send, and its reply one Send or, where messages continue, a few. The
/// version is a template parameter because every plain call passes here.
template <std::uint32_t kVersion>
[[gnu::always_inline]] inline bool Requester::fits_plain(std::size_t payload_bytes,
                                                         std::uint32_t max_reply_bytes) const noexcept {
  if constexpr (kVersion == v2::kVersion)
    return v2::kMinMsgHeaderBytes + payload_bytes <= link_->send_bytes() &&
           max_reply_bytes <= config_.continue_up_to;
  else
    return kMinMsgHeaderBytes + payload_bytes <= link_->send_bytes() &&
           kMinMsgHeaderBytes + max_reply_bytes <= link_->config().receive_inline_bytes;
}

/// Called when a whole call, or its last part, is staged.
[[gnu::always_inline]] inline void Requester::set_sent(Slot& slot, std::uint16_t index) noexcept {
  slot.send_number = sends_.add(index);
  ++outstanding_;
  SLUICE_INVARIANT_DEBUG(outstanding_ <= config_.requests, request_state);
  ++link_->counters().calls_sent;
}

/// Stages the Send of a plain call. Requires room in the stage. The caller passes values that would otherwise
/// be loaded from the slot, which may not be in the cache yet.
[[gnu::always_inline]] inline void Requester::stage_plain_send(Slot& slot, std::uint16_t index,
                                                               bool version_2) noexcept {
  const std::size_t header_bytes = version_2 ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes;
  std::byte* const at = send_buffer(index) + config_.inline_bytes - header_bytes;
  const std::uint64_t bytes = header_bytes + slot.payload_bytes;
  SLUICE_INVARIANT_DEBUG(slot.payload_bytes <= config_.inline_bytes, buffer_bounds);
  SLUICE_INVARIANT_DEBUG(bytes <= link_->send_bytes(), buffer_bounds);
  if (version_2) {
    v2::store_plain_call(at, slot.xid, session_->use_credit());
  } else {
    v1::store_plain_call(at, slot.xid, static_cast<Credits>(link_->config().credits_requested));
  }
  link_->stage_one(WrKind::CallSent, index, {at, static_cast<std::uint32_t>(bytes), send_region_.lkey});
  link_->count_sent(&Counters::inline_bytes_sent, bytes);
}

[[gnu::always_inline]] inline void Requester::recycle(Slot& slot) noexcept {
  if (!slot.plain) [[unlikely]]
    clear(slot);
  SLUICE_INVARIANT_DEBUG(slot.reply_memory == nullptr && slot.assembly == nullptr, pool_balance);
  SLUICE_INVARIANT_DEBUG(slot.window_count == 0 && slot.parts_posted == 0, pool_balance);
  SLUICE_INVARIANT_DEBUG(slot.receive == kNoReceive && !slot.link.linked(), list_membership);
  step<RequestSlot::State::AwaitingSendDone, RequestSlot::State::Free>(slot);
  free_.push(slot.index);
}

/// Ends a call after delivery and posts the Receive of its reply again. The call's Send may still be
/// outstanding.
[[gnu::always_inline]] inline void Requester::end_delivery(Slot& slot, std::uint16_t receive) noexcept {
  SLUICE_INVARIANT_DEBUG(held_receives_ > 0, pool_balance);
  --held_receives_;
  if (link_ != nullptr && link_->is_open()) link_->repost_now(receive);
  if (send_done(slot)) [[likely]]
    recycle(slot);
  else
    sends_.await();
}

}  // namespace sluice::rpcrdma
