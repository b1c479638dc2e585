// SPDX-License-Identifier: Apache-2.0
//
// Positions of the parts of a call with a Read list in the unreduced RPC message (RFC 8166, sections 3.4.5
// and 3.5; rows V1-073 to V1-089, V1-112 to V1-117). Pure functions; any thread.
#pragma once

#include <array>
#include <cstdint>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/header.h"

namespace sluice::rpcrdma {

/// Maximum distinct Positions of one call, without the position-zero chunk.
inline constexpr std::uint32_t kMaxReadPositions = 8;

enum class LayoutDefect : std::uint8_t {
  None,
  Misaligned,         ///< a Position is not a multiple of four (V1-078)
  PositionZeroInMsg,  ///< RDMA_MSG with a position-zero chunk (V1-117)
  NoPositionZero,     ///< RDMA_NOMSG without a position-zero chunk (V1-032)
  BadPosition,        ///< beyond the message, overlapping, inside the RPC header, or too many (V1-089)
  TooLong,            ///< longer than the limit on calls
};

/// One Read chunk: all segments of one Position, in list order.
struct ReadChunk {
  std::uint32_t position = 0;
  std::uint64_t bytes = 0;  ///< sum of the segment lengths, possibly with up to 3 bytes of XDR padding
};

struct CallLayout {
  LayoutDefect defect = LayoutDefect::None;
  std::uint32_t chunk_count = 0;
  /// Read chunks in ascending order, without position zero and without empty chunks.
  std::array<ReadChunk, kMaxReadPositions> chunks;
  std::uint64_t stream_bytes = 0;   ///< payload stream: inline, or in the position-zero chunk
  std::uint64_t message_bytes = 0;  ///< unreduced RPC message, round-up of chunks included
};

/// Computes the layout of a call. `inline_bytes` is the length of the payload after the header (zero for
/// RDMA_NOMSG).
CallLayout lay_out_call(const ReadList& reads, bool long_call, std::uint64_t inline_bytes,
                        std::uint64_t max_call_bytes) noexcept;

/// Calls `emit(Segment remote, std::uint64_t message_offset, std::uint32_t bytes)` for each RDMA Read that
/// transfers a part of the call to its position in the unreduced message. `emit` returns false to stop.
template <typename Emit>
bool for_each_read(const CallLayout& layout, const ReadList& reads, Emit&& emit) {
  std::uint64_t stream_at = 0;    // position in the position-zero chunk
  std::uint32_t next_chunk = 0;   // first chunk that is not yet before stream_at
  std::uint64_t chunk_bytes = 0;  // length of all chunks before stream_at, including round-up
  std::array<std::uint64_t, kMaxReadPositions> filled{};

  for (std::uint32_t i = 0; i < reads.size(); ++i) {
    const ReadSegment read = reads[i];
    Segment remote = read.target;
    if (read.position != Position{0}) {
      std::uint32_t c = 0;
      while (c < layout.chunk_count && layout.chunks[c].position != static_cast<std::uint32_t>(read.position))
        ++c;
      if (c == layout.chunk_count || remote.length == 0) continue;
      if (!emit(remote, layout.chunks[c].position + filled[c], remote.length)) return false;
      filled[c] += remote.length;
      continue;
    }
    while (remote.length > 0) {
      while (next_chunk < layout.chunk_count && stream_at + chunk_bytes == layout.chunks[next_chunk].position)
        chunk_bytes += xdr::padded(layout.chunks[next_chunk++].bytes);
      std::uint64_t run = remote.length;
      if (next_chunk < layout.chunk_count)
        run = smaller_of(run, layout.chunks[next_chunk].position - (stream_at + chunk_bytes));
      const auto bytes = static_cast<std::uint32_t>(run);
      if (!emit(Segment{remote.handle, bytes, remote.offset}, stream_at + chunk_bytes, bytes)) return false;
      remote.offset += bytes;
      remote.length -= bytes;
      stream_at += bytes;
    }
  }
  return true;
}

}  // namespace sluice::rpcrdma
