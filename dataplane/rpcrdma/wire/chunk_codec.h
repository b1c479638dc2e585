// SPDX-License-Identifier: Apache-2.0
//
// Codec of the chunk lists, whose encoding is identical in versions 1 and 2 (RFC 8166, section 4.3; version 2
// draft, section 6.3.3). Pure functions over bytes, any thread.
#pragma once

#include <optional>
#include <span>

#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/wire/header.h"

namespace sluice::rpcrdma {

/// The chunk lists of a call that a requester makes.
struct CallChunks {
  std::span<const ReadSegment> reads;  ///< ascending positions (V1-081)
  std::span<const std::span<const Segment>> writes;
  std::optional<std::span<const Segment>> reply;
};

/// The chunk lists of a call as its reply returns them: same chunks, segments, handles and offsets, with the
/// lengths replaced by what was written (V1-095, V1-096, V1-124). A reply has no Read list (V1-090).
struct ReplyChunks {
  WriteList writes;
  std::span<const std::uint64_t> written;  ///< bytes per Write chunk, in order; missing ones are zero
  std::optional<WriteChunk> reply;
  std::uint64_t reply_written = 0;
};

enum class ChunkDefect : std::uint8_t {
  None,
  Malformed,
  TooMany,        ///< well formed as far as read, but exceeds our limits
  TooManyWrites,  ///< well formed as far as read, but has too many Write chunks
};

/// Three empty chunk fields.
inline constexpr std::size_t kEmptyChunksBytes = 3 * kDiscriminatorBytes;

/// Walks the chunk fields. Each step checks its bounds against the remaining bytes and never relies on a
/// count alone.
class ChunkCursor {
 public:
  ChunkCursor(const std::byte* at, const std::byte* end) noexcept : at_(at), end_(end) {}

  ChunkDefect defect() const noexcept { return defect_; }
  const std::byte* at() const noexcept { return at_; }

  /// Skips three empty chunk fields, which is the common case. Returns false, without moving, if any field is
  /// not empty.
  bool skip_empty() noexcept {
    if (left() < kEmptyChunksBytes || xdr::load_u64(at_) != 0 || xdr::load_u32(at_ + 8) != 0) return false;
    at_ += kEmptyChunksBytes;
    return true;
  }

  ChunkLists lists() noexcept {
    ChunkLists result;
    result.reads = read_list();
    result.writes = write_list();
    result.reply = reply_chunk();
    return result;
  }

 private:
  ReadList read_list() noexcept {
    const std::byte* entries = at_;
    std::uint32_t count = 0;
    while (discriminator()) {
      if (count == kMaxReadSegments) return reject(ChunkDefect::TooMany), ReadList{};
      if (!take(kReadSegmentBytes)) return {};
      ++count;
    }
    return {entries, count};
  }

  WriteList write_list() noexcept {
    const std::byte* entries = at_;
    std::uint32_t chunks = 0;
    std::uint32_t segments = 0;
    while (discriminator()) {
      if (chunks == kMaxWriteChunks) return reject(ChunkDefect::TooManyWrites), WriteList{};
      segments += segment_array(kMaxWriteSegments - segments);
      if (defect_ != ChunkDefect::None) return {};
      ++chunks;
    }
    return {entries, chunks, segments};
  }

  std::optional<WriteChunk> reply_chunk() noexcept {
    if (!discriminator()) return std::nullopt;
    const std::byte* count_word = at_;
    segment_array(kMaxWriteSegments);
    return WriteChunk(count_word);
  }

  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  void reject(ChunkDefect why) noexcept {
    if (defect_ == ChunkDefect::None) defect_ = why;
  }

  bool take(std::size_t bytes) noexcept {
    if (bytes > left()) return reject(ChunkDefect::Malformed), false;
    at_ += bytes;
    return true;
  }

  /// Reads a discriminator. Only 0 and 1 are XDR booleans (V1-013). After a defect it returns "end of list"
  /// so that loops end.
  bool discriminator() noexcept {
    if (defect_ != ChunkDefect::None || left() < kDiscriminatorBytes)
      return reject(ChunkDefect::Malformed), false;
    const std::uint32_t word = xdr::load_u32(at_);
    at_ += kDiscriminatorBytes;
    if (word > 1) reject(ChunkDefect::Malformed);
    return word == 1;
  }

  std::uint32_t segment_array(std::uint32_t limit) noexcept {
    if (left() < 4) return reject(ChunkDefect::Malformed), 0;
    const std::uint32_t count = xdr::load_u32(at_);
    at_ += 4;
    if (std::uint64_t{count} * kSegmentBytes > left()) return reject(ChunkDefect::Malformed), 0;
    if (count > limit) return reject(ChunkDefect::TooMany), 0;
    at_ += std::size_t{count} * kSegmentBytes;
    return count;
  }

  const std::byte* at_;
  const std::byte* end_;
  ChunkDefect defect_ = ChunkDefect::None;
};

inline std::size_t chunks_bytes(const CallChunks& chunks) noexcept {
  std::size_t bytes = kEmptyChunksBytes + chunks.reads.size() * kReadEntryBytes;
  for (const auto& chunk : chunks.writes) bytes += kDiscriminatorBytes + 4 + chunk.size() * kSegmentBytes;
  if (chunks.reply) bytes += 4 + chunks.reply->size() * kSegmentBytes;
  return bytes;
}

inline std::size_t chunks_bytes(const ReplyChunks& chunks) noexcept {
  std::size_t bytes = kEmptyChunksBytes + chunks.writes.size() * (kDiscriminatorBytes + 4) +
                      chunks.writes.total_segments() * kSegmentBytes;
  if (chunks.reply) bytes += chunks.reply->encoded_bytes();
  return bytes;
}

inline void encode_segment(xdr::Writer& writer, const Segment& segment) noexcept {
  writer.u32(static_cast<std::uint32_t>(segment.handle));
  writer.u32(segment.length);
  writer.u64(segment.offset);
}

inline void encode_segments(xdr::Writer& writer, std::span<const Segment> segments) noexcept {
  writer.u32(static_cast<std::uint32_t>(segments.size()));
  for (const Segment& segment : segments) encode_segment(writer, segment);
}

/// Fills segments in array order, each completely before the next (V1-094).
inline void encode_filled(xdr::Writer& writer, const WriteChunk& chunk, std::uint64_t written) noexcept {
  const std::uint32_t count = chunk.size();
  writer.u32(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Segment segment = chunk[i];
    segment.length = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(segment.length, written));
    written -= segment.length;
    encode_segment(writer, segment);
  }
  if (written != 0) writer.fail();
}

inline void encode_chunks(xdr::Writer& writer, const CallChunks& chunks) noexcept {
  if (chunks.reads.empty() && chunks.writes.empty() && !chunks.reply) return writer.words(0, 0, 0);
  for (const ReadSegment& read : chunks.reads) {
    writer.u32(1);
    writer.u32(static_cast<std::uint32_t>(read.position));
    encode_segment(writer, read.target);
  }
  writer.u32(0);
  for (const auto& chunk : chunks.writes) {
    writer.u32(1);
    encode_segments(writer, chunk);
  }
  writer.u32(0);
  writer.boolean(chunks.reply.has_value());
  if (chunks.reply) encode_segments(writer, *chunks.reply);
}

inline void encode_chunks(xdr::Writer& writer, const ReplyChunks& chunks) noexcept {
  if (chunks.writes.empty() && !chunks.reply) return writer.words(0, 0, 0);
  writer.u32(0);
  std::size_t i = 0;
  for (const WriteChunk chunk : chunks.writes) {
    writer.u32(1);
    encode_filled(writer, chunk, i < chunks.written.size() ? chunks.written[i] : 0);
    ++i;
  }
  writer.u32(0);
  writer.boolean(chunks.reply.has_value());
  if (chunks.reply) encode_filled(writer, *chunks.reply, chunks.reply_written);
}

}  // namespace sluice::rpcrdma
