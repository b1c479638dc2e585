// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/requester/requester.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "dataplane/base/setup_error.h"
#include "dataplane/rpcrdma/connection.h"
#include "dataplane/rpcrdma/shared.h"

namespace sluice::rpcrdma {

const char* to_string(CallStatus status) noexcept {
  switch (status) {
    case CallStatus::Ok:
      return "ok";
    case CallStatus::ChunkError:
      return "RDMA_ERROR ERR_CHUNK";
    case CallStatus::Refused:
      return "RDMA2_ERROR";
    case CallStatus::VersionError:
      return "RDMA_ERROR ERR_VERS";
    case CallStatus::UnusableReply:
      return "unusable reply";
    case CallStatus::TooLarge:
      return "too large for the connection";
    case CallStatus::TimedOut:
      return "timed out";
    case CallStatus::Cancelled:
      return "cancelled";
  }
  return "?";
}

ItemResult Reply::item(std::size_t index, std::uint32_t count) const noexcept {
  using Where = ItemResult::Where;
  const bool offered = index < write_items_ && index < returned_.size();
  const std::uint64_t returned = offered ? returned_[index] : 0;
  if (version_2_) {
    // A result that its chunk could have taken may not come inline, and round-up is no part of it (V2-071,
    // V2-096).
    if (!offered || write_segments_[index] == 0) return {Where::Inline};
    return {returned == count ? Where::Placed : Where::Defect};
  }
  if (returned == 0) return {Where::Inline};
  const bool agrees = count <= returned && returned <= xdr::padded(count);
  return {agrees ? Where::Placed : Where::Defect};
}

Requester::Requester(Shared& shared, rdma::Device& device, const RequesterConfig& config)
    : shared_(shared),
      config_(config),
      xid_sequence_(std::random_device{}()),
      send_region_(device.allocate_memory(std::size_t{2} * config.inline_bytes * config.requests)),
      long_memory_(config.long_buffers == 0
                       ? rdma::BufferPool{}
                       : rdma::BufferPool(device.allocate_memory(std::size_t{config.long_buffers} *
                                                                 config.long_buffer_bytes),
                                          config.long_buffer_bytes)),
      bounce_memory_(config.bounce_buffers == 0
                         ? rdma::BufferPool{}
                         : rdma::BufferPool(device.allocate_memory(std::size_t{config.bounce_buffers} *
                                                                   config.bounce_buffer_bytes),
                                            config.bounce_buffer_bytes)),
      slots_(std::make_unique<Slot[]>(config.requests)) {
  if (!std::has_single_bit(config.requests) || config.requests > kMaxCredits)
    throw SetupError("The number of requests of a requester has to be a power of two of at most 1024.");
  if (!config.reverse || config.reverse_chunks)
    for (std::uint32_t i = 0; i < config.windows; ++i) windows_.push_back(device.allocate_window());
  free_windows_ = windows_.size();
  by_sequence_.reserve(config.requests);
  if (config.keep_xids) xids_.resize(config.requests);
  for (std::uint32_t i = 0; i < config.requests; ++i) {
    slots_[i].index = static_cast<std::uint16_t>(i);
    slots_[i].send_buffer = send_region_.bytes.data() + std::size_t{2} * config.inline_bytes * i;
    free_.push_back(slots_[i]);
  }
  free_count_ = config.requests;
}

Requester::~Requester() = default;

/// The only one that the call can be in.
Requester::Slot& Requester::slot_of(rpc::Xid xid) noexcept {
  if (!config_.keep_xids) return slots_[static_cast<std::uint32_t>(xid) & (config_.requests - 1)];
  for (std::uint32_t i = 0; i < config_.requests; ++i)
    if (xids_[i] == xid && slots_[i].state != Slot::State::Free && slots_[i].state != Slot::State::Draining)
      return slots_[i];
  return slots_[0];
}

Requester::Slot* Requester::find(rpc::Xid xid) noexcept {
  Slot& slot = slot_of(xid);
  return slot.xid == xid && slot.state == Slot::State::Outstanding ? &slot : nullptr;
}

bool Requester::is_outstanding(rpc::Xid xid) const noexcept {
  return const_cast<Requester*>(this)->find(xid) != nullptr;
}

// --- From the caller

std::optional<rpc::Xid> Requester::submit(const Request& request) noexcept {
  Slot* slot = free_.front();
  if (slot == nullptr) return std::nullopt;
  if (request.payload.size() > config_.inline_bytes &&
      request.payload.size() <= long_memory_.buffer_bytes() && long_memory_.available() == 0)
    return std::nullopt;
  if (needs_bounce(request) && bounce_memory_.available() == 0) return std::nullopt;
  free_.pop_front();
  --free_count_;
  slot->xid = static_cast<rpc::Xid>(++xid_sequence_ * config_.requests | slot->index);
  if (config_.keep_xids && request.payload.size() >= xdr::kUnit) {
    slot->xid = static_cast<rpc::Xid>(xdr::load_u32(request.payload.data()));
    xids_[slot->index] = slot->xid;
  }
  slot->sequence = ++sequence_;
  slot->completion = request.completion;
  slot->context = request.context;
  slot->deadline_ns = request.deadline_ns;
  const rpc::Xid xid = slot->xid;
  if (!copy_request(*slot, request)) {
    end_call(*slot, CallStatus::TooLarge);
    return xid;
  }
  slot->state = Slot::State::Waiting;
  waiting_.push_back(*slot);
  pump();
  return xid;
}

bool Requester::copy_request(Slot& slot, const Request& request) noexcept {
  slot.read_items = slot.write_items = slot.piece_count = 0;
  slot.max_reply_bytes = request.max_reply_bytes;
  slot.force_long = request.as_long_call;
  slot.force_reply_chunk = request.offer_reply_chunk;
  slot.repeatable = request.repeatable;
  slot.resent = slot.unreduced = slot.whole = slot.results_in_reply = slot.in_sequence = slot.cancelled =
      slot.answered = false;
  slot.continued_bytes = 0;
  slot.reply_chunk_least = 0;
  slot.max_segments = ~std::uint32_t{0};
  if (request.payload.size() < rpc::kMinCallBytes || request.reads.size() > kMaxReadItems ||
      request.writes.size() > kMaxWriteItems)
    return false;

  std::byte* payload = slot.send_buffer + config_.inline_bytes;
  if (request.payload.size() > config_.inline_bytes) {
    if (request.payload.size() > long_memory_.buffer_bytes()) return false;
    payload = slot.call_memory = long_memory_.acquire();
  }
  std::memcpy(payload, request.payload.data(), request.payload.size());
  xdr::store_u32(payload, static_cast<std::uint32_t>(slot.xid));
  slot.payload_bytes = static_cast<std::uint32_t>(request.payload.size());

  if (needs_bounce(request)) slot.bounce_memory = bounce_memory_.acquire();
  slot.bounce_used = 0;
  slot.callers_piece_count = 0;
  for (const ReadItem& item : request.reads) {
    slot.read_positions[slot.read_items] = item.position;
    const std::uint8_t before = slot.piece_count;
    const bool bounced = config_.single_segment_chunks && item.pieces.size() > 1;
    if (!(bounced ? bounce_argument(slot, item.pieces) : copy_pieces(slot, item.pieces))) return false;
    slot.read_pieces[slot.read_items++] = static_cast<std::uint8_t>(slot.piece_count - before);
  }
  for (const WriteItem& item : request.writes) {
    const std::uint8_t before = slot.piece_count;
    const std::uint64_t room = rdma::total_bytes(item.pieces);
    slot.write_offers[slot.write_items] = static_cast<std::uint32_t>(
        item.first_offer_bytes > 0 ? std::min<std::uint64_t>(item.first_offer_bytes, room) : room);
    slot.bounced[slot.write_items] = {};
    const bool bounced = result_needs_bounce(item.pieces);
    if (!(bounced ? bounce_result(slot, slot.write_items, item.pieces) : copy_pieces(slot, item.pieces)))
      return false;
    slot.write_pieces[slot.write_items++] = static_cast<std::uint8_t>(slot.piece_count - before);
  }
  return true;
}

bool Requester::copy_pieces(Slot& slot, std::span<const rdma::Sge> pieces) noexcept {
  if (slot.piece_count + pieces.size() > kMaxRequestPieces) return false;
  for (const rdma::Sge& piece : pieces) slot.pieces[slot.piece_count++] = piece;
  return true;
}

bool Requester::cancel(rpc::Xid xid) noexcept {
  Slot& slot = slot_of(xid);
  return slot.xid == xid && give_up(slot, CallStatus::Cancelled);
}

void Requester::cancel_all() noexcept {
  for (std::uint32_t i = 0; i < config_.requests; ++i) give_up(slots_[i], CallStatus::Cancelled);
}

bool Requester::call_back(std::span<const std::byte> call, service::Client::CallBackDone done,
                          void* context) noexcept {
  Slot* const slot = free_.front();
  if (slot == nullptr || call.size() > config_.inline_bytes) return false;
  slot->call_back_done = done;
  slot->call_back_context = context;
  const auto finished = [](void* which, const Reply& reply) noexcept {
    const Slot& ended = *static_cast<const Slot*>(which);
    ended.call_back_done(ended.call_back_context, reply.message());
  };
  return submit({.payload = call, .completion = finished, .context = slot}).has_value();
}

/// Ends a call before its reply. False when it has ended.
bool Requester::give_up(Slot& slot, CallStatus status) noexcept {
  switch (slot.state) {
    case Slot::State::Waiting:
      if (slot.answered) return false;
      if (slot.in_sequence) {
        // The responder waits for the other parts, and would take no other message.
        slot.cancelled = true;
        slot.cancelled_as = status;
        slot.deadline_ns = 0;
        return true;
      }
      waiting_.remove(slot);
      break;
    case Slot::State::Outstanding:
      ++abandoned_;
      break;
    case Slot::State::Resending:
      slot.cancelled = true;
      slot.cancelled_as = status;
      slot.deadline_ns = 0;
      return true;
    default:
      return false;
  }
  end_call(slot, status);
  return true;
}

void Requester::expire(std::uint64_t now_ns) noexcept {
  for (std::uint32_t i = 0; i < config_.requests; ++i)
    if (slots_[i].deadline_ns != 0 && slots_[i].deadline_ns <= now_ns)
      give_up(slots_[i], CallStatus::TimedOut);
}

void Requester::set_peer_ready(bool ready) noexcept {
  peer_ready_ = ready;
  pump();
}

// --- TX

bool Requester::version_2() const noexcept {
  return connection_ != nullptr && connection_->speaks_version_2();
}

bool Requester::may_send(const Slot& slot) noexcept {
  if (!connected() || !peer_ready_ || !connection_->is_open() || connection_->version() == 0) return false;
  if (version_2()) return connection_->may_speak({Connection::Speaker::Kind::Call, slot.index});
  const std::uint32_t in_flight = outstanding_ + abandoned_ + held_receives_;
  const std::uint32_t requested = connection_->config().credits_requested;
  // A zero grant stops new calls, but never the only one (V1-055).
  const std::uint32_t limit = std::min(requested, std::max<std::uint32_t>(granted_, 1));
  return in_flight < limit && (granted_ > 0 || in_flight == 0);
}

void Requester::pump() noexcept {
  while (Slot* slot = unfenced_.pop_front()) {
    fence(*slot);
    if (slot->fence_unposted) return;
  }
  while (Slot* slot = waiting_.front()) {
    if (!may_send(*slot)) {
      ++counters().waits_credit;
      return;
    }
    if (!send(*slot)) return;
  }
}

/// Sends the first of the waiting calls, or ends it if it can never be sent. False when it has to wait
/// longer.
bool Requester::send(Slot& slot) noexcept {
  if (slot.unreduced && !slot.whole && !unreduce(slot)) return false;
  const Shape shape = shape_of(slot);
  if (!shape.possible && slot.in_sequence) {
    // Its last part cannot be sent with limits that have shrunk meanwhile; the responder waits for it.
    connection_->close(CloseReason::TransportError);
    return false;
  }
  if (!shape.possible) {
    waiting_.pop_front();
    end_call(slot, CallStatus::TooLarge);
    return true;
  }
  if (version_2() && connection_->opening() == Connection::Opening::Call &&
      (shape.segments > 0 || shape.header_bytes + slot.payload_bytes > v2::kMaxFirstMessageBytes)) {
    connection_->greet_with_properties();  // V2-006, V2-007
    return false;
  }
  if (shape.continued && !stage_parts(slot, shape)) return false;
  SendStage& stage = connection_->stage();
  if (!connection_->stage_fits(shape.segments + 1)) {
    connection_->flush_stage();
    if (!connection_->stage_fits(shape.segments + 1)) {
      ++counters().waits_send_queue;
      connection_->note_waiting();
      return false;
    }
  }
  if (!take_resources(slot, shape)) return false;
  const SendStage::Mark mark = stage.mark();
  if (!stage.begin(rdma::SendOpcode::Send, connection_->wr_id(WrKind::CallSent, slot.index),
                   rdma::kSignaled) ||
      !stage_send(slot, shape)) {
    // Only pieces can be short in an empty stage, and a call has few.
    stage.rollback(mark);
    connection_->close(CloseReason::TransportError);
    return false;
  }
  waiting_.pop_front();
  slot.state = Slot::State::Outstanding;
  slot.send_posted = true;
  ++posted_;
  ++outstanding_;
  ++counters().calls_sent;
  // Also when the rest has fitted since the threshold was raised.
  if (slot.in_sequence) connection_->end_sequence();
  slot.in_sequence = false;
  slot.sent_no_msg = shape.long_call;
  if (slot.cancelled) {
    abandoned_ += slot.answered ? 0 : 1;
    end_call(slot, slot.cancelled_as);
  }
  return true;
}

/// Version 2: all of a continued call but its last part. False: it waits, as the first of all calls.
bool Requester::stage_parts(Slot& slot, const Shape& shape) noexcept {
  const rdma::Sge payload = payload_of(slot);
  const std::uint32_t before = slot.parts_posted;
  const bool done = connection_->stage_parts({.speaker = {Connection::Speaker::Kind::Call, slot.index},
                                              .xid = slot.xid,
                                              .payload = {&payload, 1},
                                              .payload_bytes = payload.length,
                                              .last_header_bytes = shape.header_bytes},
                                             slot.continued_bytes, slot.parts_posted);
  posted_ += slot.parts_posted - before;
  slot.in_sequence = slot.continued_bytes > 0;
  return done && connection_->may_speak({Connection::Speaker::Kind::Call, slot.index});
}

/// Memory for the Reply chunk, and windows over all chunk memory.
bool Requester::take_resources(Slot& slot, const Shape& shape) noexcept {
  slot.segment_count = 0;
  slot.invalidate = {};
  slot.invalidated = false;
  slot.reply_chunk_bytes = shape.reply_chunk_bytes;
  if (shape.segments == 0) return true;
  if (shape.reply_chunk_bytes > 0 && slot.reply_memory == nullptr) slot.reply_memory = long_memory_.acquire();
  if (shape.segments > free_windows_ || (shape.reply_chunk_bytes > 0 && slot.reply_memory == nullptr)) {
    ++counters().waits_reply_memory;
    connection_->note_waiting();
    return false;
  }
  // What an earlier reply left there must not pass for this call's.
  if (shape.reply_chunk_bytes > 0) xdr::store_u32(slot.reply_memory, ~static_cast<std::uint32_t>(slot.xid));
  const rdma::Sge payload = payload_of(slot);
  const rdma::Sge reply{slot.reply_memory, shape.reply_chunk_bytes, long_memory_.lkey()};
  connection_->forget_send_room();  // binding takes work requests past the stage
  bool exposed = !shape.long_call || expose(slot, {&payload, 1}, payload.length, rdma::kRemoteRead);
  std::span<const rdma::Sge> pieces{slot.pieces.data(), slot.piece_count};
  for (std::uint32_t i = 0; i < slot.read_items; ++i) {
    const auto item = pieces.first(slot.read_pieces[i]);
    exposed = exposed && (slot.unreduced || expose(slot, item, rdma::total_bytes(item), rdma::kRemoteRead));
    pieces = pieces.subspan(item.size());
  }
  slot.first_write_segment = slot.segment_count;
  for (std::uint32_t i = 0; i < slot.write_items; ++i) {
    const std::uint16_t before = slot.segment_count;
    const auto item = pieces.first(slot.write_pieces[i]);
    const std::uint64_t offered = version_2() ? slot.write_offers[i] : rdma::total_bytes(item);
    exposed = exposed && (slot.results_in_reply || expose(slot, item, offered, rdma::kRemoteWrite));
    slot.write_segments[i] = static_cast<std::uint8_t>(slot.segment_count - before);
    pieces = pieces.subspan(item.size());
  }
  exposed = exposed &&
            (shape.reply_chunk_bytes == 0 || expose(slot, {&reply, 1}, reply.length, rdma::kRemoteWrite));
  if (config_.check_exposed_memory) slot.exposed_sum = sum_arguments(slot);
  if (!exposed) {
    connection_->close(CloseReason::InvalidationError);
    return false;
  }
  if (version_2() && config_.remote_invalidation && shared_.remote_invalidation)
    slot.invalidate = slot.segments[0].handle;
  return true;
}

/// Binds a window over each segment of the first `bytes`: read access for Read chunks, write access for Write
/// and Reply chunks (V1-147).
bool Requester::expose(Slot& slot, std::span<const rdma::Sge> pieces, std::uint64_t bytes,
                       rdma::AccessFlags access) noexcept {
  for (rdma::Sge piece : pieces) {
    piece.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(piece.length, bytes));
    bytes -= piece.length;
    while (piece.length > 0) {
      const std::uint32_t length = std::min(piece.length, max_segment_bytes());
      const rdma::MemoryWindow window = windows_[--free_windows_];
      slot.windows[slot.window_count++] = window;
      const auto rkey =
          connection_->queue_pair().bind_window(window, {piece.address, length}, piece.lkey, access);
      if (!rkey) return false;
      slot.segments[slot.segment_count++] = {*rkey, length, reinterpret_cast<std::uintptr_t>(piece.address)};
      piece.address += length;
      piece.length -= length;
    }
  }
  return true;
}

bool Requester::stage_send(Slot& slot, const Shape& shape) noexcept {
  if (shape.segments == 0 && slot.write_items == 0) return stage_send(slot, shape, {});
  std::array<ReadSegment, kMaxRequestSegments> reads;
  std::array<std::span<const Segment>, kMaxWriteItems> writes;
  std::size_t read_count = 0;
  std::span<const Segment> segments{slot.segments.data(), slot.segment_count};
  std::span<const rdma::Sge> pieces{slot.pieces.data(), slot.piece_count};

  const auto take = [&](std::uint32_t count) {
    const auto taken = segments.first(count);
    segments = segments.subspan(count);
    return taken;
  };
  if (shape.long_call)
    for (const Segment& segment : take(segments_of(std::uint64_t{slot.payload_bytes})))
      reads[read_count++] = {Position{0}, segment};
  for (std::uint32_t i = 0; i < slot.read_items && !slot.unreduced; ++i) {
    for (const Segment& segment : take(segments_of(pieces.first(slot.read_pieces[i]))))
      reads[read_count++] = {slot.read_positions[i], segment};
    pieces = pieces.subspan(slot.read_pieces[i]);
  }
  const std::size_t write_count = slot.results_in_reply ? 0 : slot.write_items;
  if (shape.segments == 0) std::fill_n(slot.write_segments.begin(), slot.write_items, std::uint8_t{0});
  for (std::size_t i = 0; i < write_count; ++i) writes[i] = take(slot.write_segments[i]);
  CallChunks chunks{{reads.data(), read_count}, {writes.data(), write_count}, std::nullopt};
  if (shape.reply_chunk_bytes > 0) chunks.reply = segments;
  return stage_send(slot, shape, chunks);
}

bool Requester::stage_send(Slot& slot, const Shape& shape, const CallChunks& chunks) noexcept {
  std::byte* header_at = slot.send_buffer + config_.inline_bytes - shape.header_bytes;
  xdr::Writer header({header_at, shape.header_bytes});
  v2::CreditWord credit;
  if (version_2()) {
    credit = connection_->offer();
    v2::encode_call(header, {.xid = slot.xid, .credit = credit},
                    shape.long_call ? v2::HeaderType::NoMsg : v2::HeaderType::Msg, slot.invalidate, chunks);
  } else {
    v1::encode_call(header, slot.xid, static_cast<Credits>(connection_->config().credits_requested),
                    shape.long_call ? v1::Procedure::NoMsg : v1::Procedure::Msg, chunks);
  }
  SendStage& stage = connection_->stage();
  const rdma::Sge payload = payload_of(slot);
  if (!header.ok() ||
      !stage.append({header_at, static_cast<std::uint32_t>(shape.header_bytes), send_region_.lkey}) ||
      (!shape.long_call && !connection_->append_payload({&payload, 1}, slot.continued_bytes)))
    return false;
  if (version_2()) {
    connection_->count_send(credit);
    if (connection_->opening() == Connection::Opening::Call) connection_->greeted();
  }
  counters().inline_bytes_sent +=
      shape.header_bytes + (shape.long_call ? 0 : payload.length - slot.continued_bytes);
  return true;
}

// --- Ends

void Requester::set_outcome(Slot& slot, CallStatus status) noexcept {
  slot.reply.status_ = status;
  slot.reply.xid_ = slot.xid;
  slot.reply.write_items_ = slot.write_items;
  slot.reply.returned_ = {slot.returned.data(), slot.write_items};
  slot.reply.write_segments_ = {slot.write_segments.data(), slot.write_items};
  slot.reply.version_2_ = version_2();
  if (status != CallStatus::Ok) slot.reply.message_ = {};
}

void Requester::end_call(Slot& slot, CallStatus status) noexcept {
  if (slot.state == Slot::State::Outstanding) --outstanding_;
  set_outcome(slot, status);
  slot.state = Slot::State::Fencing;
  if (fenced_by_us(slot) == 0) return deliver(slot);
  fence(slot);
}

/// Windows that the responder has not invalidated for us.
std::uint32_t Requester::fenced_by_us(const Slot& slot) const noexcept {
  return slot.window_count - (slot.window_count > 0 && slot.invalidated ? 1u : 0u);
}

/// Ends the responder's access before the caller sees its memory again (RFC 8166, section 4.4.1).
void Requester::fence(Slot& slot) noexcept {
  SendStage& stage = connection_->stage();
  const std::uint32_t count = fenced_by_us(slot);
  slot.fencing = true;
  if (!connection_->stage_fits(count)) connection_->flush_stage();
  slot.fence_unposted = !connection_->stage_fits(count);
  if (slot.fence_unposted) {
    unfenced_.push_front(slot);
    connection_->note_waiting();
    return;
  }
  for (std::uint32_t i = 0; i < slot.window_count; ++i) {
    if (slot.invalidated && slot.segments[i].handle == slot.invalidate) continue;
    stage.begin(rdma::SendOpcode::LocalInvalidate, connection_->wr_id(WrKind::Invalidated, slot.index), 0);
    stage.last().rkey = slot.segments[i].handle;
  }
  stage.last().flags = rdma::kSignaled;
  ++posted_;
}

void Requester::on_invalidated(std::uint16_t index) noexcept {
  --posted_;
  Slot& slot = slots_[index];
  slot.fencing = false;
  if (slot.state == Slot::State::Resending)
    requeue(slot);
  else
    deliver(slot);
  pump();
}

void Requester::on_invalidation_failed(std::uint16_t index) noexcept {
  // The connection is being closed. The memory is handed back when its queue pair is gone (V1-143): detach().
  Slot& slot = slots_[index];
  if (!slot.fence_failed) --posted_;
  slot.fence_failed = true;
}

void Requester::on_call_sent(std::uint16_t index) noexcept {
  --posted_;
  Slot& slot = slots_[index];
  slot.send_posted = false;
  if (slot.state == Slot::State::Draining && slot.parts_posted == 0) recycle(slot);
  if (slot.state == Slot::State::Resending) {
    requeue(slot);
    pump();
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
  slot.state = Slot::State::Draining;
  if (slot.completion != nullptr) slot.completion(slot.context, slot.reply);
  if (slot.holds_receive) {
    slot.holds_receive = false;
    --held_receives_;
    if (connection_ != nullptr && connection_->is_open()) connection_->repost(slot.receive);
  }
  if (slot.reply_memory != nullptr) {
    long_memory_.release(slot.reply_memory);
    slot.reply_memory = nullptr;
  }
  if (slot.assembly != nullptr) shared_.assembly_memory.release(std::exchange(slot.assembly, nullptr));
  if (!slot.send_posted) recycle(slot);
}

void Requester::free_windows(Slot& slot) noexcept {
  while (slot.window_count > 0) windows_[free_windows_++] = slot.windows[--slot.window_count];
}

void Requester::recycle(Slot& slot) noexcept {
  if (slot.call_memory != nullptr) {
    long_memory_.release(slot.call_memory);
    slot.call_memory = nullptr;
  }
  if (slot.bounce_memory != nullptr) {
    bounce_memory_.release(slot.bounce_memory);
    slot.bounce_memory = nullptr;
  }
  slot.state = Slot::State::Free;
  free_.push_front(slot);
  ++free_count_;
}

// --- Connections

Counters& Requester::counters() noexcept {
  return connection_ != nullptr ? connection_->counters() : shared_.counters[0];
}

void Requester::attach(Connection& connection) noexcept {
  connection_ = &connection;
  established_ = false;
  granted_ = 1;
  no_msg_refused_ = false;
  ++attachments_;
}

void Requester::on_established() noexcept {
  established_ = true;
  pump();
}

void Requester::detach() noexcept {
  connection_ = nullptr;
  established_ = false;
  granted_ = 1;
  outstanding_ = abandoned_ = 0;
  unfenced_.clear();
  by_sequence_.clear();
  for (std::uint32_t i = 0; i < config_.requests; ++i) {
    Slot& slot = slots_[i];
    slot.send_posted = slot.fence_unposted = slot.fence_failed = slot.fencing = slot.in_sequence = false;
    slot.parts_posted = 0;
    slot.continued_bytes = 0;
    if (slot.state == Slot::State::Waiting) free_windows(slot);
    if (slot.state == Slot::State::Waiting && slot.cancelled) {
      waiting_.remove(slot);
      end_call(slot, slot.cancelled_as);
    } else if (slot.state == Slot::State::Outstanding || slot.state == Slot::State::Resending) {
      free_windows(slot);
      slot.state = Slot::State::Waiting;
      by_sequence_.push_back(&slot);
    } else if (slot.state == Slot::State::Fencing) {
      deliver(slot);
    } else if (slot.state == Slot::State::Draining) {
      recycle(slot);
    }
  }
  std::sort(by_sequence_.begin(), by_sequence_.end(),
            [](const Slot* a, const Slot* b) { return a->sequence > b->sequence; });
  for (Slot* slot : by_sequence_) waiting_.push_front(*slot);
}

}  // namespace sluice::rpcrdma
