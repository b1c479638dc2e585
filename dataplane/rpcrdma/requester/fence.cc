// SPDX-License-Identifier: Apache-2.0
//
// How calls end: the responder's access to their memory first, then the caller's completion, then their buffers.
#include <utility>

#include "dataplane/rpcrdma/requester/steps.h"

namespace sluice::rpcrdma {

using State = RequestSlot::State;

void Requester::set_outcome(Slot& slot, CallStatus status) noexcept {
  slot.reply.status_ = status;
  slot.reply.xid_ = slot.xid;
  slot.reply.write_items_ = slot.write_items;
  slot.reply.returned_ = {slot.chunks->returned.data(), slot.write_items};
  slot.reply.write_segments_ = {slot.chunks->write_segments.data(), slot.write_items};
  slot.reply.version_2_ = version_2();
  if (status != CallStatus::Ok) slot.reply.message_ = {};
}

void Requester::end_call(Slot& slot, CallStatus status) noexcept {
  if (slot.state == State::AwaitingReply) --outstanding_;
  set_outcome(slot, status);
  if (fenced_by_us(slot) == 0) return deliver(slot);
  slot.after_fence = Slot::AfterFence::Deliver;
  fence(slot);
}

/// Windows that the responder has not invalidated for us.
std::uint32_t Requester::fenced_by_us(const Slot& slot) const noexcept {
  return slot.window_count - (slot.window_count > 0 && slot.invalidated ? 1u : 0u);
}

/// Ends the responder's access before the caller sees its memory again (RFC 8166, section 4.4.1).
void Requester::fence(Slot& slot) noexcept {
  SendStage& stage = link_->stage();
  const std::uint32_t count = fenced_by_us(slot);
  if (!link_->has_room(count)) {
    if (slot.state != State::AwaitingFenceRoom) transition(slot, State::AwaitingFenceRoom);
    unfenced_.push_front(slot);
    link_->wait_for_send_room();
    return;
  }
  for (std::uint32_t i = 0; i < slot.window_count; ++i) {
    if (slot.invalidated && slot.chunks->segments[i].handle == slot.invalidate) continue;
    stage.begin(rdma::SendOpcode::LocalInvalidate, link_->wr_id(WrKind::Invalidated, slot.index), 0);
    stage.last().rkey = slot.chunks->segments[i].handle;
  }
  stage.last().flags = rdma::kSignaled;
  transition(slot, State::AwaitingFence);
  ++posted_;
}

[[gnu::noinline]] void Requester::on_invalidated(std::uint16_t index) noexcept {
  --posted_;
  Slot& slot = slots_[index];
  if (slot.after_fence == Slot::AfterFence::Resend) {
    transition(slot, State::AwaitingResend);
    requeue(slot);
  } else {
    deliver(slot);
  }
  pump();
}

[[gnu::noinline]] void Requester::on_invalidation_failed(std::uint16_t index) noexcept {
  // The connection is being closed. The memory is handed back when its queue pair is gone (V1-143): detach().
  // More than one of its invalidations may fail.
  Slot& slot = slots_[index];
  if (slot.state == State::AwaitingDetach) return;
  --posted_;
  transition(slot, State::AwaitingDetach);
}

/// With those before it that have no completion of their own.
void Requester::on_call_sent(std::uint16_t index) noexcept {
  sends_.complete(slots_[index].send_number, [this](std::uint16_t slot) { return end_send(slot); });
}

/// The Send of this slot is done. True: its call waited for that alone.
bool Requester::end_send(std::uint16_t index) noexcept {
  Slot& slot = slots_[index];
  switch (slot.state) {
    case State::AwaitingSendDone:
      static_cast<void>(
          SLUICE_INVARIANT(slot.parts_posted == 0, request_state));  // they were posted before it
      recycle(slot);
      return true;
    case State::AwaitingResend:
      requeue(slot);
      pump();
      return true;
    default:
      return false;
  }
}

void Requester::on_part_sent(std::uint16_t index) noexcept {
  --posted_;
  --slots_[index].parts_posted;  // the Send of the last part completes later
}

void Requester::deliver(Slot& slot) noexcept {
  if (config_.check_exposed_memory && slot.window_count > 0 && slot.exposed_sum != sum_arguments(slot))
    ++counters().exposed_memory_changed;
  if (slot.bounce_memory != nullptr && slot.reply.status_ == CallStatus::Ok) return_bounced(slot);
  free_windows(slot);
  transition(slot, State::AwaitingSendDone);
  if (slot.completion != nullptr) slot.completion(slot.context, slot.reply);
  if (slot.reply_memory != nullptr) {
    long_memory_.release(slot.reply_memory);
    slot.reply_memory = nullptr;
  }
  context_.assembly.release(std::exchange(slot.assembly, nullptr));
  if (slot.receive != kNoReceive)
    end_delivery(slot, std::exchange(slot.receive, kNoReceive));
  else if (send_done(slot))
    recycle(slot);
  else
    sends_.await();
}

std::byte* Requester::keep_reply(const Reply& reply) noexcept {
  Slot& slot = slots_[reply.slot_];
  const bool in_chunk = !reply.message().empty() && reply.message().data() == slot.reply_memory;
  return in_chunk ? std::exchange(slot.reply_memory, nullptr) : nullptr;
}

void Requester::free_windows(Slot& slot) noexcept {
  while (slot.window_count > 0) windows_[free_windows_++] = slot.chunks->windows[--slot.window_count];
}

/// Of what only some calls need, whoever has changed it.
[[gnu::noinline]] void Requester::clear(Slot& slot) noexcept {
  if (slot.call_memory != nullptr) {
    long_memory_.release(slot.call_memory);
    slot.call_memory = nullptr;
  }
  if (slot.bounce_memory != nullptr) {
    bounce_memory_.release(slot.bounce_memory);
    slot.bounce_memory = nullptr;
  }
  static_cast<CallForm&>(slot) = {};
  slot.reply.write_items_ = 0;
  slot.reply.returned_ = {};
  slot.reply.write_segments_ = {};
}

}  // namespace sluice::rpcrdma
