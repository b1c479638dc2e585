// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/v1.h"

#include <algorithm>

namespace sluice::rpcrdma::v1 {
namespace {

/// Walks the chunk fields. Bounds are checked against the bytes left before each step, never by a count
/// alone.
class ChunkCursor {
 public:
  ChunkCursor(const std::byte* at, const std::byte* end) noexcept : at_(at), end_(end) {}

  Decode status() const noexcept { return status_; }
  const std::byte* at() const noexcept { return at_; }

  ReadList read_list() noexcept {
    const std::byte* entries = at_;
    std::uint32_t count = 0;
    while (discriminator()) {
      if (count == kMaxReadSegments) return reject(Decode::TooManySegments), ReadList{};
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
      if (chunks == kMaxWriteChunks) return reject(Decode::TooManySegments), WriteList{};
      segments += segment_array(kMaxWriteSegments - segments);
      if (status_ != Decode::Ok) return {};
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

 private:
  std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }

  void reject(Decode why) noexcept {
    if (status_ == Decode::Ok) status_ = why;
  }

  bool take(std::size_t bytes) noexcept {
    if (bytes > left()) return reject(Decode::BadChunks), false;
    at_ += bytes;
    return true;
  }

  /// Only 0 and 1 are XDR booleans (V1-013); after a defect it says "end of list" so that loops end.
  bool discriminator() noexcept {
    if (status_ != Decode::Ok || left() < kDiscriminatorBytes) return reject(Decode::BadChunks), false;
    const std::uint32_t word = xdr::load_u32(at_);
    at_ += kDiscriminatorBytes;
    if (word > 1) reject(Decode::BadChunks);
    return word == 1;
  }

  std::uint32_t segment_array(std::uint32_t limit) noexcept {
    if (left() < 4) return reject(Decode::BadChunks), 0;
    const std::uint32_t count = xdr::load_u32(at_);
    at_ += 4;
    if (std::uint64_t{count} * kSegmentBytes > left()) return reject(Decode::BadChunks), 0;
    if (count > limit) return reject(Decode::TooManySegments), 0;
    at_ += std::size_t{count} * kSegmentBytes;
    return count;
  }

  const std::byte* at_;
  const std::byte* end_;
  Decode status_ = Decode::Ok;
};

Decode decode_error(std::span<const std::byte> message, Header& header) noexcept {
  xdr::Reader reader(message.subspan(kFixedBytes));
  const std::uint32_t code = reader.u32();
  if (code == static_cast<std::uint32_t>(ErrorCode::Vers)) {
    header.supported = {reader.u32(), reader.u32()};
  } else if (code != static_cast<std::uint32_t>(ErrorCode::Chunk)) {
    return Decode::BadError;
  }
  header.error = static_cast<ErrorCode>(code);
  header.header_bytes = kFixedBytes + reader.position();
  return reader.ok() ? Decode::Ok : Decode::BadError;
}

/// rdma_align and rdma_thresh, in front of the chunk fields of RDMA_MSGP only.
constexpr std::size_t kMsgPWordsBytes = 8;

Decode decode_chunk_fields(std::span<const std::byte> message, std::size_t from, Header& header) noexcept {
  if (message.size() < from) return Decode::BadChunks;
  ChunkCursor cursor(message.data() + from, message.data() + message.size());
  header.chunks.reads = cursor.read_list();
  header.chunks.writes = cursor.write_list();
  header.chunks.reply = cursor.reply_chunk();
  header.header_bytes = static_cast<std::size_t>(cursor.at() - message.data());
  return cursor.status();
}

void encode_fixed(xdr::Writer& writer, rpc::Xid xid, std::uint32_t version, Credits credits,
                  Procedure procedure) noexcept {
  writer.u32(static_cast<std::uint32_t>(xid));
  writer.u32(version);
  writer.u32(static_cast<std::uint32_t>(credits));
  writer.u32(static_cast<std::uint32_t>(procedure));
}

void encode_segment(xdr::Writer& writer, const Segment& segment) noexcept {
  writer.u32(static_cast<std::uint32_t>(segment.handle));
  writer.u32(segment.length);
  writer.u64(segment.offset);
}

void encode_segments(xdr::Writer& writer, std::span<const Segment> segments) noexcept {
  writer.u32(static_cast<std::uint32_t>(segments.size()));
  for (const Segment& segment : segments) encode_segment(writer, segment);
}

/// Fills segments in array order, each completely before the next (V1-094).
void encode_filled(xdr::Writer& writer, const WriteChunk& chunk, std::uint64_t written) noexcept {
  const std::uint32_t count = chunk.size();
  writer.u32(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    Segment segment = chunk[i];
    segment.length = static_cast<std::uint32_t>(std::min<std::uint64_t>(segment.length, written));
    written -= segment.length;
    encode_segment(writer, segment);
  }
  if (written != 0) writer.fail();
}

}  // namespace

DecodeResult decode(std::span<const std::byte> message) noexcept {
  DecodeResult result;
  Header& header = result.header;
  if (message.size() < kFixedBytes) return result;
  header.fixed = load_fixed(message.data());

  // An RDMA_ERROR is parsable whatever its version says; every other procedure is judged by version first.
  if (header.fixed.procedure == static_cast<std::uint32_t>(Procedure::Error)) {
    header.procedure = Procedure::Error;
    result.status = decode_error(message, header);
    return result;
  }
  if (header.fixed.version != kVersion) return result.status = Decode::BadVersion, result;

  header.procedure = static_cast<Procedure>(header.fixed.procedure);
  switch (header.procedure) {
    case Procedure::Done:
      header.header_bytes = kFixedBytes;
      result.status = Decode::Ok;
      break;
    case Procedure::Msg:
    case Procedure::NoMsg:
      if (message.size() < kMinMsgHeaderBytes) break;
      result.status = decode_chunk_fields(message, kFixedBytes, header);
      break;
    case Procedure::MsgP:
      if (message.size() < kMinMsgHeaderBytes) break;
      result.status = decode_chunk_fields(message, kFixedBytes + kMsgPWordsBytes, header);
      break;
    default:
      result.status = Decode::BadProcedure;
  }
  return result;
}

std::size_t header_bytes(const CallChunks& chunks) noexcept {
  std::size_t bytes = kMinMsgHeaderBytes + chunks.reads.size() * kReadEntryBytes;
  for (const auto& chunk : chunks.writes) bytes += kDiscriminatorBytes + 4 + chunk.size() * kSegmentBytes;
  if (chunks.reply) bytes += 4 + chunks.reply->size() * kSegmentBytes;
  return bytes;
}

void encode_call(xdr::Writer& writer, rpc::Xid xid, Credits requested, Procedure procedure,
                 const CallChunks& chunks) noexcept {
  encode_fixed(writer, xid, kVersion, requested, procedure);
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

std::size_t header_bytes(const ReplyChunks& chunks) noexcept {
  std::size_t bytes = kMinMsgHeaderBytes + chunks.writes.size() * (kDiscriminatorBytes + 4) +
                      chunks.writes.total_segments() * kSegmentBytes;
  if (chunks.reply) bytes += chunks.reply->encoded_bytes();
  return bytes;
}

void encode_reply(xdr::Writer& writer, rpc::Xid xid, Credits granted, Procedure procedure,
                  const ReplyChunks& chunks) noexcept {
  encode_fixed(writer, xid, kVersion, granted, procedure);
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

void encode_err_vers(xdr::Writer& writer, const FixedHeader& failing, Credits granted) noexcept {
  encode_fixed(writer, failing.xid, failing.version, granted, Procedure::Error);
  writer.u32(static_cast<std::uint32_t>(ErrorCode::Vers));
  writer.u32(kVersion);
  writer.u32(kVersion);
}

void encode_err_chunk(xdr::Writer& writer, const FixedHeader& failing, Credits granted) noexcept {
  encode_fixed(writer, failing.xid, failing.version, granted, Procedure::Error);
  writer.u32(static_cast<std::uint32_t>(ErrorCode::Chunk));
}

}  // namespace sluice::rpcrdma::v1
