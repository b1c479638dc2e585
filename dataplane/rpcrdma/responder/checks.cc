// SPDX-License-Identifier: Apache-2.0
//
// RX half of the responder: gives each call a slot and checks the call, in order, until the service executes
// it.
#include "dataplane/base/invariant.h"

#include <cstring>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/responder/responder_context.h"
#include "dataplane/rpcrdma/responder/steps.h"

namespace sluice::rpcrdma {

using CallState = CallSlot::State;

// --- Plain calls
//
// Plain calls have no chunks and are executed in the iteration in which they are received. One function takes
// such a call from its Receive to its Send, in the steps of advance().

namespace {

template <std::uint32_t kVersion>
constexpr std::size_t kPlainHeaderBytes =
    kVersion == v2::kVersion ? v2::kMinMsgHeaderBytes : kMinMsgHeaderBytes;

}  // namespace

template <std::uint32_t kVersion>
[[gnu::noinline]] void Responder::on_plain_call(std::uint16_t buffer,
                                                std::span<const std::byte> bytes) noexcept {
  SLUICE_INVARIANT_DEBUG(bytes.size() >= kPlainHeaderBytes<kVersion>, buffer_bounds);
  constexpr std::size_t header_bytes = kPlainHeaderBytes<kVersion>;
  if (free_.empty() || !pending_.empty() || holds_calls_ || traced_) [[unlikely]]
    return begin_plain_call<kVersion>(buffer, bytes);
  CallSlot& slot = take_slot();
  slot.message_.begin_plain(buffer, bytes, kVersion, header_bytes);
  start(slot);
  const auto payload = bytes.subspan(header_bytes);
  xdr::Reader reader(payload);
  if (!find_service(slot, reader, [this, &slot] { return reserve_headroom(slot, header_bytes); }))
      [[unlikely]]
    return advance(slot);
  slot.message_span() = payload;
  slot.arguments_ = reader.rest();
  slot.with_service_ = true;
  step<CallState::Received, CallState::Executing>(slot);
  execute(slot);
  if (!slot.completed_ || slot.state_ != CallState::Executing) [[unlikely]]
    return advance(slot);
  if (!slot.plain_ || !link_.is_open()) [[unlikely]]
    return advance_completed(slot);
  finish_payload(slot);
  if (!stage_plain_reply(slot, kVersion == v2::kVersion)) [[unlikely]]
    return advance_completed(slot);
  step<CallState::Executing, CallState::Pushing, CallState::Replying>(slot);
  end_advance(slot);
}

template <std::uint32_t kVersion>
[[gnu::cold, gnu::noinline]] void Responder::begin_plain_call(std::uint16_t buffer,
                                                              std::span<const std::byte> bytes) noexcept {
  ReceivedMessage& message = next_message();
  message.begin_plain(buffer, bytes, kVersion, kPlainHeaderBytes<kVersion>);
  on_call(message, kNoRefusal);
}

template void Responder::on_plain_call<v1::kVersion>(std::uint16_t, std::span<const std::byte>) noexcept;
template void Responder::on_plain_call<v2::kVersion>(std::uint16_t, std::span<const std::byte>) noexcept;

// --- Calls that need all checks

void Responder::on_call(const ReceivedMessage& message, const Refusal& refusal) noexcept {
  const bool held = holds_calls_;
  const bool first = pending_.empty() || serving_pending_ || (held && refusal);
  if (first && !free_.empty() && (!held || refusal)) return begin(message, refusal);
  // The call must wait, to preserve the order of calls. If every message uses a credit, the intake counts
  // overruns.
  if (replying_ == 0 && !link_.rules().credit_per_message) ++link_.counters().credit_overruns;
  ++link_.counters().waits_call_slot;
  if (pending_.push_back({message, refusal})) return;
  link_.context().assembly.release(message.assembly);
  link_.close(CloseReason::TransportError);
}

void Responder::begin(const ReceivedMessage& message, const Refusal& refusal) noexcept {
  SLUICE_INVARIANT_DEBUG(!free_.empty() && link_.is_open(), pool_balance);
  CallSlot& slot = take_slot();
  if (&message != &slot.message_) slot.message_ = message;
  slot.offered_results_ = message.header.chunks.writes.size();
  slot.plain_ = link_.config().shortcuts && message.header.chunks.empty() &&
                message.header.invalidate == rdma::Rkey{} && !refusal && message.assembly == nullptr;
  slot.holds_receive_ = message.buffer != kNoReceive;
  slot.refusal_ = refusal;
  start(slot);
  advance(slot);
}

void Responder::serve_pending() noexcept {
  if (pending_.empty() || holds_calls_) return;
  serving_pending_ = true;
  while (!pending_.empty() && !free_.empty() && link_.is_open()) {
    const Pending pending = pending_.front();
    pending_.pop_front();
    begin(pending.message, pending.refusal);
  }
  serving_pending_ = false;
}

/// Refuses a call. Version 1 answers every error but Vers with ERR_CHUNK.
void Responder::refuse(CallSlot& slot, std::uint64_t& counter, const v2::Error& error) noexcept {
  ++counter;
  slot.refusal_ = error;
  slot.plain_ = false;
  set_state(slot, CallState::Pushing);
}

/// Runs steps 9 and 11 of the order of checks of version 2, except the checks that version 1 has as well; see
/// VersionRules::limits_chunks.
bool Responder::within_chunk_limits(CallSlot& slot) noexcept {
  Counters& counters = link_.counters();
  const ChunkLists& chunks = slot.message_.header.chunks;
  const Version2Config& limits = link_.config().version2;
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
  const std::uint32_t max_read_chunks = smaller_of(limits.max_read_chunks, kMaxReadPositions);
  if (positions > max_read_chunks)
    return refuse(slot, counters.too_many_chunks,
                  {.code = v2::ErrorCode::ReadChunks, .maximum = max_read_chunks}),
           false;
  if (chunks.writes.size() > limits.max_write_chunks)
    return refuse(slot, counters.too_many_chunks, too_many_write_chunks(limits)), false;
  const std::uint32_t max_segments = session_.own_parameters().max_segments;
  if (segments > max_segments)
    return refuse(slot, counters.too_many_segments,
                  {.code = v2::ErrorCode::Segments, .maximum = max_segments}),
           false;
  return true;
}

void Responder::check_call(CallSlot& slot) noexcept {
  Counters& counters = link_.counters();
  const MessageHeader& header = slot.message_.header;
  if (slot.refusal_) {
    set_state(slot, CallState::Pushing);
    return;
  }
  const bool has_chunks = !header.chunks.empty();
  if (has_chunks && context_.failed_transfers.take(slot.peer(), header.fixed.xid, link_.context().now_ns()))
    return refuse(slot, counters.failed_transfer_refused, kRefuseSystem);
  if (has_chunks && link_.rules().limits_chunks && !within_chunk_limits(slot)) return;

  const auto payload = header.no_msg ? std::span<const std::byte>{} : slot.message_.payload();
  if (!header.no_msg) {
    if (!xid_agrees(slot, payload)) return;
    if (header.chunks.reads.empty()) return dispatch(slot, payload);
  }

  slot.layout_ =
      lay_out_call(header.chunks.reads, header.no_msg, payload.size(), context_.memory.calls.most_bytes());
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
    set_state(slot, CallState::AwaitingCallMemory);
  else if (slot.layout_.chunk_count == 0)
    dispatch_payload(slot);  // the Read list has only empty segments
  else
    place_call(slot);
}

bool Responder::decode_rpc(CallSlot& slot, xdr::Reader& reader) noexcept {
  return find_service(slot, reader, [this, &slot] { return prepare_results(slot); });
}

void Responder::refuse_program(CallSlot& slot) noexcept {
  ++link_.counters().program_unavailable;
  const std::optional<rpc::VersionRange> versions =
      context_.services.versions_of(slot.header_.program, link_.config().services_at);
  slot.supported_ = versions.value_or(rpc::VersionRange{});
  slot.stat_ = versions ? rpc::AcceptStat::ProgMismatch : rpc::AcceptStat::ProgUnavail;
  answer(slot, CallSlot::Outcome::AcceptError);
}

/// Dispatches a call that was assembled from its Read chunks.
void Responder::dispatch_pulled(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.call_memory_ != nullptr, call_slot_state);
  const std::span<const std::byte> message{slot.call_memory_, slot.layout_.message_bytes};
  if (xid_agrees(slot, message)) dispatch(slot, message);
}

void Responder::dispatch_payload(CallSlot& slot) noexcept {
  dispatch(slot, slot.message_.payload());
}

/// Dispatches a call that is complete in `message`. Its XID has been checked against the transport header.
[[gnu::always_inline]] inline void Responder::dispatch(CallSlot& slot,
                                                       std::span<const std::byte> message) noexcept {
  xdr::Reader reader(message);
  if (!decode_rpc(slot, reader)) return;
  if (slot.call_memory_ != nullptr && slot.message_.header.no_msg) {
    const CallLayout pulled = slot.layout_;
    if (!keep_eligible_chunks(slot)) return;
    if (slot.layout_.chunk_count < pulled.chunk_count) {
      close_gaps(slot, pulled);
      reader = xdr::Reader({slot.call_memory_, slot.layout_.message_bytes});
      rpc::decode_call(reader, slot.header_);
    }
  }
  slot.message_span() = message.first(reader.position() + reader.remaining());
  slot.arguments_ = reader.rest();
  if (slot.call_memory_ != nullptr && !chunks_stand_at_items(slot))
    return refuse(slot, link_.counters().not_eligible);
  if (slot.call_memory_ != nullptr && !counts_agree(slot)) {
    if (link_.rules().exact_chunks) return refuse(slot, link_.counters().count_mismatch);
    slot.stat_ = rpc::AcceptStat::GarbageArgs;
    return answer(slot, CallSlot::Outcome::AcceptError);
  }
  run_service(slot);
}

/// Drops the chunks that the binding has no item for, or refuses the call. Returns false if the call was
/// refused.
bool Responder::keep_eligible_chunks(CallSlot& slot) noexcept {
  const service::Binding& binding = *slot.binding_;
  CallLayout& layout = slot.layout_;
  const std::uint32_t eligible = binding.procedure(slot.header_.procedure).eligible_arguments;
  if (layout.chunk_count <= eligible) return true;
  if (binding.unusable == service::UnusableChunks::Refuse || link_.rules().refuses_ineligible_reads)
    return refuse(slot, link_.counters().not_eligible), false;
  ++link_.counters().not_eligible;
  for (std::uint32_t i = eligible; i < layout.chunk_count; ++i)
    layout.message_bytes -= xdr::padded(layout.chunks[i].bytes);
  layout.chunk_count = eligible;
  return true;
}

/// Compares the count word of each eligible item, a counted opaque, with the length of its chunk.
bool Responder::counts_agree(const CallSlot& slot) const noexcept {
  for (std::uint32_t i = 0; i < slot.layout_.chunk_count; ++i) {
    const ReadChunk& chunk = slot.layout_.chunks[i];
    const std::uint32_t count = xdr::load_u32(slot.call_memory_ + chunk.position - xdr::kUnit);
    const std::uint64_t most = link_.rules().exact_chunks ? count : xdr::padded(count);
    if (chunk.bytes < count || chunk.bytes > most) return false;
  }
  return true;
}

/// Checks that chunks are at the positions of eligible items. Required where the procedure alone does not
/// determine them, as in a COMPOUND (RFC 8267, section 6). Positions behind an unknown operation cannot be
/// checked. The service refuses that operation. An ERR_CHUNK would leave the client without a reply to the
/// operations before it.
bool Responder::chunks_stand_at_items(const CallSlot& slot) const noexcept {
  const service::Binding& binding = *slot.binding_;
  if (!binding.checks_positions || slot.layout_.chunk_count == 0) return true;
  if (rpc::is_wrapped(slot.header_.credential)) return false;
  std::array<service::Item, kMaxReadPositions + service::kMaxResultItems> items;
  const std::size_t count = binding.argument_items(slot.header_.procedure, slot.arguments_, items);
  const std::size_t arguments_at = slot.message_span().size() - slot.arguments_.size();
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < slot.layout_.chunk_count; ++i) {
    const std::size_t position = slot.layout_.chunks[i].position;
    while (next < count && arguments_at + items[next].offset < position) ++next;
    if (next < count && arguments_at + items[next].offset == position) continue;
    const std::optional<std::size_t> unknown =
        binding.unknown_operation_at != nullptr
            ? binding.unknown_operation_at(slot.header_.procedure, slot.arguments_)
            : std::nullopt;
    return unknown && position > arguments_at + *unknown;
  }
  return true;
}

/// Closes the gaps that keep_eligible_chunks() left in an assembled message by moving the stream.
void Responder::close_gaps(CallSlot& slot, const CallLayout& pulled) noexcept {
  std::uint64_t to = pulled.chunks[slot.layout_.chunk_count].position;
  for (std::uint32_t i = slot.layout_.chunk_count; i < pulled.chunk_count; ++i) {
    const std::uint64_t from = pulled.chunks[i].position + xdr::padded(pulled.chunks[i].bytes);
    const std::uint64_t end =
        i + 1 < pulled.chunk_count ? pulled.chunks[i + 1].position : pulled.message_bytes;
    SLUICE_INVARIANT_DEBUG(to <= from && from <= end && end <= pulled.message_bytes, buffer_bounds);
    std::memmove(slot.call_memory_ + to, slot.call_memory_ + from, end - from);
    to += end - from;
  }
}

void Responder::run_service(CallSlot& slot) noexcept {
  enter_service(slot);
  execute(slot);
}

void Responder::await_reply_memory(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(!slot.completed_ && !slot.waits(), call_slot_state);
  if (slot.impossible_) return on_complete(slot, rpc::AcceptStat::SystemErr);
  ++link_.counters().waits_reply_memory;
  set_state(slot, CallState::AwaitingReplyMemory);
  context_.memory.replies.await(reply_account_, slot.wanted_results_, slot);
}

}  // namespace sluice::rpcrdma
