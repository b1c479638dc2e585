// SPDX-License-Identifier: Apache-2.0
//
// TX half of the responder: where each part of a reply goes (RFC 8166, sections 3.4.6, 3.5 and 4.3).
#include <algorithm>
#include <array>

#include "dataplane/rpcrdma/connection.h"
#include "dataplane/rpcrdma/responder.h"
#include "dataplane/rpcrdma/shared.h"

namespace sluice::rpcrdma {

using State = CallSlot::State;

struct Responder::ReplyPlan {
  v1::Procedure procedure = v1::Procedure::Msg;
  std::uint32_t items_in_chunks =
      0;  ///< bit i: result item i goes to a Write chunk, else it is in the payload
  std::array<std::uint64_t, kMaxWriteChunks> written{};
  std::uint64_t payload_bytes = 0;  ///< payload stream with the items that stay in it
  std::size_t header_bytes = 0;
};

static_assert(service::kMaxResultItems <= 32, "items_in_chunks is a bit mask");

/// Reserves the exact room of the reply's transport header in front of the payload, so that both go out as
/// one piece.
bool Responder::prepare_results(CallSlot& slot) noexcept {
  if (slot.reply_memory_ != nullptr) {
    slot.payload_ = slot.reply_memory_;
    slot.results_ = xdr::Writer(
        {slot.payload_ + rpc::kMinReplyBytes, shared_.reply_memory.buffer_bytes() - rpc::kMinReplyBytes});
    return true;
  }
  constexpr std::size_t kLargestErrorReply = 32;  // PROG_MISMATCH with its range
  const ChunkLists& chunks = slot.message_.header.chunks;
  const std::size_t headroom = v1::header_bytes(v1::ReplyChunks{chunks.writes, {}, chunks.reply, 0});
  if (headroom + kLargestErrorReply > slot.reply_buffer_.size())
    return refuse_chunk(slot, shared_.counters.reply_too_large), false;
  slot.payload_ = slot.reply_buffer_.data() + headroom;
  slot.results_ = xdr::Writer(slot.reply_buffer_.subspan(headroom + rpc::kMinReplyBytes));
  return true;
}

/// Writes the RPC reply header in front of the results; results of anything but Success are dropped.
void Responder::finish_payload(CallSlot& slot) noexcept {
  if (slot.outcome_ == CallSlot::Outcome::Success && !slot.results_.ok()) {
    slot.outcome_ = CallSlot::Outcome::AcceptError;
    slot.stat_ = rpc::AcceptStat::SystemErr;
  }
  const rpc::Xid xid = slot.message_.header.fixed.xid;
  const std::size_t results = slot.results_.position();
  xdr::Writer writer({slot.payload_, rpc::kMinReplyBytes + 2 * xdr::kUnit});
  switch (slot.outcome_) {
    case CallSlot::Outcome::Success:
      rpc::encode_accepted(writer, xid, {}, rpc::AcceptStat::Success);
      slot.payload_bytes_ = static_cast<std::uint32_t>(writer.position() + results);
      return;
    case CallSlot::Outcome::AcceptError:
      if (slot.stat_ == rpc::AcceptStat::ProgMismatch)
        rpc::encode_prog_mismatch(writer, xid, {}, slot.supported_);
      else
        rpc::encode_accepted(writer, xid, {}, slot.stat_);
      break;
    case CallSlot::Outcome::AuthError:
      rpc::encode_auth_error(writer, xid, slot.auth_error_);
      break;
    case CallSlot::Outcome::RpcMismatch:
      rpc::encode_rpc_mismatch(writer, xid);
      break;
  }
  slot.item_count_ = 0;
  slot.payload_bytes_ = static_cast<std::uint32_t>(writer.position());
}

/// Chooses the mechanism. False: no RPC reply is possible, the answer is ERR_CHUNK (V1-037, V1-038, V1-107).
bool Responder::plan_reply(CallSlot& slot, ReplyPlan& plan) noexcept {
  const ChunkLists& chunks = slot.message_.header.chunks;
  Counters& counters = shared_.counters;
  plan.header_bytes = v1::header_bytes(v1::ReplyChunks{chunks.writes, {}, chunks.reply, 0});
  plan.payload_bytes = slot.payload_bytes_;
  std::uint32_t send_pieces = 1;

  auto chunk = chunks.writes.begin();
  std::uint32_t chunk_index = 0;
  for (std::uint32_t i = 0; i < slot.item_count_; ++i) {
    const service::ResultItem& item = slot.items_[i];
    if (chunk != chunks.writes.end()) {
      const WriteChunk target = *chunk;
      ++chunk;
      const std::uint32_t number = chunk_index++;
      if (target.size() > 0) {
        if (target.capacity() < item.bytes) return ++counters.write_chunk_too_small, false;
        plan.items_in_chunks |= 1u << i;
        plan.written[number] = item.bytes;
        continue;
      }
      // A chunk without segments asks for this result inline (V1-111).
    }
    plan.payload_bytes += xdr::padded(item.bytes);
    send_pieces += item.pieces + 2;
  }

  const bool inline_fits = plan.header_bytes + plan.payload_bytes <= connection_.config().send_inline_bytes &&
                           send_pieces <= connection_.stage().max_sge();
  const bool chunk_fits = chunks.reply && plan.payload_bytes <= chunks.reply->capacity() &&
                          plan.header_bytes <= connection_.config().send_inline_bytes;
  const bool chunk_wanted = slot.outcome_ == CallSlot::Outcome::Success &&
                            connection_.config().reply_chunks == ReplyChunkPolicy::Always;
  if (chunk_fits && (chunk_wanted || !inline_fits)) {
    plan.procedure = v1::Procedure::NoMsg;
    return true;
  }
  if (!inline_fits) ++counters.reply_too_large;
  return inline_fits;
}

std::span<const rdma::Sge> Responder::item_sources(CallSlot& slot, const service::ResultItem& item) noexcept {
  std::size_t count = 0;
  std::uint32_t left = item.bytes;
  for (std::uint32_t i = 0; i < item.pieces && left > 0; ++i) {
    rdma::Sge piece = slot.pieces_[item.first_piece + i];
    piece.length = std::min(piece.length, left);
    left -= piece.length;
    shared_.sources[count++] = piece;
  }
  return {shared_.sources.data(), count};
}

/// The payload stream in order: results, and between them the items that stay inline with their round-up.
std::span<const rdma::Sge> Responder::payload_sources(CallSlot& slot, const ReplyPlan& plan) noexcept {
  auto& sources = shared_.sources;
  std::size_t count = 0;
  const rdma::Lkey lkey = slot.reply_memory_ != nullptr ? shared_.reply_memory.lkey() : reply_lkey_;
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < slot.item_count_; ++i) {
    if (plan.items_in_chunks >> i & 1) continue;
    const service::ResultItem& item = slot.items_[i];
    const auto item_at = static_cast<std::uint32_t>(rpc::kMinReplyBytes) + item.offset;
    if (item_at > at) sources[count++] = {slot.payload_ + at, item_at - at, lkey};
    at = item_at;
    std::uint32_t left = item.bytes;
    for (std::uint32_t p = 0; p < item.pieces && left > 0; ++p) {
      rdma::Sge piece = slot.pieces_[item.first_piece + p];
      piece.length = std::min(piece.length, left);
      left -= piece.length;
      sources[count++] = piece;
    }
    const auto round_up = static_cast<std::uint32_t>(xdr::padded(item.bytes) - item.bytes);
    if (round_up > 0) sources[count++] = {shared_.zero_pad.address, round_up, shared_.zero_pad.lkey};
  }
  if (slot.payload_bytes_ > at) sources[count++] = {slot.payload_ + at, slot.payload_bytes_ - at, lkey};
  return {sources.data(), count};
}

/// RDMA Writes of `sources`, one after the other, into the segments of `target` in array order (V1-094,
/// V1-126).
bool Responder::stage_writes(CallSlot& slot, std::span<const rdma::Sge> sources,
                             const WriteChunk& target) noexcept {
  SendStage& stage = connection_.stage();
  const std::uint64_t wr_id = connection_.wr_id(WrKind::Transfer, slot.index_);
  stage.begin_transfers();
  std::uint32_t next_segment = 0;
  Segment remote;
  for (rdma::Sge piece : sources) {
    while (piece.length > 0) {
      while (remote.length == 0) {
        if (next_segment == target.size()) return false;
        remote = target[next_segment++];
      }
      const std::uint32_t bytes = std::min(piece.length, remote.length);
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

bool Responder::stage_reply(CallSlot& slot, const ReplyPlan& plan) noexcept {
  const ChunkLists& chunks = slot.message_.header.chunks;
  SendStage& stage = connection_.stage();
  std::uint32_t item = 0;
  std::uint32_t number = 0;
  for (const WriteChunk chunk : chunks.writes) {
    if (item == slot.item_count_) break;
    if (plan.items_in_chunks >> item & 1 && !stage_writes(slot, item_sources(slot, slot.items_[item]), chunk))
      return false;
    ++item;
    ++number;
  }
  const bool in_reply_chunk = plan.procedure == v1::Procedure::NoMsg;
  if (in_reply_chunk && !stage_writes(slot, payload_sources(slot, plan), *chunks.reply)) return false;

  xdr::Writer header(slot.reply_buffer_.first(plan.header_bytes));
  v1::encode_reply(header, slot.message_.header.fixed.xid, grant(), plan.procedure,
                   {chunks.writes, plan.written, chunks.reply, in_reply_chunk ? plan.payload_bytes : 0});
  if (!stage.begin(rdma::SendOpcode::Send, connection_.wr_id(WrKind::ReplySent, slot.index_),
                   rdma::kSignaled) ||
      !stage.append({slot.reply_buffer_.data(), static_cast<std::uint32_t>(plan.header_bytes), reply_lkey_}))
    return false;
  if (in_reply_chunk) return true;
  if (slot.item_count_ == 0 && slot.reply_memory_ == nullptr)
    return stage.append({slot.payload_, slot.payload_bytes_, reply_lkey_});
  for (const rdma::Sge& piece : payload_sources(slot, plan))
    if (!stage.append(piece)) return false;
  return true;
}

bool Responder::stage_refusal(CallSlot& slot) noexcept {
  xdr::Writer writer(slot.reply_buffer_);
  if (slot.refusal_ == Refusal::ErrVers)
    v1::encode_err_vers(writer, slot.message_.header.fixed, grant());
  else
    v1::encode_err_chunk(writer, slot.message_.header.fixed, grant());
  SendStage& stage = connection_.stage();
  return stage.begin(rdma::SendOpcode::Send, connection_.wr_id(WrKind::ReplySent, slot.index_),
                     rdma::kSignaled) &&
         stage.append(
             {slot.reply_buffer_.data(), static_cast<std::uint32_t>(writer.position()), reply_lkey_});
}

void Responder::push_reply(CallSlot& slot) noexcept {
  ReplyPlan plan;
  if (slot.refusal_ == Refusal::None) {
    finish_payload(slot);
    if (!plan_reply(slot, plan)) slot.refusal_ = Refusal::ErrChunk;
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    SendStage& stage = connection_.stage();
    const SendStage::Mark mark = stage.mark();
    const bool staged = slot.refusal_ == Refusal::None ? stage_reply(slot, plan) : stage_refusal(slot);
    if (staged && connection_.stage_fits()) {
      shared_.counters.rdma_writes += stage.size() - mark.wrs - 1;
      count_sent(slot, plan);
      // The call's Receive goes back before its reply goes out (V1-052); the header's views end here.
      connection_.repost(slot.message_.buffer);
      slot.holds_receive_ = false;
      ++posted_;
      ++replying_;
      slot.state_ = State::Replying;
      return;
    }
    stage.rollback(mark);
    if (attempt == 0) connection_.flush_stage();
  }
  wait_for_send_room(slot);
}

void Responder::count_sent(const CallSlot& slot, const ReplyPlan& plan) noexcept {
  Counters& counters = shared_.counters;
  if (slot.refusal_ == Refusal::ErrVers) {
    ++counters.err_vers_sent;
    return;
  }
  if (slot.refusal_ == Refusal::ErrChunk) {
    ++counters.err_chunk_sent;
    return;
  }
  ++counters.replies_sent;
  const bool in_reply_chunk = plan.procedure == v1::Procedure::NoMsg;
  counters.inline_bytes_sent += plan.header_bytes + (in_reply_chunk ? 0 : plan.payload_bytes);
  if (in_reply_chunk) counters.rdma_write_bytes += plan.payload_bytes;
  for (std::uint64_t bytes : plan.written) counters.rdma_write_bytes += bytes;
}

}  // namespace sluice::rpcrdma
