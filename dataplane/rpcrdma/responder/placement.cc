// SPDX-License-Identifier: Apache-2.0
//
// Placement of the Read chunks of a call, and the RDMA Reads and Writes that transfer chunks.
#include "dataplane/base/invariant.h"

#include <cstring>
#include <optional>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/responder/call_layout.h"
#include "dataplane/rpcrdma/responder/steps.h"

namespace sluice::rpcrdma {

using CallState = CallSlot::State;

namespace {

/// Adds a segment to the chunk of its position, keeping chunks in ascending order. Returns false if there are
/// too many.
bool add_to_chunk(CallLayout& layout, std::uint32_t position, std::uint32_t bytes) noexcept {
  std::uint32_t i = layout.chunk_count;
  while (i > 0 && layout.chunks[i - 1].position > position) --i;
  if (i > 0 && layout.chunks[i - 1].position == position) {
    layout.chunks[i - 1].bytes += bytes;
    return true;
  }
  if (layout.chunk_count == kMaxReadPositions) return false;
  for (std::uint32_t j = layout.chunk_count; j > i; --j) layout.chunks[j] = layout.chunks[j - 1];
  layout.chunks[i] = {position, bytes};
  SLUICE_INVARIANT_DEBUG(layout.chunk_count < kMaxReadPositions, table_index);
  ++layout.chunk_count;
  return true;
}

/// Computes the message length. The chunks must not overlap, and the stream must fill the gaps between them.
LayoutDefect place_chunks(CallLayout& layout, std::uint64_t max_call_bytes) noexcept {
  std::uint64_t message_at = 0;
  std::uint64_t stream_left = layout.stream_bytes;
  for (std::uint32_t i = 0; i < layout.chunk_count; ++i) {
    const ReadChunk& chunk = layout.chunks[i];
    if (chunk.position < message_at) return LayoutDefect::BadPosition;
    const std::uint64_t run = chunk.position - message_at;
    if (run > stream_left) return LayoutDefect::BadPosition;
    stream_left -= run;
    message_at = chunk.position + xdr::padded(chunk.bytes);
    if (message_at > max_call_bytes) return LayoutDefect::TooLong;
  }
  layout.message_bytes = message_at + stream_left;
  return layout.message_bytes > max_call_bytes ? LayoutDefect::TooLong : LayoutDefect::None;
}

}  // namespace

CallLayout lay_out_call(const ReadList& reads, bool long_call, std::uint64_t inline_bytes,
                        std::uint64_t max_call_bytes) noexcept {
  CallLayout layout;
  layout.stream_bytes = inline_bytes;
  for (std::uint32_t i = 0; i < reads.size(); ++i) {
    const ReadSegment read = reads[i];
    const auto position = static_cast<std::uint32_t>(read.position);
    if (position % xdr::kUnit != 0) return layout.defect = LayoutDefect::Misaligned, layout;
    if (position == 0) {
      if (!long_call) return layout.defect = LayoutDefect::PositionZeroInMsg, layout;
      layout.stream_bytes += read.target.length;
    } else if (position < rpc::kMinCallBytes ||
               (read.target.length > 0 && !add_to_chunk(layout, position, read.target.length))) {
      return layout.defect = LayoutDefect::BadPosition, layout;
    }
  }
  if (long_call && layout.stream_bytes == 0) return layout.defect = LayoutDefect::NoPositionZero, layout;
  layout.defect = place_chunks(layout, max_call_bytes);
  return layout;
}

/// Handles an RDMA_MSG with Read chunks. The RPC header is inline, so eligibility is checked and the service
/// may provide a sink before any data is read.
void Responder::place_call(CallSlot& slot) noexcept {
  const auto payload = slot.message_.payload();
  xdr::Reader reader(payload);
  if (!decode_rpc(slot, reader)) return;

  CallLayout& layout = slot.layout_;
  if (!keep_eligible_chunks(slot)) return;
  if (layout.chunk_count == 0) return dispatch_payload(slot);

  const ReadChunk& chunk = layout.chunks[0];
  if (layout.chunk_count == 1 && chunk.position == payload.size() && !slot.binding_->checks_positions) {
    if (link_.rules().exact_chunks && xdr::load_u32(&payload[chunk.position - xdr::kUnit]) != chunk.bytes)
      return refuse(slot, link_.counters().count_mismatch);
    slot.message_span() = payload;
    slot.arguments_ = reader.rest();
    slot.placed_bytes_ = static_cast<std::uint32_t>(chunk.bytes);
    enter_service(slot);
    return placed(slot, slot.service_->place(slot));
  }
  set_state(slot, CallState::AwaitingCallMemory);
}

void Responder::placed(CallSlot& slot, service::Placement placement) noexcept {
  switch (placement) {
    case service::Placement::Sink:
      SLUICE_INVARIANT_DEBUG(slot.layout_.chunk_count == 1, call_slot_state);
      if (rdma::total_bytes(slot.pieces()) < slot.layout_.chunks[0].bytes)
        return on_complete(slot, rpc::AcceptStat::SystemErr);
      slot.into_sink_ = true;
      set_state(slot, CallState::AwaitingReadRoom);
      return;
    case service::Placement::Assemble:
      slot.piece_count_ = 0;
      slot.placed_bytes_ = 0;
      set_state(slot, CallState::AwaitingCallMemory);
      return;
    case service::Placement::Reply:
    case service::Placement::Later:
      return;
  }
}

void Responder::assemble_inline_parts(CallSlot& slot) noexcept {
  const CallLayout& layout = slot.layout_;
  SharedMemory& memory = context_.memory.calls;
  SLUICE_INVARIANT_DEBUG(slot.call_memory_ == nullptr && !slot.waits(), pool_balance);
  slot.call_memory_ = memory.acquire(call_account_, layout.message_bytes);
  if (slot.call_memory_ == nullptr) {
    ++link_.counters().waits_call_memory;
    memory.await(call_account_, layout.message_bytes, slot);
    return;
  }
  SLUICE_INVARIANT_DEBUG(layout.message_bytes <= memory.bytes_of(slot.call_memory_), buffer_bounds);
  // Round-up bytes that no RDMA Read transfers are zeroed, so that they do not expose an earlier call
  // (V1-088).
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
  set_state(slot, CallState::AwaitingReadRoom);
}

std::optional<rdma::Lkey> Responder::message_lkey(const service::Call& call) const noexcept {
  if (static_cast<const CallSlot&>(call).call_memory_ == nullptr) return std::nullopt;
  return context_.memory.calls.lkey();
}

std::optional<std::uint64_t> Responder::stage_reads(CallSlot& slot) noexcept {
  SendStage& stage = link_.stage();
  const std::uint64_t wr_id = link_.wr_id(WrKind::Transfer, slot.index_);
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
                             rdma::Sge local = slot.pieces()[piece];
                             SLUICE_INVARIANT_DEBUG(piece_at < local.length, buffer_bounds);
                             local.address += piece_at;
                             local.length = smaller_of(local.length - piece_at, bytes);
                             if (!stage.transfer(rdma::SendOpcode::RdmaRead, wr_id, remote, local))
                               return false;
                             remote.offset += local.length;
                             bytes -= local.length;
                             bytes_read += local.length;
                             piece_at += local.length;
                             if (piece_at == slot.pieces()[piece].length) ++piece, piece_at = 0;
                           }
                           return true;
                         });
  } else {
    fits =
        for_each_read(slot.layout_, slot.message_.header.chunks.reads,
                      [&](const Segment& remote, std::uint64_t at, std::uint32_t bytes) {
                        bytes_read += bytes;
                        SLUICE_INVARIANT_DEBUG(at + bytes <= slot.layout_.message_bytes, buffer_bounds);
                        return stage.transfer(rdma::SendOpcode::RdmaRead, wr_id, remote,
                                              {slot.call_memory_ + at, bytes, context_.memory.calls.lkey()});
                      });
  }
  return fits ? std::optional(bytes_read) : std::nullopt;
}

void Responder::post_reads(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.into_sink_ || slot.call_memory_ != nullptr, call_slot_state);
  std::size_t work_requests = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    SendStage& stage = link_.stage();
    const SendStage::Mark mark = stage.mark();
    const std::optional<std::uint64_t> bytes_read = stage_reads(slot);
    work_requests = stage.size() - mark.wrs();
    if (bytes_read && link_.stage_fits()) {
      stage.last().wr_id = link_.wr_id(WrKind::ReadsDone, slot.index_);
      stage.last().flags = rdma::kSignaled;
      link_.counters().rdma_reads += work_requests;
      link_.count_received(&Counters::rdma_read_bytes, *bytes_read);
      ++posted_;
      set_state(slot, CallState::Pulling);
      probe::reads_posted(link_.number(), slot.xid(), slot.index_, *bytes_read);
      return;
    }
    stage.rollback(mark);
    if (attempt == 0) link_.flush_stage();
  }
  wait_for_send_room(slot, work_requests);
}

[[gnu::noinline]] void Responder::on_reads_done(std::uint16_t index) noexcept {
  CallSlot& slot = slots_[index];
  SLUICE_INVARIANT_DEBUG(posted_ > 0 && slot.state_ == CallState::Pulling, call_slot_state);
  --posted_;
  probe::reads_finished(link_.number(), slot.xid(), slot.index_);
  if (!link_.is_open()) return finish(slot);
  if (slot.into_sink_) {
    run_service(slot);
  } else {
    set_state(slot, CallState::Executing);
    dispatch_pulled(slot);
  }
  advance(slot);
}

// --- Results

std::span<const rdma::Sge> Responder::item_sources(CallSlot& slot, const service::ResultItem& item) noexcept {
  std::size_t count = 0;
  std::uint32_t left = item.bytes;
  for (std::uint32_t i = 0; i < item.pieces && left > 0; ++i) {
    rdma::Sge piece = slot.pieces()[item.first_piece + i];
    piece.length = smaller_of(piece.length, left);
    left -= piece.length;
    context_.sources[count++] = piece;
  }
  SLUICE_INVARIANT_DEBUG(left == 0 && count <= context_.sources.size(), buffer_bounds);
  return {context_.sources.data(), count};
}

/// Stages RDMA Writes of `sources`, in order, into the segments of `target` in array order (V1-094, V1-126).
bool Responder::stage_writes(CallSlot& slot, std::span<const rdma::Sge> sources,
                             const WriteChunk& target) noexcept {
  SendStage& stage = link_.stage();
  SLUICE_INVARIANT_DEBUG(slot.state_ == CallState::Pushing, call_slot_state);
  const std::uint64_t wr_id = link_.wr_id(WrKind::Transfer, slot.index_);
  stage.begin_transfers();
  std::uint32_t next_segment = 0;
  Segment remote;
  for (rdma::Sge piece : sources) {
    while (piece.length > 0) {
      while (remote.length == 0) {
        if (next_segment == target.size()) return false;
        remote = target[next_segment++];
      }
      const std::uint32_t bytes = smaller_of(piece.length, remote.length);
      if (!stage.transfer(rdma::SendOpcode::RdmaWrite, wr_id, remote, {piece.address, bytes, piece.lkey}))
        return false;
      piece.address += bytes;
      piece.length -= bytes;
      remote.offset += bytes;
      remote.length -= bytes;
    }
  }
  return true;
}

}  // namespace sluice::rpcrdma
