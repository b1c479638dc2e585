// SPDX-License-Identifier: Apache-2.0
#include "dataplane/rpcrdma/wire/v1.h"

namespace sluice::rpcrdma::v1 {
namespace {

constexpr Decode decode_of(ChunkDefect defect) noexcept {
  switch (defect) {
    case ChunkDefect::None:
      return Decode::Ok;
    case ChunkDefect::Malformed:
      return Decode::BadChunks;
    case ChunkDefect::TooMany:
    case ChunkDefect::TooManyWrites:
      return Decode::TooManySegments;
  }
  return Decode::BadChunks;
}

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
  if (!cursor.skip_empty()) header.chunks = cursor.lists();
  header.header_bytes = static_cast<std::size_t>(cursor.at() - message.data());
  return decode_of(cursor.defect());
}

void encode_fixed(xdr::Writer& writer, rpc::Xid xid, std::uint32_t version, Credits credits,
                  Procedure procedure) noexcept {
  writer.words(xid, version, credits, procedure);
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
  if (header.fixed.version != kVersion) {
    result.status = Decode::BadVersion;
    return result;
  }

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
  return kFixedBytes + chunks_bytes(chunks);
}

void encode_call(xdr::Writer& writer, rpc::Xid xid, Credits requested, Procedure procedure,
                 const CallChunks& chunks) noexcept {
  encode_fixed(writer, xid, kVersion, requested, procedure);
  encode_chunks(writer, chunks);
}

std::size_t header_bytes(const ReplyChunks& chunks) noexcept {
  return kFixedBytes + chunks_bytes(chunks);
}

void encode_reply(xdr::Writer& writer, rpc::Xid xid, Credits granted, Procedure procedure,
                  const ReplyChunks& chunks) noexcept {
  encode_fixed(writer, xid, kVersion, granted, procedure);
  encode_chunks(writer, chunks);
}

void encode_err_vers(xdr::Writer& writer, const FixedHeader& failing, Credits granted,
                     rpc::VersionRange supported) noexcept {
  encode_fixed(writer, failing.xid, failing.version, granted, Procedure::Error);
  writer.u32(static_cast<std::uint32_t>(ErrorCode::Vers));
  writer.u32(supported.low);
  writer.u32(supported.high);
}

void encode_err_chunk(xdr::Writer& writer, const FixedHeader& failing, Credits granted) noexcept {
  encode_fixed(writer, failing.xid, failing.version, granted, Procedure::Error);
  writer.u32(static_cast<std::uint32_t>(ErrorCode::Chunk));
}

}  // namespace sluice::rpcrdma::v1
