// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/responder/call_layout.h"

namespace sluice::rpcrdma {
namespace {

/// Adds a segment to the chunk of its position, keeping chunks in ascending order. False when there are too
/// many.
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
  ++layout.chunk_count;
  return true;
}

/// The chunks have to leave room for each other and for the stream between them.
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

}  // namespace sluice::rpcrdma
