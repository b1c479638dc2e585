// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/responder/responder.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/rpcrdma/connection.h"
#include "dataplane/rpcrdma/shared.h"

namespace sluice::rpcrdma {

using State = CallSlot::State;

Responder::Responder(Shared& shared, Connection& connection, std::uint32_t max_slots,
                     std::uint32_t max_receives, rdma::MemoryRegion reply_region,
                     std::uint32_t reply_buffer_bytes)
    : shared_(shared),
      connection_(connection),
      reply_lkey_(reply_region.lkey),
      slots_(std::make_unique<CallSlot[]>(max_slots)),
      max_slots_(max_slots),
      pending_(std::size_t{2} * max_receives) {
  for (std::uint32_t i = 0; i < max_slots; ++i) {
    CallSlot& slot = slots_[i];
    slot.responder_ = this;
    slot.index_ = static_cast<std::uint16_t>(i);
    slot.reply_buffer_ = reply_region.bytes.subspan(std::size_t{i} * reply_buffer_bytes, reply_buffer_bytes);
    slot.set_host(*this);
  }
  shared_.slots_in_state[static_cast<std::size_t>(State::Free)] += max_slots;
}

void Responder::set_state(CallSlot& slot, State state) noexcept {
  if (traced_) note_state(slot);
  --shared_.slots_in_state[static_cast<std::size_t>(slot.state_)];
  ++shared_.slots_in_state[static_cast<std::size_t>(state)];
  slot.state_ = state;
}

void Responder::open(std::uint32_t grant) noexcept {
  calls_ = peak_busy_ = 0;
  traced_ = false;
  open_slots_ = std::min(grant, max_slots_);
  grant_ = std::max<std::uint32_t>(open_slots_, 1);
  free_.clear();
  for (std::uint32_t i = 0; i < open_slots_; ++i)
    if (slots_[i].state_ == State::Free) free_.push_back(slots_[i]);
}

void Responder::set_grant(std::uint32_t grant) noexcept {
  grant_ = std::clamp<std::uint32_t>(grant, 1, std::max<std::uint32_t>(open_slots_, 1));
}

void Responder::on_call(const ReceivedMessage& message, const Refusal& refusal) noexcept {
  const bool held = connection_.holds_calls();
  const bool first = pending_.empty() || serving_pending_ || (held && refusal);
  if (first && !free_.empty() && (!held || refusal)) return begin(message, refusal);
  // The order of calls is kept.
  if (replying_ == 0 && !connection_.speaks_version_2()) ++connection_.counters().credit_overruns;
  ++connection_.counters().waits_call_slot;
  if (pending_.push_back({message, refusal})) return;
  if (message.assembly != nullptr) shared_.assembly_memory.release(message.assembly);
  connection_.close(CloseReason::TransportError);
}

void Responder::begin(const ReceivedMessage& message, const Refusal& refusal) noexcept {
  CallSlot& slot = *free_.pop_front();
  ++busy_;
  peak_busy_ = std::max(peak_busy_, busy_);
  ++calls_;
  slot.begun_ns_ = shared_.call_times.turn_ns();
  slot.procedure_ = segment::kOtherProcedure;
  slot.header_.program = 0;
  slot.message_ = message;
  slot.peer_ = connection_.peer();
  slot.client_ = &connection_;
  slot.offered_results_ = message.header.chunks.writes.size();
  slot.refusal_ = refusal;
  set_state(slot, State::Received);
  slot.holds_receive_ = message.buffer != kNoReceive;
  slot.completed_ = slot.with_service_ = slot.into_sink_ = slot.impossible_ = false;
  slot.auth_error_ = rpc::AuthStat::Ok;
  slot.placed_bytes_ = 0;
  slot.results_offset_ = rpc::kMinReplyBytes;
  slot.piece_count_ = slot.item_count_ = 0;
  slot.payload_ = nullptr;
  slot.continued_bytes_ = 0;
  ++connection_.counters().calls_received;
  advance(slot);
}

void Responder::advance(CallSlot& slot) noexcept {
  slot.advancing_ = true;
  State before;
  do {
    before = slot.state_;
    if (slot.link.linked() || !connection_.is_open()) break;
    switch (before) {
      case State::Received:
        check_call(slot);
        break;
      case State::AwaitingCallMemory:
        assemble_inline_parts(slot);
        break;
      case State::AwaitingReadRoom:
        post_reads(slot);
        break;
      case State::AwaitingReplyMemory:
        run_service(slot);
        break;
      case State::Pushing:
        push_reply(slot);
        break;
      case State::Free:
      case State::Pulling:
      case State::Executing:
      case State::Replying:
        break;
    }
  } while (slot.state_ != before);
  slot.advancing_ = false;
  if (!connection_.is_open()) abandon(slot);
}

/// Frees a slot of a connection that has ended, unless the driver or the service still has it.
void Responder::abandon(CallSlot& slot) noexcept {
  switch (slot.state_) {
    case State::AwaitingCallMemory:
    case State::AwaitingReplyMemory:
    case State::Received:
    case State::AwaitingReadRoom:
    case State::Pushing:
      break;
    case State::Free:
    case State::Pulling:
    case State::Executing:
    case State::Replying:
      return;
  }
  CallSlotQueue::unlink(slot);
  if (slot.parts_posted_ == 0) finish(slot);  // else with the last of them
}

// --- RX: from the Receive buffer to the service

/// Version 1 answers every error but Vers with ERR_CHUNK.
void Responder::refuse(CallSlot& slot, std::uint64_t& counter, const v2::Error& error) noexcept {
  ++counter;
  slot.refusal_ = error;
  set_state(slot, State::Pushing);
}

/// Steps 9 and 11 of the order of checks of version 2, as far as they go beyond version 1.
bool Responder::within_version_2(CallSlot& slot) noexcept {
  Counters& counters = connection_.counters();
  const ChunkLists& chunks = slot.message_.header.chunks;
  const Version2Config& limits = connection_.config().version2;
  const auto wraps = [](const Segment& segment) { return segment.offset + segment.length < segment.offset; };
  std::uint32_t positions = 0;
  Position last{0};
  for (std::uint32_t i = 0; i < chunks.reads.size(); ++i) {
    const ReadSegment read = chunks.reads[i];
    if (read.position < last || wraps(read.target)) return refuse(slot, counters.bad_position), false;
    if (read.position != last) ++positions;
    last = read.position;
  }
  std::uint32_t segments = chunks.reads.size() + chunks.writes.total_segments();
  for (const WriteChunk chunk : chunks.writes)
    for (std::uint32_t i = 0; i < chunk.size(); ++i)
      if (wraps(chunk[i])) return refuse(slot, counters.bad_chunk_lists), false;
  if (chunks.reply) {
    segments += chunks.reply->size();
    for (std::uint32_t i = 0; i < chunks.reply->size(); ++i)
      if (wraps((*chunks.reply)[i])) return refuse(slot, counters.bad_chunk_lists), false;
  }
  const std::uint32_t max_read_chunks = std::min(limits.max_read_chunks, kMaxReadPositions);
  if (positions > max_read_chunks)
    return refuse(slot, counters.too_many_chunks,
                  {.code = v2::ErrorCode::ReadChunks, .maximum = max_read_chunks}),
           false;
  if (chunks.writes.size() > limits.max_write_chunks) {
    v2::Error error{.code = v2::ErrorCode::WriteChunks, .maximum = limits.max_write_chunks};
    if (limits.max_write_chunks == 0) error = {.code = v2::ErrorCode::ReplyResource};
    return refuse(slot, counters.too_many_chunks, error), false;
  }
  const std::uint32_t max_segments = connection_.own_parameters().max_segments;
  if (segments > max_segments)
    return refuse(slot, counters.too_many_segments,
                  {.code = v2::ErrorCode::Segments, .maximum = max_segments}),
           false;
  return true;
}

void Responder::check_call(CallSlot& slot) noexcept {
  Counters& counters = connection_.counters();
  const MessageHeader& header = slot.message_.header;
  if (slot.refusal_) {
    set_state(slot, State::Pushing);
    return;
  }
  const bool has_chunks = !header.chunks.empty();
  if (has_chunks && shared_.failed_transfers.take(slot.peer_, header.fixed.xid))
    return refuse(slot, counters.failed_transfer_refused, kRefuseSystem);
  if (has_chunks && connection_.speaks_version_2() && !within_version_2(slot)) return;

  const auto payload = header.no_msg ? std::span<const std::byte>{} : slot.message_.payload();
  if (!header.no_msg) {
    if (payload.size() < xdr::kUnit) return refuse(slot, counters.no_payload);
    if (static_cast<rpc::Xid>(xdr::load_u32(payload.data())) != header.fixed.xid)
      return refuse(slot, counters.xid_mismatch);
    if (header.chunks.reads.empty()) return dispatch(slot, payload);
  }

  slot.layout_ =
      lay_out_call(header.chunks.reads, header.no_msg, payload.size(), shared_.call_memory.buffer_bytes());
  switch (slot.layout_.defect) {
    case LayoutDefect::None:
      break;
    case LayoutDefect::Misaligned:
      return refuse(slot, counters.misaligned_position);
    case LayoutDefect::PositionZeroInMsg:
      return refuse(slot, counters.position_zero_in_msg);
    case LayoutDefect::NoPositionZero:
      return refuse(slot, counters.no_position_zero);
    case LayoutDefect::BadPosition:
      return refuse(slot, counters.bad_position);
    case LayoutDefect::TooLong:
      return refuse(slot, counters.call_too_long, kRefuseSystem);
  }
  if (header.no_msg)
    set_state(slot, State::AwaitingCallMemory);
  else if (slot.layout_.chunk_count == 0)
    dispatch(slot, payload);  // only empty segments
  else
    place_call(slot);
}

/// An RDMA_MSG with Read chunks: the RPC header is inline, so eligibility is judged and the service asked for
/// a sink before anything is pulled.
void Responder::place_call(CallSlot& slot) noexcept {
  const auto payload = slot.message_.payload();
  xdr::Reader reader(payload);
  if (!decode_rpc(slot, reader)) return;

  CallLayout& layout = slot.layout_;
  if (!keep_eligible_chunks(slot)) return;
  if (layout.chunk_count == 0) return dispatch(slot, payload);

  const ReadChunk& chunk = layout.chunks[0];
  if (layout.chunk_count == 1 && chunk.position == payload.size() &&
      !slot.service_->binding().checks_positions) {
    // Round-up is no part of a chunk in version 2 (V2-071).
    if (connection_.speaks_version_2() && xdr::load_u32(&payload[chunk.position - xdr::kUnit]) != chunk.bytes)
      return refuse(slot, connection_.counters().count_mismatch);
    slot.message_span() = payload;
    slot.arguments_ = reader.rest();
    slot.placed_bytes_ = static_cast<std::uint32_t>(chunk.bytes);
    enter_service(slot);
    return placed(slot, slot.service_->place(slot));
  }
  set_state(slot, State::AwaitingCallMemory);
}

void Responder::placed(CallSlot& slot, service::Placement placement) noexcept {
  switch (placement) {
    case service::Placement::Sink:
      if (rdma::total_bytes({slot.pieces_.data(), slot.piece_count_}) < slot.layout_.chunks[0].bytes)
        return complete(slot, rpc::AcceptStat::SystemErr);
      slot.into_sink_ = true;
      set_state(slot, State::AwaitingReadRoom);
      return;
    case service::Placement::Assemble:
      slot.piece_count_ = 0;
      slot.placed_bytes_ = 0;
      set_state(slot, State::AwaitingCallMemory);
      return;
    case service::Placement::Reply:
    case service::Placement::Later:
      return;
  }
}

/// Drops the chunks that the binding has no item for, or refuses the call. False when it is refused.
bool Responder::keep_eligible_chunks(CallSlot& slot) noexcept {
  const service::Binding& binding = slot.service_->binding();
  CallLayout& layout = slot.layout_;
  const std::uint32_t eligible = binding.procedure(slot.header_.procedure).eligible_arguments;
  if (layout.chunk_count <= eligible) return true;
  if (binding.unusable == service::UnusableChunks::Refuse)
    return refuse(slot, connection_.counters().not_eligible), false;
  ++connection_.counters().not_eligible;
  for (std::uint32_t i = eligible; i < layout.chunk_count; ++i)
    layout.message_bytes -= xdr::padded(layout.chunks[i].bytes);
  layout.chunk_count = eligible;
  return true;
}

void Responder::enter_service(CallSlot& slot) noexcept {
  if (!slot.with_service_) slot.state_bytes().fill(std::byte{0});
  slot.with_service_ = true;
  set_state(slot, State::Executing);
}

void Responder::assemble_inline_parts(CallSlot& slot) noexcept {
  slot.call_memory_ = shared_.call_memory.acquire();
  if (slot.call_memory_ == nullptr) {
    ++connection_.counters().waits_call_memory;
    shared_.waiting_call_memory.push_back(slot);
    return;
  }
  const CallLayout& layout = slot.layout_;
  // Round-up bytes that no RDMA Read brings are zero, not what an earlier call left there (V1-088).
  for (std::uint32_t i = 0; i < layout.chunk_count; ++i) {
    const std::uint64_t end = layout.chunks[i].position + layout.chunks[i].bytes;
    std::memset(slot.call_memory_ + end, 0, xdr::padded(end) - end);
  }
  if (!slot.message_.header.no_msg) {
    const auto payload = slot.message_.payload();
    std::size_t from = 0;
    std::size_t to = 0;
    for (std::uint32_t i = 0; i <= layout.chunk_count; ++i) {
      const std::size_t run = i < layout.chunk_count ? layout.chunks[i].position - to : payload.size() - from;
      std::memcpy(slot.call_memory_ + to, payload.data() + from, run);
      from += run;
      to += run + (i < layout.chunk_count ? xdr::padded(layout.chunks[i].bytes) : 0);
    }
  }
  set_state(slot, State::AwaitingReadRoom);
}

bool Responder::stage_reads(CallSlot& slot) noexcept {
  SendStage& stage = connection_.stage();
  Counters& counters = connection_.counters();
  const std::uint64_t wr_id = connection_.wr_id(WrKind::Transfer, slot.index_);
  std::uint64_t bytes_read = 0;
  stage.begin_transfers();
  bool fits;
  if (slot.into_sink_) {
    std::uint32_t piece = 0;
    std::uint32_t piece_at = 0;
    fits = for_each_read(slot.layout_, slot.message_.header.chunks.reads,
                         [&](Segment remote, std::uint64_t, std::uint32_t bytes) {
                           while (bytes > 0) {
                             if (piece == slot.piece_count_) return false;
                             rdma::Sge local = slot.pieces_[piece];
                             local.address += piece_at;
                             local.length = std::min(local.length - piece_at, bytes);
                             if (!stage.transfer(rdma::SendOpcode::RdmaRead, wr_id, remote, local))
                               return false;
                             remote.offset += local.length;
                             bytes -= local.length;
                             bytes_read += local.length;
                             piece_at += local.length;
                             if (piece_at == slot.pieces_[piece].length) ++piece, piece_at = 0;
                           }
                           return true;
                         });
  } else {
    fits = for_each_read(slot.layout_, slot.message_.header.chunks.reads,
                         [&](const Segment& remote, std::uint64_t at, std::uint32_t bytes) {
                           bytes_read += bytes;
                           return stage.transfer(rdma::SendOpcode::RdmaRead, wr_id, remote,
                                                 {slot.call_memory_ + at, bytes, shared_.call_memory.lkey()});
                         });
  }
  if (fits) counters.rdma_read_bytes += bytes_read;
  return fits;
}

void Responder::post_reads(CallSlot& slot) noexcept {
  for (int attempt = 0; attempt < 2; ++attempt) {
    SendStage& stage = connection_.stage();
    const SendStage::Mark mark = stage.mark();
    const bool staged = stage_reads(slot);
    const std::size_t work_requests = stage.size() - mark.wrs;
    if (staged && connection_.stage_fits()) {
      stage.last().wr_id = connection_.wr_id(WrKind::ReadsDone, slot.index_);
      stage.last().flags = rdma::kSignaled;
      connection_.counters().rdma_reads += work_requests;
      ++posted_;
      set_state(slot, State::Pulling);
      return;
    }
    stage.rollback(mark);
    if (attempt == 0) connection_.flush_stage();
  }
  wait_for_send_room(slot);
}

void Responder::on_reads_done(std::uint16_t index) noexcept {
  CallSlot& slot = slots_[index];
  --posted_;
  if (!connection_.is_open()) return finish(slot);
  if (slot.into_sink_) {
    run_service(slot);
  } else {
    set_state(slot, State::Executing);
    dispatch(slot, {slot.call_memory_, slot.layout_.message_bytes});
  }
  advance(slot);
}

/// All of the call is in `message`, in one piece.
void Responder::dispatch(CallSlot& slot, std::span<const std::byte> message) noexcept {
  if (message.size() < xdr::kUnit) return refuse(slot, connection_.counters().no_payload);
  if (static_cast<rpc::Xid>(xdr::load_u32(message.data())) != slot.message_.header.fixed.xid)
    return refuse(slot, connection_.counters().xid_mismatch);
  xdr::Reader reader(message);
  if (!decode_rpc(slot, reader)) return;
  if (slot.call_memory_ != nullptr && slot.message_.header.no_msg) {
    const CallLayout pulled = slot.layout_;
    if (!keep_eligible_chunks(slot)) return;
    if (slot.layout_.chunk_count < pulled.chunk_count) {
      close_gaps(slot, pulled);
      reader = xdr::Reader({slot.call_memory_, slot.layout_.message_bytes});
      rpc::decode_call(reader);
    }
  }
  slot.message_span() = message.first(reader.position() + reader.remaining());
  slot.arguments_ = reader.rest();
  if (slot.call_memory_ != nullptr && !chunks_stand_at_items(slot))
    return refuse(slot, connection_.counters().not_eligible);
  if (slot.call_memory_ != nullptr && !counts_agree(slot)) {
    if (connection_.speaks_version_2()) return refuse(slot, connection_.counters().count_mismatch);  // D2-49
    slot.stat_ = rpc::AcceptStat::GarbageArgs;
    return answer(slot, CallSlot::Outcome::AcceptError);
  }
  run_service(slot);
}

/// An eligible item is a counted opaque: the word in front of it agrees with what its chunk holds, but for up
/// to three bytes of round-up that old requesters of version 1 send (V1-073, A-07).
bool Responder::counts_agree(const CallSlot& slot) const noexcept {
  for (std::uint32_t i = 0; i < slot.layout_.chunk_count; ++i) {
    const ReadChunk& chunk = slot.layout_.chunks[i];
    const std::uint32_t count = xdr::load_u32(slot.call_memory_ + chunk.position - xdr::kUnit);
    const std::uint64_t most = connection_.speaks_version_2() ? count : xdr::padded(count);
    if (chunk.bytes < count || chunk.bytes > most) return false;
  }
  return true;
}

/// Where the procedure alone does not tell what is eligible: a COMPOUND (RFC 8267, section 6).
bool Responder::chunks_stand_at_items(const CallSlot& slot) const noexcept {
  const service::Binding& binding = slot.service_->binding();
  if (!binding.checks_positions || slot.layout_.chunk_count == 0) return true;
  if (rpc::is_wrapped(slot.header_.credential)) return false;
  std::array<service::Item, kMaxReadPositions + service::kMaxResultItems> items;
  const std::size_t count = binding.argument_items(slot.header_.procedure, slot.arguments_, items);
  const std::size_t arguments_at = slot.message_span().size() - slot.arguments_.size();
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < slot.layout_.chunk_count; ++i) {
    const std::size_t position = slot.layout_.chunks[i].position;
    while (next < count && arguments_at + items[next].offset < position) ++next;
    if (next == count || arguments_at + items[next].offset != position) return false;
  }
  return true;
}

/// Moves the stream together over chunks that keep_eligible_chunks() dropped from an assembled message.
void Responder::close_gaps(CallSlot& slot, const CallLayout& pulled) noexcept {
  std::uint64_t to = pulled.chunks[slot.layout_.chunk_count].position;
  for (std::uint32_t i = slot.layout_.chunk_count; i < pulled.chunk_count; ++i) {
    const std::uint64_t from = pulled.chunks[i].position + xdr::padded(pulled.chunks[i].bytes);
    const std::uint64_t end =
        i + 1 < pulled.chunk_count ? pulled.chunks[i + 1].position : pulled.message_bytes;
    std::memmove(slot.call_memory_ + to, slot.call_memory_ + from, end - from);
    to += end - from;
  }
}

/// Decodes the RPC header and finds the service. False when the call is answered or refused already.
bool Responder::decode_rpc(CallSlot& slot, xdr::Reader& reader) noexcept {
  Counters& counters = connection_.counters();
  const rpc::CallDecodeResult call = rpc::decode_call(reader);
  slot.header_ = call.header;
  if (call.status == rpc::CallDecode::NotACall && connection_.speaks_version_2())
    return refuse(slot, counters.direction_mismatch, kRefuseFlags), false;  // D2-11
  if (call.status == rpc::CallDecode::Truncated || call.status == rpc::CallDecode::NotACall)
    return refuse(slot, counters.no_payload), false;
  if (!prepare_results(slot)) return false;

  switch (call.status) {
    case rpc::CallDecode::RpcMismatch:
      ++counters.rpc_mismatch;
      return answer(slot, CallSlot::Outcome::RpcMismatch), false;
    case rpc::CallDecode::BadCred:
    case rpc::CallDecode::BadVerf:
      ++counters.rpc_bad_auth;
      slot.auth_error_ =
          call.status == rpc::CallDecode::BadCred ? rpc::AuthStat::BadCred : rpc::AuthStat::BadVerf;
      return answer(slot, CallSlot::Outcome::AuthError), false;
    default:
      break;
  }
  service::Service* const sole = connection_.config().sole_service;
  const ServiceLookup lookup = sole != nullptr
                                   ? ServiceLookup{.service = sole}
                                   : shared_.services.find(slot.header_.program, slot.header_.version);
  slot.service_ = lookup.service;
  if (lookup.first_procedure != segment::kOtherProcedure &&
      slot.header_.procedure < lookup.service->binding().procedure_names.size())
    slot.procedure_ = static_cast<std::uint16_t>(lookup.first_procedure + slot.header_.procedure);
  if (lookup.service == nullptr) {
    ++counters.program_unavailable;
    slot.supported_ = lookup.supported;
    slot.stat_ = lookup.program_known ? rpc::AcceptStat::ProgMismatch : rpc::AcceptStat::ProgUnavail;
    return answer(slot, CallSlot::Outcome::AcceptError), false;
  }
  const service::Binding& binding = lookup.service->binding();
  if (!slot.message_.header.chunks.writes.empty() && binding.unusable == service::UnusableChunks::Refuse &&
      !connection_.speaks_version_2() && binding.procedure(slot.header_.procedure).eligible_results == 0)
    return refuse(slot, counters.not_eligible), false;  // V1-189
  return true;
}

void Responder::run_service(CallSlot& slot) noexcept {
  enter_service(slot);
  if (slot.service_->execute(slot) == service::Execution::Started) return;
  await_reply_memory(slot);
}

void Responder::await_reply_memory(CallSlot& slot) noexcept {
  if (slot.impossible_) return complete(slot, rpc::AcceptStat::SystemErr);
  ++connection_.counters().waits_reply_memory;
  set_state(slot, State::AwaitingReplyMemory);
  shared_.waiting_reply_memory.push_back(slot);
}

// --- From the service

void Responder::on_complete(service::Call& call, rpc::AcceptStat stat) noexcept {
  complete(static_cast<CallSlot&>(call), stat);
}

void Responder::complete(CallSlot& slot, rpc::AcceptStat stat) noexcept {
  if (slot.completed_) return;
  slot.stat_ = stat;
  if (slot.auth_error_ != rpc::AuthStat::Ok)
    answer(slot, CallSlot::Outcome::AuthError);
  else
    answer(slot,
           stat == rpc::AcceptStat::Success ? CallSlot::Outcome::Success : CallSlot::Outcome::AcceptError);
  if (!slot.advancing_) advance(slot);
}

void Responder::answer(CallSlot& slot, CallSlot::Outcome outcome) noexcept {
  slot.completed_ = true;
  slot.outcome_ = outcome;
  set_state(slot, State::Pushing);
  // The reply may wait for a credit that comes only when continued calls find memory: it holds none.
  release_assembly(slot);
}

bool Responder::on_grow_results(service::Call& call, std::size_t bytes) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  if (slot.reply_memory_ != nullptr || bytes + rpc::kMinReplyBytes > shared_.reply_memory.buffer_bytes()) {
    slot.impossible_ = true;
    return false;
  }
  slot.reply_memory_ = shared_.reply_memory.acquire();
  if (slot.reply_memory_ == nullptr) return false;
  slot.payload_ = slot.reply_memory_;
  slot.results_ = xdr::Writer(
      {slot.reply_memory_ + rpc::kMinReplyBytes, shared_.reply_memory.buffer_bytes() - rpc::kMinReplyBytes});
  return true;
}

/// Of a call that another reactor has placed: the slot is Executing until then.
void Responder::on_placed(service::Call& call, service::Placement placement) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  if (slot.completed_) return;
  placed(slot, placement);
  advance(slot);
}

void Responder::on_await_memory(service::Call& call) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  await_reply_memory(slot);
  advance(slot);
}

// --- Ends

void Responder::on_reply_sent(std::uint16_t index) noexcept {
  --posted_;
  --replying_;
  finish(slots_[index]);
  serve_pending();
}

void Responder::on_part_sent(std::uint16_t index) noexcept {
  CallSlot& slot = slots_[index];
  if (--slot.parts_posted_ == 0 && !connection_.is_open() && slot.state_ == State::Pushing) finish(slot);
}

void Responder::on_failed(std::uint16_t index, bool last) noexcept {
  if (!last) return;
  --posted_;
  if (slots_[index].state_ == State::Replying) --replying_;
  finish(slots_[index]);
}

void Responder::finish(CallSlot& slot) noexcept {
  if (slot.with_service_) {
    slot.service_->release(slot);
    slot.with_service_ = false;
  }
  if (slot.call_memory_ != nullptr) {
    shared_.call_memory.release(slot.call_memory_);
    slot.call_memory_ = nullptr;
  }
  if (slot.reply_memory_ != nullptr) {
    shared_.reply_memory.release(slot.reply_memory_);
    slot.reply_memory_ = nullptr;
  }
  release_assembly(slot);
  if (slot.holds_receive_ && connection_.is_open()) connection_.repost(slot.message_.buffer);
  slot.holds_receive_ = false;
  const bool replied = slot.state_ == State::Replying;
  set_state(slot, State::Free);
  if (traced_ && replied) note_call(slot);
  if (--busy_ == 0) connection_.wake_speakers();
  if (slot.index_ < open_slots_) free_.push_front(slot);
}

void Responder::release_assembly(CallSlot& slot) noexcept {
  if (slot.message_.assembly == nullptr) return;
  shared_.assembly_memory.release(std::exchange(slot.message_.assembly, nullptr));
  slot.arguments_ = {};
}

void Responder::serve_pending() noexcept {
  if (pending_.empty() || connection_.holds_calls()) return;
  serving_pending_ = true;
  while (!pending_.empty() && !free_.empty() && connection_.is_open()) {
    const Pending pending = pending_.front();
    pending_.pop_front();
    begin(pending.message, pending.refusal);
  }
  serving_pending_ = false;
}

void Responder::wait_for_send_room(CallSlot& slot) noexcept {
  ++connection_.counters().waits_send_queue;
  waiting_send_room_.push_back(slot);
  connection_.note_waiting();
}

/// The connection asks again when a credit has come or a continued message has ended.
void Responder::wait_for_credit(CallSlot& slot) noexcept {
  waiting_send_room_.push_back(slot);
}

void Responder::retry_send_room() noexcept {
  retrying_ = true;
  while (CallSlot* slot = waiting_send_room_.pop_front()) {
    resume(*slot);
    if (!waiting_send_room_.contains(*slot)) continue;
    waiting_send_room_.remove(*slot);
    waiting_send_room_.push_front(*slot);  // still no room: it keeps its place
    break;
  }
  retrying_ = false;
}

void Responder::on_connection_lost() noexcept {
  for (; !pending_.empty(); pending_.pop_front()) {
    std::byte* const assembly = pending_.front().message.assembly;
    if (assembly != nullptr) shared_.assembly_memory.release(assembly);
  }
  waiting_send_room_.clear();
  for (std::uint32_t i = 0; i < max_slots_; ++i)
    if (!slots_[i].advancing_) abandon(slots_[i]);  // one that is advancing abandons itself
  for (service::Service* service : shared_.services.all()) service->client_gone(connection_);
  if (service::Service* const sole = connection_.config().sole_service) sole->client_gone(connection_);
}

}  // namespace sluice::rpcrdma
