// SPDX-License-Identifier: Apache-2.0
//
// RX half of the requester: replies, errors, calls that are sent again after an error, and the end of calls.
#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/rpcrdma/requester/requester.h"
#include "dataplane/rpcrdma/requester/steps.h"

namespace sluice::rpcrdma {
using RequestState = RequestSlot::State;

void Requester::on_reply(const ReceivedMessage& message) noexcept {
  Slot* slot = find(message.header.fixed.xid);
  const rdma::Rkey invalidated = message.header.invalidate;  // version 1 has none
  if (invalidated != rdma::Rkey{} && (slot == nullptr || slot->invalidate != invalidated)) {
    // Memory of another call may have been invalidated (V2-129).
    context_.assembly.release(message.assembly);
    ++counters().invalidation_errors;
    return link_->close(CloseReason::InvalidationError);
  }
  if (slot == nullptr) {
    on_unknown_xid();
    link_->discard(message);
    return pump();
  }
  ++counters().replies_received;
  SLUICE_INVARIANT_DEBUG(slot->receive == kNoReceive && slot->assembly == nullptr, pool_balance);
  slot->receive = message.buffer;
  slot->invalidated = invalidated != rdma::Rkey{};
  slot->assembly = message.assembly;
  ++held_receives_;

  bool usable = check_returned_chunks(*slot, message.header);
  if (usable && by_regions_) take_from_pool(*slot);
  if (usable) {
    // check_returned_chunks() has limited the sum to the offered length.
    std::span<const std::byte>& reply = slot->reply.message_;
    reply = message.payload();
    if (message.header.no_msg) reply = {slot->reply_memory, message.header.chunks.reply->capacity()};
    usable = reply.size() >= rpc::kMinDeniedReplyBytes &&
             static_cast<rpc::Xid>(xdr::load_u32(reply.data())) == slot->xid;
  }
  if (usable) granted_ = static_cast<std::uint32_t>(message.header.fixed.credits);
  if (!usable) ++counters().unusable_reply;
  end_call(*slot, usable ? CallStatus::Ok : CallStatus::UnusableReply);
  pump();
}

/// Counts a reply or error without a call. It most likely answers an abandoned call, whose credit is free
/// again (V1-030).
void Requester::on_unknown_xid() noexcept {
  ++counters().unknown_xid;
  if (abandoned_ > 0) --abandoned_;
}

namespace {

/// Returns true if the lengths of a returned chunk do not exceed those of the offered segments, and no
/// segment after a partially filled one holds data (RFC 8166, section 3.4.6).
bool is_filled_in_order(const WriteChunk& returned, std::span<const Segment> offered) noexcept {
  bool partial = false;
  for (std::uint32_t i = 0; i < returned.size(); ++i) {
    const std::uint32_t length = returned[i].length;
    if (length > offered[i].length || (partial && length > 0)) return false;
    partial = partial || length < offered[i].length;
  }
  return true;
}

}  // namespace

/// Checks that the returned lists match the offered ones, with lengths no larger (V1-110). An unused chunk
/// may be returned without segments, as old responders do (V1-109).
bool Requester::check_returned_chunks(Slot& slot, const MessageHeader& header) noexcept {
  if (slot.write_items == 0 && header.chunks.empty() && !header.no_msg) return true;
  if (!header.chunks.reads.empty()) return false;  // V1-091
  if (header.chunks.writes.size() > (slot.results_in_reply ? 0u : slot.write_items)) return false;
  for (std::uint32_t item = 0; item < slot.write_items; ++item) slot.chunks->returned[item] = 0;
  std::size_t offered = slot.first_write_segment;
  std::uint32_t item = 0;
  for (const WriteChunk chunk : header.chunks.writes) {
    const std::uint32_t count = slot.chunks->write_segments[item];
    SLUICE_INVARIANT_DEBUG(offered + count <= slot.segment_count, table_index);
    if (chunk.size() != count && chunk.size() != 0) return false;
    if (!is_filled_in_order(chunk, {slot.chunks->segments.data() + offered, count})) return false;
    for (std::uint32_t i = 0; i < chunk.size(); ++i) slot.chunks->returned[item] += chunk[i].length;
    offered += count;
    ++item;
  }
  const bool in_reply_chunk = header.no_msg;
  if (!in_reply_chunk) return true;  // the returned Reply chunk is ignored in this case (V1-121)
  if (!header.chunks.reply || slot.reply_chunk_bytes == 0) return false;
  for (; item < slot.write_items; ++item) offered += slot.chunks->write_segments[item];
  const WriteChunk& reply = *header.chunks.reply;
  if (reply.size() != slot.segment_count - offered) return false;
  return is_filled_in_order(reply, {slot.chunks->segments.data() + offered, reply.size()});
}

void Requester::on_error(const v1::Header& header) noexcept {
  Slot* slot = find(header.fixed.xid);
  if (slot == nullptr) {
    on_unknown_xid();
    return pump();
  }
  ++counters().errors_received;
  slot->reply.error_ = {.code = v2::ErrorCode::Vers, .supported = header.supported};
  end_call(*slot, header.error == v1::ErrorCode::Vers ? CallStatus::VersionError : CallStatus::ChunkError);
  pump();
}

void Requester::on_error(rpc::Xid xid, const v2::Error& error) noexcept {
  Slot* slot = find(xid);
  if (slot == nullptr) {
    if (!refuse_in_parts(xid, error)) on_unknown_xid();
    return pump();
  }
  ++counters().errors_received;
  if (error.code == v2::ErrorCode::InvalHtype && slot->sent_no_msg) no_msg_refused_ = true;
  if (!slot->resent && replan(*slot, error)) {
    resend(*slot);
  } else {
    slot->reply.error_ = error;
    end_call(*slot, error.code == v2::ErrorCode::Vers ? CallStatus::VersionError : CallStatus::Refused);
  }
  pump();
}

/// Handles an error for a call whose parts are not all sent. The caller is notified now (V2-120). The
/// remaining parts are sent without chunks because the responder drops everything up to the last part
/// (D2-40). Returns false if there is no such call.
bool Requester::refuse_in_parts(rpc::Xid xid, const v2::Error& error) noexcept {
  Slot& slot = slot_of(xid);
  if (slot.xid != xid || slot.state != RequestState::AwaitingNextPart) return false;
  ++counters().errors_received;
  if (!slot.ends_as)
    slot.ends_as = error.code == v2::ErrorCode::Vers ? CallStatus::VersionError : CallStatus::Refused;
  transition(slot, RequestState::AwaitingLastPart);
  slot.deadline_ns = 0;
  slot.read_items = slot.write_items = 0;
  slot.max_segments = 0;
  slot.reply.error_ = error;
  set_outcome(slot, *slot.ends_as);
  if (slot.completion != nullptr) std::exchange(slot.completion, nullptr)(slot.context, slot.reply);
  return true;
}

/// Adapts a call to the responder's refusal, if possible (draft, sections 6.4.3 and 6.5). Returns false if
/// the call must end.
bool Requester::replan(Slot& slot, const v2::Error& error) noexcept {
  switch (error.code) {
    case v2::ErrorCode::ReadChunks:
      if (error.maximum != 0 || slot.read_items == 0 || slot.sent_no_msg) return false;
      if (unreduced_bytes(slot) > long_memory_.buffer_bytes()) return false;
      slot.arguments = Slot::Arguments::ToBeUnreduced;  // V2-114
      return true;
    case v2::ErrorCode::WriteChunks:
      slot.results_in_reply = slot.write_items > 0;  // V2-116
      return slot.results_in_reply;
    case v2::ErrorCode::Segments:
      if (error.maximum >= slot.segment_count) return false;
      slot.max_segments = error.maximum;
      return shape_of(slot).possible;
    case v2::ErrorCode::WriteResource: {
      if (!slot.repeatable || error.chunk_index == 0 || error.chunk_index > slot.write_items) return false;
      const std::uint32_t item = error.chunk_index - 1;
      std::uint32_t first = 0;
      for (std::uint32_t i = 0; i < slot.read_items; ++i) first += slot.chunks->read_pieces[i];
      for (std::uint32_t i = 0; i < item; ++i) first += slot.chunks->write_pieces[i];
      const std::uint64_t room =
          rdma::total_bytes({&slot.chunks->pieces[first], slot.chunks->write_pieces[item]});
      if (error.bytes_needed > room || error.bytes_needed <= slot.chunks->write_offers[item]) return false;
      slot.chunks->write_offers[item] = error.bytes_needed;
      return true;
    }
    case v2::ErrorCode::ReplyResource:
      if (!slot.repeatable || error.bytes_needed <= slot.reply_chunk_bytes ||
          error.bytes_needed > long_memory_.buffer_bytes())
        return false;
      slot.reply_chunk_least = error.bytes_needed;
      return true;
    default:
      return false;
  }
}

/// Fences what was exposed, then sends the call again with the same XID.
void Requester::resend(Slot& slot) noexcept {
  static_cast<void>(
      SLUICE_INVARIANT(outstanding_ > 0 && slot.state == RequestState::AwaitingReply, request_state));
  --outstanding_;
  ++counters().calls_replanned;
  slot.plain = false;
  slot.resent = true;
  slot.continued_bytes = 0;
  if (slot.window_count > 0) {
    slot.after_fence = Slot::AfterFence::Resend;
    fence(slot);
  } else {
    transition(slot, RequestState::AwaitingResend);
    requeue(slot);
  }
}

/// Returns a call to the waiting queue once all its Sends are complete.
void Requester::requeue(Slot& slot) noexcept {
  if (slot.state != RequestState::AwaitingResend) return;
  if (!send_done(slot)) return sends_.await();
  if (slot.parts_posted > 0) return;
  free_windows(slot);
  if (slot.reply_memory != nullptr) release_reply(std::exchange(slot.reply_memory, nullptr));
  if (slot.ends_as) return end_call(slot, *slot.ends_as);
  transition(slot, RequestState::AwaitingTurn);
  waiting_.push_front(slot);
}

/// Sends calls of version 2 again, because the server has not processed them.
void Requester::on_fallback() noexcept {
  for (std::uint32_t i = 0; i < config_.requests; ++i)
    if (slots_[i].state == RequestState::AwaitingReply) resend(slots_[i]);
  pump();
}

void Requester::on_unusable(rpc::Xid xid) noexcept {
  Slot* const slot = find(xid);
  if (!SLUICE_INVARIANT(slot != nullptr, xid_table)) return link_->close(CloseReason::InternalError);
  ++counters().unusable_reply;
  end_call(*slot, CallStatus::UnusableReply);
  pump();
}

// --- The end of a call, in the order: the responder's access to memory, the completion, the buffers

void Requester::set_outcome(Slot& slot, CallStatus status) noexcept {
  slot.reply.status_ = status;
  slot.reply.xid_ = slot.xid;
  slot.reply.write_items_ = slot.write_items;
  slot.reply.returned_ = {slot.chunks->returned.data(), slot.write_items};
  slot.reply.write_segments_ = {slot.chunks->write_segments.data(), slot.write_items};
  slot.reply.exact_chunks_ = link_ != nullptr && link_->rules().exact_chunks;
  if (status != CallStatus::Ok) slot.reply.message_ = {};
}

void Requester::end_call(Slot& slot, CallStatus status) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.state != RequestState::AwaitingReply || outstanding_ > 0, request_state);
  SLUICE_INVARIANT_DEBUG(!slot.link.linked(), list_membership);
  if (slot.state == RequestState::AwaitingReply) --outstanding_;
  set_outcome(slot, status);
  if (fenced_by_us(slot) == 0) return deliver(slot);
  slot.after_fence = Slot::AfterFence::Deliver;
  fence(slot);
}

/// Returns the number of windows that the responder has not invalidated.
std::uint32_t Requester::fenced_by_us(const Slot& slot) const noexcept {
  return slot.window_count - (slot.window_count > 0 && slot.invalidated ? 1u : 0u);
}

/// Ends the responder's access before the caller sees its memory again (RFC 8166, section 4.4.1).
void Requester::fence(Slot& slot) noexcept {
  SendStage& stage = link_->stage();
  const std::uint32_t count = fenced_by_us(slot);
  SLUICE_INVARIANT_DEBUG(count > 0 && slot.window_count <= slot.segment_count, request_state);
  if (by_regions_) return deregister(slot);
  if (!link_->has_room(count)) {
    if (slot.state != RequestState::AwaitingFenceRoom) transition(slot, RequestState::AwaitingFenceRoom);
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
  transition(slot, RequestState::AwaitingFence);
  ++posted_;
}

[[gnu::noinline]] void Requester::on_invalidated(std::uint16_t index) noexcept {
  SLUICE_INVARIANT_DEBUG(index < config_.requests && posted_ > 0, pool_balance);
  --posted_;
  Slot& slot = slots_[index];
  if (slot.after_fence == Slot::AfterFence::Resend) {
    transition(slot, RequestState::AwaitingResend);
    requeue(slot);
  } else {
    deliver(slot);
  }
  pump();
}

[[gnu::noinline]] void Requester::on_invalidation_failed(std::uint16_t index) noexcept {
  // The connection is being closed. detach() returns the memory once the queue pair is destroyed (V1-143).
  // Several invalidations of one call may fail.
  Slot& slot = slots_[index];
  if (slot.state == RequestState::AwaitingDetach) return;
  static_cast<void>(SLUICE_INVARIANT(posted_ > 0, pool_balance));
  --posted_;
  transition(slot, RequestState::AwaitingDetach);
}

/// Handles the completion of a call's Send, which also completes the preceding unsignaled Sends.
void Requester::on_call_sent(std::uint16_t index) noexcept {
  SLUICE_INVARIANT_DEBUG(index < config_.requests, table_index);
  sends_.complete(slots_[index].send_number, [this](std::uint16_t slot) { return end_send(slot); });
}

/// Handles the end of a slot's Send. Returns true if the call was waiting only for this Send.
bool Requester::end_send(std::uint16_t index) noexcept {
  Slot& slot = slots_[index];
  switch (slot.state) {
    case RequestState::AwaitingSendDone:
      static_cast<void>(
          SLUICE_INVARIANT(slot.parts_posted == 0, request_state));  // parts were posted before it
      recycle(slot);
      return true;
    case RequestState::AwaitingResend:
      requeue(slot);
      pump();
      return true;
    default:
      return false;
  }
}

void Requester::on_part_sent(std::uint16_t index) noexcept {
  if (!SLUICE_INVARIANT(posted_ > 0 && slots_[index].parts_posted > 0, pool_balance))
    return link_->close(CloseReason::InternalError);
  --posted_;
  --slots_[index].parts_posted;  // the Send of the last part completes later
}

void Requester::deliver(Slot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(!slot.link.linked(), list_membership);
  if (config_.check_exposed_memory && slot.window_count > 0 && slot.exposed_sum != sum_arguments(slot))
    ++counters().exposed_memory_changed;
  if (slot.bounce_memory != nullptr && slot.reply.status_ == CallStatus::Ok) return_bounced(slot);
  free_windows(slot);
  transition(slot, RequestState::AwaitingSendDone);
  if (slot.completion != nullptr) slot.completion(slot.context, slot.reply);
  if (slot.reply_memory != nullptr) release_reply(std::exchange(slot.reply_memory, nullptr));
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
  SLUICE_INVARIANT_DEBUG(free_windows_ + slot.window_count <= windows_.size(), pool_balance);
  while (slot.window_count > 0) windows_[free_windows_++] = slot.chunks->windows[--slot.window_count];
  if (slot.exposed_version != 0) return_to_pool(slot);
  slot.exposed_version = 0;
}

/// Resets everything that only some calls use.
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
