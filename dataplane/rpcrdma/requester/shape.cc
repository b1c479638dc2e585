// SPDX-License-Identifier: Apache-2.0
//
// Selects the shape of a call: inline, with Read and Write chunks, as a long call, in parts, or with a Reply
// chunk. Also puts arguments back into the payload where the responder requires it, and moves arguments and
// results through bounce buffers where the configuration requires it.
#include "dataplane/base/invariant.h"

#include <cstring>

#include "dataplane/base/siphash.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/requester/steps.h"

namespace sluice::rpcrdma {
rdma::Sge Requester::payload_of(const Slot& slot) const noexcept {
  if (slot.call_memory != nullptr) return {slot.call_memory, slot.payload_bytes, long_memory_.lkey()};
  return {send_buffer(slot.index) + config_.inline_bytes, slot.payload_bytes, send_region_.lkey};
}

std::uint32_t Requester::max_segment_bytes() const noexcept {
  if (!link_->rules().has_properties) return config_.max_segment_bytes;
  return smaller_of(config_.max_segment_bytes, session_->agreement().max_segment_bytes);
}

std::uint32_t Requester::segments_of(std::uint64_t bytes) const noexcept {
  return static_cast<std::uint32_t>((bytes + max_segment_bytes() - 1) / max_segment_bytes());
}

std::uint32_t Requester::segments_of(std::span<const rdma::Sge> pieces, std::uint64_t bytes) const noexcept {
  std::uint32_t segments = 0;
  for (const rdma::Sge& piece : pieces) {
    const std::uint64_t taken = smaller_of<std::uint64_t>(piece.length, bytes);
    segments += segments_of(taken);
    bytes -= taken;
  }
  return segments;
}

/// Returns the number of segments of the Read items, and removes their pieces from the beginning of `pieces`.
std::uint32_t Requester::take_read_segments(const Slot& slot,
                                            std::span<const rdma::Sge>& pieces) const noexcept {
  std::uint32_t segments = 0;
  for (std::uint32_t i = 0; i < slot.read_items; ++i) {
    if (slot.arguments == Slot::Arguments::InChunks)
      segments += segments_of(pieces.first(slot.chunks->read_pieces[i]));
    pieces = pieces.subspan(slot.chunks->read_pieces[i]);
  }
  return segments;
}

/// Returns true for the common call: no chunks, and one Send for the call and one for its reply.
template <std::uint32_t kVersion>
bool Requester::is_plain(const Slot& slot) const noexcept {
  return slot.read_items + slot.write_items == 0 && !slot.force_long && !slot.force_reply_chunk &&
         slot.call_memory == nullptr && slot.continued_bytes == 0 && slot.reply_chunk_least == 0 &&
         config_.inline_bytes >= v2::kMinMsgHeaderBytes && link_->config().shortcuts &&
         fits_plain<kVersion>(slot.payload_bytes, slot.max_reply_bytes);
}

Requester::Shape Requester::shape_of(const Slot& slot) const noexcept {
  if (link_->speaks_version_2()) {
    if (!is_plain<v2::kVersion>(slot)) return shape_v2(slot);
    return {.header_bytes = v2::kMinMsgHeaderBytes, .possible = true, .plain = true, .version_2 = true};
  }
  if (!is_plain<v1::kVersion>(slot)) return shape_v1(slot);
  return {.header_bytes = kMinMsgHeaderBytes, .possible = true, .plain = true};
}

/// Returns true if the requester has as many long buffers as the call needs simultaneously.
bool Requester::has_buffers_for(const Slot& slot, const Shape& shape) const noexcept {
  return shape.reply_chunk_bytes <= short_replies_.buffer_bytes() || slot.call_memory == nullptr ||
         config_.long_buffers > 1;
}

/// Returns the shape in version 2, with fewer segments in each attempt until it satisfies the responder's
/// limit (V2-051). A continued message replaces the position-zero chunk and the Reply chunk.
Requester::Shape Requester::shape_v2(const Slot& slot) const noexcept {
  std::uint64_t reply_bytes = slot.max_reply_bytes;
  if (slot.results_in_reply)
    for (std::uint32_t i = 0; i < slot.write_items; ++i)
      reply_bytes += xdr::padded(slot.chunks->write_offers[i]);
  const bool chunks = !config_.reverse || (config_.reverse_chunks &&
                                           session_->agreement().reverse == v2::ReverseSupport::General);
  const bool reply_chunk = chunks && (slot.force_reply_chunk || slot.results_in_reply ||
                                      slot.reply_chunk_least > 0 || reply_bytes > config_.continue_up_to);
  const bool long_call = chunks && !no_msg_refused_ &&
                         (slot.force_long || slot.arguments != Slot::Arguments::InChunks ||
                          slot.payload_bytes > larger_of(config_.continue_up_to, link_->send_bytes()));
  if (slot.read_items + slot.write_items == 0 && !long_call && !reply_chunk) {
    Shape plain{.header_bytes = v2::kMinMsgHeaderBytes, .possible = true, .version_2 = true};
    plain.continued = plain.header_bytes + slot.payload_bytes > link_->send_bytes();
    return plain;
  }
  for (const auto& [by_chunk, with_reply] :
       {std::pair{long_call, reply_chunk}, std::pair{false, reply_chunk}, std::pair{false, false}}) {
    const Shape shape = shape_v2(slot, by_chunk, with_reply);
    if (shape.possible && (chunks || shape.segments == 0)) return shape;
  }
  return {};
}

Requester::Shape Requester::shape_v2(const Slot& slot, bool long_call, bool reply_chunk) const noexcept {
  Shape shape{.version_2 = true};
  const std::uint32_t limit = link_->send_bytes();
  std::uint32_t write_segments = 0;
  std::size_t write_bytes = 0;
  std::uint64_t reply_bytes = slot.max_reply_bytes;
  std::span<const rdma::Sge> pieces{slot.chunks->pieces.data(), slot.piece_count};
  std::uint32_t read_segments = take_read_segments(slot, pieces);
  for (std::uint32_t i = 0; i < slot.write_items; ++i) {
    if (slot.results_in_reply) {
      reply_bytes += xdr::padded(slot.chunks->write_offers[i]);
    } else {
      const std::uint32_t segments =
          segments_of(pieces.first(slot.chunks->write_pieces[i]), slot.chunks->write_offers[i]);
      write_bytes += kDiscriminatorBytes + 4 + segments * kSegmentBytes;
      write_segments += segments;
    }
    pieces = pieces.subspan(slot.chunks->write_pieces[i]);
  }
  std::uint32_t reply_segments = 0;
  if (reply_chunk) {
    const std::uint64_t room = larger_of<std::uint64_t>(
        larger_of<std::uint64_t>(reply_bytes, slot.reply_chunk_least), rpc::kMinReplyBytes);
    if (room > long_memory_.buffer_bytes()) return shape;
    shape.reply_chunk_bytes = static_cast<std::uint32_t>(room);
    reply_segments = segments_of(room);
  }
  if (long_call) read_segments += segments_of(std::uint64_t{slot.payload_bytes});
  shape.long_call = long_call;
  shape.segments = read_segments + write_segments + reply_segments;
  shape.header_bytes = v2::kMinMsgHeaderBytes + read_segments * kReadEntryBytes + write_bytes +
                       (reply_chunk ? 4 + reply_segments * kSegmentBytes : 0);
  shape.continued = !long_call && shape.header_bytes + slot.payload_bytes > limit;
  const std::uint32_t most = smaller_of(session_->agreement().max_segments, slot.max_segments);
  shape.possible = shape.header_bytes + xdr::kUnit <= limit && shape.header_bytes <= config_.inline_bytes &&
                   shape.segments <= most && shape.segments <= kMaxRequestSegments &&
                   shape.segments <= windows_.size() && has_buffers_for(slot, shape);
  return shape;
}

Requester::Shape Requester::shape_v1(const Slot& slot) const noexcept {
  const ConnectionConfig& connection = link_->config();
  Shape shape;
  std::size_t write_bytes = 0;
  std::span<const rdma::Sge> pieces{slot.chunks->pieces.data(), slot.piece_count};
  const std::uint32_t read_segments = take_read_segments(slot, pieces);
  for (std::uint32_t i = 0; i < slot.write_items; ++i) {
    const std::uint32_t segments = segments_of(pieces.first(slot.chunks->write_pieces[i]));
    write_bytes += kDiscriminatorBytes + 4 + segments * kSegmentBytes;
    shape.segments += segments;
    pieces = pieces.subspan(slot.chunks->write_pieces[i]);
  }

  // The reply returns the Write list. If reply and Write list exceed our Receive, a Reply chunk is required
  //
  std::size_t reply_chunk_header = 0;
  if (slot.force_reply_chunk ||
      kMinMsgHeaderBytes + write_bytes + slot.max_reply_bytes > connection.receive_inline_bytes) {
    shape.reply_chunk_bytes = larger_of<std::uint32_t>(slot.max_reply_bytes, rpc::kMinReplyBytes);
    const std::uint32_t segments =
        (shape.reply_chunk_bytes + config_.max_segment_bytes - 1) / config_.max_segment_bytes;
    reply_chunk_header = 4 + segments * kSegmentBytes;
    shape.segments += segments;
  }
  shape.header_bytes =
      kMinMsgHeaderBytes + read_segments * kReadEntryBytes + write_bytes + reply_chunk_header;
  shape.segments += read_segments;
  shape.long_call = slot.force_long || shape.header_bytes + slot.payload_bytes > connection.send_inline_bytes;
  if (shape.long_call) {
    const std::uint32_t segments =
        (slot.payload_bytes + config_.max_segment_bytes - 1) / config_.max_segment_bytes;
    shape.header_bytes += segments * kReadEntryBytes;
    shape.segments += segments;
  }
  if (config_.reverse && !shape.long_call && slot.read_items + slot.write_items == 0) {
    shape.header_bytes = kMinMsgHeaderBytes;  // no Reply chunk in this direction
    shape.reply_chunk_bytes = 0;
    shape.segments = 0;
  }
  shape.possible = shape.header_bytes <= connection.send_inline_bytes &&
                   shape.header_bytes <= config_.inline_bytes && shape.segments <= kMaxRequestSegments &&
                   shape.segments <= windows_.size() &&
                   shape.reply_chunk_bytes <= long_memory_.buffer_bytes() && has_buffers_for(slot, shape) &&
                   (!config_.reverse || shape.segments == 0);
  return shape;
}

// --- Arguments that return to the payload

/// Returns the length of the call with all its arguments in the payload.
std::uint64_t Requester::unreduced_bytes(const Slot& slot) const noexcept {
  std::uint64_t bytes = slot.payload_bytes;
  std::span<const rdma::Sge> pieces{slot.chunks->pieces.data(), slot.piece_count};
  for (std::uint32_t i = 0; i < slot.read_items; ++i) {
    bytes += xdr::padded(rdma::total_bytes(pieces.first(slot.chunks->read_pieces[i])));
    pieces = pieces.subspan(slot.chunks->read_pieces[i]);
  }
  return bytes;
}

/// Puts the arguments back into the payload, for a responder that supports no Read chunks. Returns false if
/// no memory is available now.
bool Requester::unreduce(Slot& slot) noexcept {
  if (slot.call_memory == nullptr) {
    std::byte* const whole = long_memory_.acquire();
    if (whole == nullptr) {
      ++counters().waits_reply_memory;
      link_->retry_at_turn_end();
      return false;
    }
    std::memcpy(whole, payload_of(slot).address, slot.payload_bytes);
    slot.call_memory = whole;
  }
  // Data is moved in place, from the end, so that nothing is overwritten before it has moved.
  std::byte* const whole = slot.call_memory;
  const std::uint64_t bytes = unreduced_bytes(slot);
  static_cast<void>(SLUICE_INVARIANT(bytes <= long_memory_.buffer_bytes(), buffer_bounds));
  std::uint64_t from = slot.payload_bytes;
  std::uint64_t to = bytes;
  for (std::uint32_t i = slot.read_items; i-- > 0;) {
    std::span<const rdma::Sge> pieces{slot.chunks->pieces.data(), slot.piece_count};
    for (std::uint32_t before = 0; before < i; ++before)
      pieces = pieces.subspan(slot.chunks->read_pieces[before]);
    pieces = pieces.first(slot.chunks->read_pieces[i]);
    const auto item_at = static_cast<std::uint32_t>(slot.chunks->read_positions[i]);
    const std::uint64_t item_end = item_at + xdr::padded(rdma::total_bytes(pieces));
    const std::uint64_t run = to - item_end;
    static_cast<void>(SLUICE_INVARIANT(item_end <= to && run <= from, buffer_bounds));
    from -= run;
    std::memmove(whole + item_end, whole + from, run);
    to = item_at;
    std::byte* at = whole + item_at;
    for (const rdma::Sge& piece : pieces) {
      std::memcpy(at, piece.address, piece.length);
      at += piece.length;
    }
    std::memset(at, 0, static_cast<std::size_t>(whole + item_end - at));
  }
  slot.payload_bytes = static_cast<std::uint32_t>(bytes);
  slot.arguments = Slot::Arguments::InPayload;
  return true;
}

// --- Bounce buffers

bool Requester::result_needs_bounce(std::span<const rdma::Sge> pieces) const noexcept {
  if (config_.single_segment_chunks && pieces.size() > 1) return true;
  return config_.round_up_write_chunks && rdma::total_bytes(pieces) % xdr::kUnit != 0;
}

bool Requester::any_bounces(const Request& request) const noexcept {
  for (const ReadItem& item : request.reads)
    if (config_.single_segment_chunks && item.pieces.size() > 1) return true;
  for (const WriteItem& item : request.writes)
    if (result_needs_bounce(item.pieces)) return true;
  return false;
}

std::byte* Requester::bounce_room(Slot& slot, std::uint64_t bytes) noexcept {
  if (slot.bounce_memory == nullptr || bytes > config_.bounce_buffer_bytes - slot.bounce_used) return nullptr;
  std::byte* room = slot.bounce_memory + slot.bounce_used;
  SLUICE_INVARIANT_DEBUG(slot.bounce_used <= config_.bounce_buffer_bytes, buffer_bounds);
  slot.bounce_used += static_cast<std::uint32_t>(xdr::padded(bytes));
  return room;
}

bool Requester::bounce_argument(Slot& slot, std::span<const rdma::Sge> pieces) noexcept {
  const std::uint64_t bytes = rdma::total_bytes(pieces);
  std::byte* to = bounce_room(slot, bytes);
  if (to == nullptr) return false;
  const rdma::Sge whole{to, static_cast<std::uint32_t>(bytes), bounce_memory_.lkey()};
  for (const rdma::Sge& piece : pieces) {
    std::memcpy(to, piece.address, piece.length);
    to += piece.length;
  }
  return copy_pieces(slot, {&whole, 1});
}

bool Requester::bounce_result(Slot& slot, std::uint32_t item, std::span<const rdma::Sge> pieces) noexcept {
  const std::uint64_t bytes = rdma::total_bytes(pieces);
  const std::uint64_t offered = config_.round_up_write_chunks ? xdr::padded(bytes) : bytes;
  std::byte* from = bounce_room(slot, offered);
  if (from == nullptr || slot.callers_piece_count + pieces.size() > kMaxRequestPieces) return false;
  slot.chunks->bounced[item] = {from, slot.callers_piece_count, static_cast<std::uint8_t>(pieces.size())};
  for (const rdma::Sge& piece : pieces) slot.chunks->callers_pieces[slot.callers_piece_count++] = piece;
  const rdma::Sge whole{from, static_cast<std::uint32_t>(offered), bounce_memory_.lkey()};
  return copy_pieces(slot, {&whole, 1});
}

/// Copies placed results to the caller's memory, without the room for round-up.
void Requester::return_bounced(Slot& slot) noexcept {
  for (std::uint32_t i = 0; i < slot.write_items; ++i) {
    const BouncedResult& bounced = slot.chunks->bounced[i];
    if (bounced.from == nullptr) continue;
    const std::byte* from = bounced.from;
    std::uint64_t left = slot.chunks->returned[i];
    for (std::uint32_t p = 0; p < bounced.pieces && left > 0; ++p) {
      const rdma::Sge& to = slot.chunks->callers_pieces[bounced.first_piece + p];
      SLUICE_INVARIANT_DEBUG(bounced.first_piece + p < slot.callers_piece_count, table_index);
      const auto bytes = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(left, to.length));
      std::memcpy(to.address, from, bytes);
      from += bytes;
      left -= bytes;
    }
  }
}

std::uint64_t Requester::sum_arguments(const Slot& slot) const noexcept {
  static constexpr HashKey kKey{};
  std::uint64_t sum = 0;
  std::uint32_t pieces = 0;
  for (std::uint32_t i = 0; i < slot.read_items; ++i) pieces += slot.chunks->read_pieces[i];
  for (std::uint32_t i = 0; i < pieces; ++i)
    sum = sum * 31 + siphash(kKey, {slot.chunks->pieces[i].address, slot.chunks->pieces[i].length});
  return sum;
}

}  // namespace sluice::rpcrdma
