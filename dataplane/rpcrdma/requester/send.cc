// SPDX-License-Identifier: Apache-2.0
//
// TX half of the requester: plain calls with their replies, and waiting calls from the queue to their Send.
#include <cstring>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/requester/steps.h"

namespace sluice::rpcrdma {
using RequestState = RequestSlot::State;

// --- Plain calls
//
// Plain calls have no chunks, are sent immediately, and are answered in one Send. One function sends such a
// call and another delivers its reply. They touch only the fields of the slot that such a call uses.

/// Returns true if no local condition prevents sending a call now. The peer's credits are not checked.
[[gnu::always_inline]] inline bool Requester::is_plain_and_ready(const Request& request) const noexcept {
  const std::size_t bytes = request.payload.size();
  return request.reads.size() + request.writes.size() == 0 && !request.as_long_call &&
         !request.offer_reply_chunk && plain_calls_ && !free_.empty() && connected() && peer_ready_ &&
         waiting_.empty() && unfenced_.empty() && bytes >= rpc::kMinCallBytes &&
         bytes <= config_.inline_bytes && link_->is_open();
}

/// Returns true if the call is plain in the peer's version and both a credit and room in the send queue are
/// available.
template <std::uint32_t kVersion>
[[gnu::always_inline]] inline bool Requester::sends_at_once(const Request& request) noexcept {
  if (!fits_plain<kVersion>(request.payload.size(), request.max_reply_bytes)) return false;
  const bool may_send = kVersion == v2::kVersion ? session_->may_call_now() : has_credit(request.urgent);
  return may_send && link_->has_room_for_one();
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
  step<RequestState::Free, RequestState::AwaitingTurn>(slot);
  stage_plain_send(slot, index, kVersion == v2::kVersion);
  step<RequestState::AwaitingTurn, RequestState::AwaitingReply>(slot);
  set_sent(slot, index);
  return SubmittedXid(slot.xid);
}

/// Initializes a free slot. The fields that only some calls use have their defaults.
[[gnu::always_inline]] inline RequestSlot& Requester::take_slot(const Request& request,
                                                                std::uint16_t index) noexcept {
  Slot& slot = slots_[index];
  SLUICE_INVARIANT_DEBUG(slot.index == index && slot.state == RequestState::Free, request_state);
  SLUICE_INVARIANT_DEBUG(slot.receive == kNoReceive && !slot.link.linked(), list_membership);
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

/// Returns how many long buffers waiting payloads must leave to the first waiting call, so that it can always
/// be sent. It may need one for its Reply chunk and one for arguments that return to its payload. A requester
/// with two buffers reserves one.
std::uint32_t Requester::long_buffers_for_first() const noexcept {
  return smaller_of(config_.long_buffers, 3u) - smaller_of(config_.long_buffers, 1u);
}

[[gnu::noinline]] SubmittedXid Requester::submit_other(const Request& request) noexcept {
  if (free_.empty()) return {};
  if (request.payload.size() > config_.inline_bytes &&
      request.payload.size() <= long_memory_.buffer_bytes() &&
      long_memory_.available() <= long_buffers_for_first())
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
  transition(slot, RequestState::AwaitingTurn);
  // No call may be sent between the parts of a continued call.
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
  SLUICE_INVARIANT_DEBUG(outstanding_ > 0 && slot.plain, request_state);
  --outstanding_;
  ++held_receives_;
  Reply& reply = plain_reply_;  // its status is Ok
  reply.xid_ = slot.xid;
  reply.slot_ = slot.index;
  reply.message_ = message.subspan(version_2 ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes);
  step<RequestState::AwaitingReply, RequestState::AwaitingSendDone>(slot);
  if (slot.completion != nullptr) slot.completion(slot.context, reply);
  end_delivery(slot, buffer);
  pump();
}

template void Requester::take_plain_reply<v1::kVersion>(Slot&, std::uint16_t,
                                                        std::span<const std::byte>) noexcept;
template void Requester::take_plain_reply<v2::kVersion>(Slot&, std::uint16_t,
                                                        std::span<const std::byte>) noexcept;

// --- Waiting calls

/// Counts a staged call that uses a credit, with this credit word.
inline void Requester::count_send(v2::CreditWord credit) noexcept {
  session_->count_send(credit);
  session_->on_call_staged();
}

bool Requester::may_send(const Slot& slot) noexcept {
  if (!connected() || !peer_ready_ || !link_->is_open() || link_->version() == 0) return false;
  if (link_->rules().credit_per_message) return session_->may_send_now({v2::Sender::Kind::Call, slot.index});
  return has_credit(slot.urgent);
}

void Requester::send_waiting() noexcept {
  while (Slot* slot = unfenced_.pop_front()) {
    fence(*slot);
    if (slot->state == RequestState::AwaitingFenceRoom) return;
  }
  while (Slot* slot = waiting_.front()) {
    if (!may_send(*slot)) {
      ++counters().waits_credit;
      return;
    }
    if (!send(*slot)) return;
  }
}

/// Sends the first waiting call, or ends it if it can never be sent. Returns false if it has to wait.
bool Requester::send(Slot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(waiting_.front() == &slot, list_membership);
  if (slot.arguments == Slot::Arguments::ToBeUnreduced && !unreduce(slot)) return false;
  const Shape shape = shape_of(slot);
  if (!shape.possible && slot.in_parts()) {
    // The last part does not fit limits that have shrunk, and the responder waits for it.
    link_->close(CloseReason::TransportError);
    return false;
  }
  if (!shape.possible) {
    waiting_.pop_front();
    end_call(slot, CallStatus::TooLarge);
    return true;
  }
  if (shape.version_2 && session_->opening() == v2::Opening::AwaitingCall &&
      (shape.segments > 0 || shape.header_bytes + slot.payload_bytes > v2::kMaxFirstMessageBytes)) {
    session_->greet_with_properties();  // V2-006, V2-007
    return false;
  }
  if (by_regions_ && shape.segments > 0) {
    if (slot.exposed_version == 0 && !register_segments(slot, shape)) return false;
    if (slot.state == RequestState::AwaitingRegions) return true;
    if (slot.exposed_version != link_->version()) return end_outdated(slot);
  }
  if (shape.continued && !stage_parts(slot, shape)) return false;
  SendStage& stage = link_->stage();
  if (!link_->has_room(shape.segments + 1)) {
    link_->wait_for_send_room();
    return false;
  }
  if (slot.exposed_version == 0 && !take_resources(slot, shape)) return false;
  if (shape.plain && link_->has_room_for_one()) {
    stage_plain_send(slot, slot.index, shape.version_2);
    if (shape.version_2) session_->on_call_staged();
  } else {
    const SendStage::Mark mark = stage.mark();
    if (!stage_send(slot, shape)) {
      // An empty stage can only be short of pieces, and a call has few.
      stage.rollback(mark);
      link_->close(CloseReason::TransportError);
      return false;
    }
  }
  waiting_.remove(slot);
  on_sent(slot, shape);
  return true;
}

void Requester::on_sent(Slot& slot, const Shape& shape) noexcept {
  SLUICE_INVARIANT_DEBUG(!slot.link.linked(), list_membership);
  const bool in_parts = slot.in_parts();
  const bool answered = slot.state == RequestState::AwaitingLastPart;
  transition(slot, RequestState::AwaitingReply);
  set_sent(slot, slot.index);
  slot.sent_no_msg = shape.long_call;
  // The sequence also ends if the rest fits one Send because the threshold was raised.
  if (in_parts) session_->end_continued_message();
  if (!slot.ends_as) return;
  abandoned_ += answered ? 0 : 1;
  end_call(slot, *slot.ends_as);
}

/// Stages all parts of a continued call but the last, in version 2. Returns false if it has to wait as the
/// first of all calls.
bool Requester::stage_parts(Slot& slot, const Shape& shape) noexcept {
  const rdma::Sge payload = payload_of(slot);
  const std::uint32_t before = slot.parts_posted;
  SLUICE_INVARIANT_DEBUG(slot.continued_bytes <= payload.length, buffer_bounds);
  const bool done = session_->stage_parts({.sender = {v2::Sender::Kind::Call, slot.index},
                                           .xid = slot.xid,
                                           .payload = {&payload, 1},
                                           .payload_bytes = payload.length,
                                           .last_header_bytes = shape.header_bytes},
                                          slot.continued_bytes, slot.parts_posted);
  posted_ += slot.parts_posted - before;
  if (slot.continued_bytes > 0 && slot.state == RequestState::AwaitingTurn)
    transition(slot, RequestState::AwaitingNextPart);
  return done && session_->may_send_now({v2::Sender::Kind::Call, slot.index});
}

/// Acquires memory for a Reply chunk, unless the call has enough from an earlier attempt. Returns false if
/// there is none.
bool Requester::take_reply_memory(Slot& slot, std::uint32_t bytes) noexcept {
  if (slot.reply_memory != nullptr && bytes > reply_pool(slot.reply_memory).buffer_bytes())
    release_reply(std::exchange(slot.reply_memory, nullptr));
  if (slot.reply_memory == nullptr && bytes <= short_replies_.buffer_bytes())
    slot.reply_memory = short_replies_.acquire();
  if (slot.reply_memory == nullptr) slot.reply_memory = long_memory_.acquire();
  return slot.reply_memory != nullptr;
}

/// Acquires memory for the Reply chunk and windows over all chunk memory.
bool Requester::take_resources(Slot& slot, const Shape& shape) noexcept {
  slot.segment_count = 0;
  SLUICE_INVARIANT_DEBUG(slot.window_count == 0, pool_balance);
  slot.invalidate = {};
  slot.invalidated = false;
  slot.reply_chunk_bytes = shape.reply_chunk_bytes;
  if (shape.segments == 0) return true;
  // A queue pair in Error binds no window. Its flushed completions close the connection for the reason that
  // they state, and the call is sent on the next one.
  if (link_->queue_pair().state() == rdma::QueuePair::State::Error) return false;
  const bool has_reply_memory =
      shape.reply_chunk_bytes == 0 || take_reply_memory(slot, shape.reply_chunk_bytes);
  if (shape.segments > free_windows_ || !has_reply_memory) {
    ++counters().waits_reply_memory;
    link_->retry_at_turn_end();
    return false;
  }
  // The content of an earlier reply must not be mistaken for the reply to this call.
  if (shape.reply_chunk_bytes > 0) xdr::store_u32(slot.reply_memory, ~static_cast<std::uint32_t>(slot.xid));
  const rdma::Sge payload = payload_of(slot);
  const rdma::Sge reply{slot.reply_memory, shape.reply_chunk_bytes, reply_pool(slot.reply_memory).lkey()};
  link_->forget_send_room();  // binding posts work requests outside the stage
  bool exposed = !shape.long_call || expose(slot, {&payload, 1}, payload.length, rdma::kRemoteRead);
  std::span<const rdma::Sge> pieces{slot.chunks->pieces.data(), slot.piece_count};
  for (std::uint32_t i = 0; i < slot.read_items; ++i) {
    const auto item = pieces.first(slot.chunks->read_pieces[i]);
    exposed = exposed && (slot.arguments != Slot::Arguments::InChunks ||
                          expose(slot, item, rdma::total_bytes(item), rdma::kRemoteRead));
    pieces = pieces.subspan(item.size());
  }
  slot.first_write_segment = slot.segment_count;
  const VersionRules& rules = link_->rules();
  for (std::uint32_t i = 0; i < slot.write_items; ++i) {
    const std::uint16_t before = slot.segment_count;
    const auto item = pieces.first(slot.chunks->write_pieces[i]);
    const std::uint64_t offered = rules.grows_chunks ? slot.chunks->write_offers[i] : rdma::total_bytes(item);
    exposed = exposed && (slot.results_in_reply || expose(slot, item, offered, rdma::kRemoteWrite));
    slot.chunks->write_segments[i] = static_cast<std::uint8_t>(slot.segment_count - before);
    pieces = pieces.subspan(item.size());
  }
  exposed = exposed &&
            (shape.reply_chunk_bytes == 0 || expose(slot, {&reply, 1}, reply.length, rdma::kRemoteWrite));
  if (config_.check_exposed_memory) slot.exposed_sum = sum_arguments(slot);
  if (!exposed) {
    const bool broken = link_->queue_pair().is_broken();
    link_->close(broken ? CloseReason::TransportError : CloseReason::InvalidationError);
    return false;
  }
  if (rules.names_handle && config_.remote_invalidation && context_.remote_invalidation && !by_regions_)
    slot.invalidate = slot.chunks->segments[0].handle;
  return true;
}

bool Requester::stage_send(Slot& slot, const Shape& shape) noexcept {
  if (!link_->stage().begin(rdma::SendOpcode::Send, link_->wr_id(WrKind::CallSent, slot.index),
                            rdma::kSignaled))
    return false;
  if (shape.segments == 0 && slot.write_items == 0) return stage_send(slot, shape, {});
  FixedVector<ReadSegment, kMaxRequestSegments> reads;
  FixedVector<std::span<const Segment>, kMaxWriteItems> writes;
  std::span<const Segment> segments{slot.chunks->segments.data(), slot.segment_count};
  std::span<const rdma::Sge> pieces{slot.chunks->pieces.data(), slot.piece_count};

  const auto take = [&](std::uint32_t count) {
    const auto taken = segments.first(count);
    segments = segments.subspan(count);
    return taken;
  };
  if (shape.long_call)
    for (const Segment& segment : take(segments_of(std::uint64_t{slot.payload_bytes})))
      reads.push_back({Position{0}, segment});
  for (std::uint32_t i = 0; i < slot.read_items && slot.arguments == Slot::Arguments::InChunks; ++i) {
    for (const Segment& segment : take(segments_of(pieces.first(slot.chunks->read_pieces[i]))))
      reads.push_back({slot.chunks->read_positions[i], segment});
    pieces = pieces.subspan(slot.chunks->read_pieces[i]);
  }
  const std::size_t write_count = slot.results_in_reply ? 0 : slot.write_items;
  if (shape.segments == 0)
    for (std::uint32_t item = 0; item < slot.write_items; ++item) slot.chunks->write_segments[item] = 0;
  for (std::size_t i = 0; i < write_count; ++i) writes.push_back(take(slot.chunks->write_segments[i]));
  CallChunks chunks{reads.values(), writes.values(), std::nullopt};
  if (shape.reply_chunk_bytes > 0) chunks.reply = segments;
  return stage_send(slot, shape, chunks);
}

bool Requester::stage_send(Slot& slot, const Shape& shape, const CallChunks& chunks) noexcept {
  std::byte* header_at = send_buffer(slot.index) + config_.inline_bytes - shape.header_bytes;
  xdr::Writer header({header_at, shape.header_bytes});
  SLUICE_INVARIANT_DEBUG(shape.header_bytes <= config_.inline_bytes, buffer_bounds);
  const VersionRules& rules = link_->rules();
  v2::CreditWord credit;
  if (rules.credit_per_message) credit = session_->offer();
  rules.encode_call(header,
                    {.xid = slot.xid,
                     .credits = rules.credit_per_message ? credit.word() : link_->config().credits_requested,
                     .no_msg = shape.long_call,
                     .invalidate = slot.invalidate},
                    chunks);
  SendStage& stage = link_->stage();
  const rdma::Sge payload = payload_of(slot);
  if (!header.ok() ||
      !stage.append({header_at, static_cast<std::uint32_t>(shape.header_bytes), send_region_.lkey}) ||
      (!shape.long_call && !link_->append_payload({&payload, 1}, slot.continued_bytes)))
    return false;
  if (rules.credit_per_message) count_send(credit);
  link_->count_sent(&Counters::inline_bytes_sent,
                    shape.header_bytes + (shape.long_call ? 0 : payload.length - slot.continued_bytes));
  return true;
}

}  // namespace sluice::rpcrdma
