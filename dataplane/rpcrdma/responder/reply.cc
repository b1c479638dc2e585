// SPDX-License-Identifier: Apache-2.0
//
// TX half of the responder: selects where each part of a reply goes (RFC 8166, sections 3.4.6, 3.5 and 4.3).
#include <array>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/responder/steps.h"

namespace sluice::rpcrdma {

using CallState = CallSlot::State;

static_assert(service::kMaxResultItems <= 32, "items_in_chunks is a bit mask");
static_assert(service::kMaxResultItems >= kMaxWriteChunks, "a result with a chunk is never inline");

/// Reserves exactly the room for the reply's transport header before the payload, so that both are sent as
/// one piece.
bool Responder::prepare_results(CallSlot& slot) noexcept {
  if (slot.reply_memory_ != nullptr) {
    slot.payload_ = slot.reply_memory_;
    slot.results_ = xdr::Writer({slot.payload_ + rpc::kMinReplyBytes,
                                 context_.memory.replies.bytes_of(slot.reply_memory_) - rpc::kMinReplyBytes});
    return true;
  }
  const ChunkLists& chunks = slot.message_.header.chunks;
  const ReplyChunks returned{chunks.writes, {}, chunks.reply, 0};
  return reserve_headroom(slot, link_.rules().header_bytes(returned));
}

/// Finishes every payload but a Success whose RPC header the responder encodes.
void Responder::finish_other_payload(CallSlot& slot) noexcept {
  const rpc::Xid xid = slot.message_.header.fixed.xid;
  if (slot.outcome_ == CallSlot::Outcome::Success && slot.results_.ok()) {
    xdr::store_u32(slot.payload_, static_cast<std::uint32_t>(xid));
    slot.payload_bytes_ = static_cast<std::uint32_t>(slot.results_offset_ + slot.results_.position());
    return;
  }
  if (slot.outcome_ == CallSlot::Outcome::Success) {
    slot.outcome_ = CallSlot::Outcome::AcceptError;
    slot.stat_ = rpc::AcceptStat::SystemErr;
  }
  xdr::Writer writer({slot.payload_, rpc::kMinReplyBytes + 2 * xdr::kUnit});
  switch (slot.outcome_) {
    case CallSlot::Outcome::Success:
      break;
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

/// Selects the mechanism for a reply. Returns false if no RPC reply is possible; the slot's refusal is sent
/// instead (V1-037, V1-038, V1-107; V2-102, V2-103).
bool Responder::plan_reply(CallSlot& slot, ReplyPlan& plan) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.item_count_ <= service::kMaxResultItems, table_index);
  const ChunkLists& chunks = slot.message_.header.chunks;
  Counters& counters = link_.counters();
  plan.payload_bytes = slot.payload_bytes_;
  std::uint32_t send_pieces = 1;

  auto chunk = chunks.writes.begin();
  for (std::uint32_t i = 0; i < slot.item_count_; ++i) {
    const service::ResultItem& item = slot.items()[i];
    if (chunk != chunks.writes.end()) {
      const WriteChunk target = *chunk;
      ++chunk;
      const std::uint32_t number = plan.chunk_count++;
      SLUICE_INVARIANT_DEBUG(number < plan.written.size(), table_index);
      plan.written[number] = 0;
      if (target.size() > 0) {
        if (target.capacity() < item.bytes) {
          ++counters.write_chunk_too_small;
          slot.plain_ = false;
          slot.refusal_ = v2::Error{
              .code = v2::ErrorCode::WriteResource, .chunk_index = number + 1, .bytes_needed = item.bytes};
          return false;
        }
        plan.items_in_chunks |= 1u << i;
        plan.written[number] = item.bytes;
        continue;
      }
      // A chunk without segments requests this result inline (V1-111).
    }
    plan.payload_bytes += xdr::padded(item.bytes);
    send_pieces += item.pieces + 2;
  }
  if (!choose_mechanism(slot, plan, send_pieces <= link_.context().transmit.stage.max_sge())) return false;
  if (slot.message_.header.invalidate != rdma::Rkey{}) plan.invalidate = handle_to_invalidate(slot);
  return true;
}

/// Checks before execution that the largest possible results of the call fit a reply. Returns false if the
/// call was refused (D2-47).
bool Responder::reply_will_fit(CallSlot& slot, std::uint64_t results_bytes) noexcept {
  ReplyPlan plan;
  plan.payload_bytes = rpc::kMinReplyBytes + results_bytes;
  if (choose_mechanism(slot, plan, true)) return true;
  set_state(slot, CallState::Pushing);
  return false;
}

/// Selects inline, Reply chunk, continuation or error, in this order (D2-42 to D2-44). The rules and the
/// policy of version 1 may prefer the Reply chunk. Returns false if the call was refused.
bool Responder::choose_mechanism(CallSlot& slot, ReplyPlan& plan, bool pieces_fit) noexcept {
  const VersionRules& rules = link_.rules();
  const ChunkLists& chunks = slot.message_.header.chunks;
  const std::uint32_t limit = link_.send_bytes();
  const std::size_t with_chunk = rules.header_bytes({chunks.writes, {}, chunks.reply, 0});
  plan.header_bytes =
      rules.returns_unused_reply_chunk ? with_chunk : rules.header_bytes({chunks.writes, {}, {}, 0});
  const bool continues = slot.continued_bytes_ > 0;  // a reply that has begun in parts is completed in parts
  const bool inline_fits = !continues && plan.header_bytes + plan.payload_bytes <= limit && pieces_fit;
  const bool chunk_fits =
      !continues && chunks.reply && plan.payload_bytes <= chunks.reply->capacity() && with_chunk <= limit;
  const bool chunk_preferred = rules.prefers_reply_chunk && slot.outcome_ == CallSlot::Outcome::Success &&
                               link_.config().reply_chunks == ReplyChunkPolicy::Always;
  if (chunk_fits && (chunk_preferred || !inline_fits)) {
    plan.header_bytes = with_chunk;
    plan.mechanism = ReplyPlan::Mechanism::ReplyChunk;
    return true;
  }
  if (inline_fits) return true;
  if (continues_replies() && plan.header_bytes + xdr::kUnit <= limit) {
    plan.mechanism = ReplyPlan::Mechanism::Continued;
    return true;
  }
  refuse_long_reply(slot, plan.payload_bytes);
  return false;
}

bool Responder::continues_replies() const noexcept {
  return link_.rules().continues_messages && link_.config().version2.continue_replies;
}

void Responder::refuse_long_reply(CallSlot& slot, std::uint64_t bytes) noexcept {
  ++link_.counters().reply_too_large;
  slot.plain_ = false;
  slot.refusal_ =
      v2::Error{.code = v2::ErrorCode::ReplyResource, .bytes_needed = static_cast<std::uint32_t>(bytes)};
}

std::uint64_t Responder::reply_room(const service::Call& call) const noexcept {
  const ChunkLists& chunks = static_cast<const CallSlot&>(call).message_.header.chunks;
  if (continues_replies()) return service::kAnyReply;
  std::uint64_t room = link_.send_bytes();
  if (chunks.reply) room = larger_of(room, chunks.reply->capacity());
  for (const WriteChunk chunk : chunks.writes) room += xdr::padded(chunk.capacity());
  return room;
}

/// Returns the handle to invalidate of a call that names one, or zero. A handle that the call does not offer
/// must not be invalidated (D2-51).
rdma::Rkey Responder::handle_to_invalidate(const CallSlot& slot) noexcept {
  const MessageHeader& header = slot.message_.header;
  if (!link_.context().remote_invalidation) return {};
  const auto in = [&header](const WriteChunk& chunk) {
    for (std::uint32_t i = 0; i < chunk.size(); ++i)
      if (chunk[i].handle == header.invalidate) return true;
    return false;
  };
  for (std::uint32_t i = 0; i < header.chunks.reads.size(); ++i)
    if (header.chunks.reads[i].target.handle == header.invalidate) return header.invalidate;
  for (const WriteChunk chunk : header.chunks.writes)
    if (in(chunk)) return header.invalidate;
  if (header.chunks.reply && in(*header.chunks.reply)) return header.invalidate;
  ++link_.counters().unmatched_invalidate;
  return {};
}

/// Returns the pieces of the payload stream in order: results and, between them, inline items with their
/// round-up.
std::span<const rdma::Sge> Responder::payload_sources(CallSlot& slot, const ReplyPlan& plan) noexcept {
  auto& sources = context_.sources;
  std::size_t count = 0;
  const rdma::Lkey lkey = slot.reply_memory_ != nullptr ? context_.memory.replies.lkey() : reply_lkey_;
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < slot.item_count_; ++i) {
    if (plan.items_in_chunks >> i & 1) continue;
    const service::ResultItem& item = slot.items()[i];
    const auto item_at = slot.results_offset_ + item.offset;
    SLUICE_INVARIANT_DEBUG(item_at >= at && item_at <= slot.payload_bytes_, buffer_bounds);
    if (item_at > at) sources[count++] = {slot.payload_ + at, item_at - at, lkey};
    at = item_at;
    std::uint32_t left = item.bytes;
    for (std::uint32_t p = 0; p < item.pieces && left > 0; ++p) {
      rdma::Sge piece = slot.pieces()[item.first_piece + p];
      piece.length = smaller_of(piece.length, left);
      left -= piece.length;
      sources[count++] = piece;
    }
    const auto round_up = static_cast<std::uint32_t>(xdr::padded(item.bytes) - item.bytes);
    if (round_up > 0) sources[count++] = {context_.zero_pad.address, round_up, context_.zero_pad.lkey};
  }
  if (slot.payload_bytes_ > at) sources[count++] = {slot.payload_ + at, slot.payload_bytes_ - at, lkey};
  SLUICE_INVARIANT_DEBUG(count <= sources.size(), table_index);
  return {sources.data(), count};
}

/// Stages all parts of a continued reply but the last, in version 2. Returns false if it has to wait.
bool Responder::stage_parts(CallSlot& slot, const ReplyPlan& plan) noexcept {
  const std::uint64_t before = slot.continued_bytes_;
  SLUICE_INVARIANT_DEBUG(before <= plan.payload_bytes, buffer_bounds);
  const bool last_is_next = session_.stage_parts({.sender = {v2::Sender::Kind::Reply, slot.index_},
                                                  .xid = slot.message_.header.fixed.xid,
                                                  .response = true,
                                                  .payload = payload_sources(slot, plan),
                                                  .payload_bytes = plan.payload_bytes,
                                                  .last_header_bytes = plan.header_bytes},
                                                 slot.continued_bytes_, slot.parts_posted_);
  if (slot.continued_bytes_ > before) {
    slot.progress_ns_ = link_.context().now_ns();
    slot.plain_ = false;
  }
  return last_is_next;
}

/// Returns the credit word of a reply that is not plain, in version 2.
std::uint32_t Responder::offer_credits(CallSlot& slot) noexcept {
  slot.credit_ = session_.offer(slot.holds_receive_ ? 1 : 0);
  return slot.credit_.word();
}

bool Responder::stage_reply(CallSlot& slot, ReplyPlan& plan) noexcept {
  const ChunkLists& chunks = slot.message_.header.chunks;
  SendStage& stage = link_.stage();
  std::uint32_t item = 0;
  for (const WriteChunk chunk : chunks.writes) {
    if (item == slot.item_count_) break;
    if (plan.items_in_chunks >> item & 1 &&
        !stage_writes(slot, item_sources(slot, slot.items()[item]), chunk))
      return false;
    ++item;
  }
  const bool in_reply_chunk = plan.in_reply_chunk();
  if (in_reply_chunk && !stage_writes(slot, payload_sources(slot, plan), *chunks.reply)) return false;

  // The header ends where the payload begins, so that both form one piece.
  std::byte* const header_at =
      slot.reply_memory_ == nullptr ? slot.payload_ - plan.header_bytes : slot.reply_buffer_.data();
  xdr::Writer header({header_at, plan.header_bytes});
  const VersionRules& rules = link_.rules();
  ReplyChunks returned{chunks.writes, plan.bytes_written(), {}, 0};
  if (in_reply_chunk || rules.returns_unused_reply_chunk) returned.reply = chunks.reply;
  if (in_reply_chunk) returned.reply_written = plan.payload_bytes;
  rules.encode_reply(header,
                     {.xid = slot.message_.header.fixed.xid,
                      .credits = rules.credit_per_message ? offer_credits(slot) : grant_,
                      .no_msg = in_reply_chunk},
                     returned);
  SLUICE_INVARIANT_DEBUG(header.ok() && header.position() == plan.header_bytes, buffer_bounds);
  const bool invalidates = plan.invalidate != rdma::Rkey{};
  if (!stage.begin(invalidates ? rdma::SendOpcode::SendWithInvalidate : rdma::SendOpcode::Send,
                   link_.wr_id(WrKind::ReplySent, slot.index_), rdma::kSignaled))
    return false;
  stage.last().rkey = plan.invalidate;
  const auto header_bytes = static_cast<std::uint32_t>(plan.header_bytes);
  if (!stage.append({header_at, header_bytes, reply_lkey_})) return false;
  if (in_reply_chunk) return true;
  if (plan.mechanism == ReplyPlan::Mechanism::Continued)
    return link_.append_payload(payload_sources(slot, plan), slot.continued_bytes_);
  for (const rdma::Sge& piece : payload_sources(slot, plan))
    if (!stage.append(piece)) return false;
  return true;
}

/// Returns false if the refusal has to wait for a later iteration. A refusal that ends a continued reply does
/// not wait because it blocks all other senders.
bool Responder::may_refuse_now(CallSlot& slot) noexcept {
  if (slot.continued_bytes_ > 0 || context_.refusals.take(refusal_account_)) return true;
  ++link_.counters().waits_refusal;
  context_.refusals.await(refusal_account_, slot);
  return false;
}

bool Responder::stage_refusal(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.refusal_.has_value(), call_slot_state);
  const FixedHeader& failing = slot.message_.header.fixed;
  const std::uint32_t version = link_.version();
  const VersionRules& rules = link_.rules();
  xdr::Writer writer(slot.reply_buffer_);
  if (slot.refusal_->code == v2::ErrorCode::Vers) {
    // The version of a connection never changes (D2-02).
    const rpc::VersionRange range =
        version == 0 ? link_.config().supported_versions() : rpc::VersionRange{version, version};
    v1::encode_err_vers(writer, failing, grant(), range);
  } else {
    rules.encode_error(writer, failing, rules.credit_per_message ? session_.offer().limit() : grant_,
                       *slot.refusal_);
  }
  SendStage& stage = link_.stage();
  return stage.begin(rdma::SendOpcode::Send, link_.wr_id(WrKind::ReplySent, slot.index_), rdma::kSignaled) &&
         stage.append(
             {slot.reply_buffer_.data(), static_cast<std::uint32_t>(writer.position()), reply_lkey_});
}

void Responder::push_reply(CallSlot& slot) noexcept {
  if (!slot.refusal_) {
    finish_payload(slot);
    if (slot.plain_ && stage_plain_reply(slot, link_.speaks_version_2()))
      return set_state(slot, CallState::Replying);
  }
  push_other_reply(slot);
}

/// Returns true if the slot has the credit for its reply, in version 2, and stages all parts of a continued
/// reply but the last. A reply that has begun in parts must stay first in the queue.
bool Responder::may_push_now(CallSlot& slot, const ReplyPlan& plan) noexcept {
  if (!retrying_ && !waiting_send_room_.empty()) return false;
  const bool continued = !slot.refusal_ && plan.mechanism == ReplyPlan::Mechanism::Continued;
  if (continued && !stage_parts(slot, plan)) return false;
  return session_.may_send_now({v2::Sender::Kind::Reply, slot.index_});
}

void Responder::push_other_reply(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.state_ == CallState::Pushing && !slot.waits(), call_slot_state);
  ReplyPlan plan;
  if (!slot.refusal_) plan_reply(slot, plan);
  if (link_.rules().credit_per_message && !may_push_now(slot, plan)) return wait_for_credit(slot);
  if (slot.refusal_ && !may_refuse_now(slot)) return;
  std::size_t work_requests = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    SendStage& stage = link_.stage();
    const SendStage::Mark mark = stage.mark();
    const bool staged = slot.refusal_ ? stage_refusal(slot) : stage_reply(slot, plan);
    if (staged && link_.stage_fits()) {
      link_.counters().rdma_writes += stage.size() - mark.wrs() - 1;
      count_sent(slot, plan);
      on_reply_staged(slot);
      set_state(slot, CallState::Replying);
      // A refusal may also end it, if the threshold was lowered between parts.
      if (plan.mechanism == ReplyPlan::Mechanism::Continued || slot.continued_bytes_ > 0)
        session_.end_continued_message();
      return;
    }
    work_requests = stage.size() - mark.wrs();
    stage.rollback(mark);
    if (attempt == 0) link_.flush_stage();
  }
  wait_for_send_room(slot, work_requests);
}

}  // namespace sluice::rpcrdma
