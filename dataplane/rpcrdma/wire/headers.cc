// SPDX-License-Identifier: Apache-2.0
//
// Decoding, validation and encoding of the transport headers of both versions.
#include "dataplane/rpcrdma/wire/v1.h"

#include "dataplane/rpcrdma/wire/v2.h"

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

  // An RDMA_ERROR can be parsed regardless of its version; every other procedure is validated by version
  // first.
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

namespace sluice::rpcrdma::v2 {
namespace {

// Lengths of error messages in the format of RFC 8166 (D2-01).
constexpr std::size_t kRfc8166ErrVersBytes = 28;
constexpr std::size_t kRfc8166ErrChunkBytes = 20;
constexpr std::uint32_t kRfc8166ErrVers = 1;

/// Decodes an error. The two formats of RFC 8166 are possible only while the version is open. They are
/// unambiguous because the first message has no chunks, so a version 2 error of 28 bytes cannot be an answer
/// to it.
Decode decode_error(std::span<const std::byte> message, Negotiation negotiation, Header& header) noexcept {
  header.type = HeaderType::Error;
  if (negotiation == Negotiation::Open && message.size() == kRfc8166ErrChunkBytes) return Decode::NoVersion2;
  xdr::Reader reader(message.subspan(kFixedBytes));
  Error& error = header.error;
  const bool rfc8166 = negotiation == Negotiation::Open && message.size() == kRfc8166ErrVersBytes;
  header.flags = rfc8166 ? std::uint32_t{kResponse} : reader.u32();
  error.code = static_cast<ErrorCode>(reader.u32());
  if (rfc8166 && static_cast<std::uint32_t>(error.code) != kRfc8166ErrVers) return Decode::BadError;
  switch (error.code) {
    case ErrorCode::Vers:
      error.supported = {reader.u32(), reader.u32()};
      break;
    case ErrorCode::ReadChunks:
    case ErrorCode::WriteChunks:
    case ErrorCode::Segments:
      error.maximum = reader.u32();
      break;
    case ErrorCode::WriteResource:
      error.chunk_index = reader.u32();
      error.bytes_needed = reader.u32();
      break;
    case ErrorCode::ReplyResource:
      error.bytes_needed = reader.u32();
      break;
    default:
      break;
  }
  header.header_bytes = kFixedBytes + reader.position();
  return reader.ok() ? Decode::Ok : Decode::BadError;
}

Decode decode_chunk_fields(std::span<const std::byte> message, Header& header) noexcept {
  if (message.size() < kMinMsgHeaderBytes) return Decode::BadXdr;
  header.invalidate = static_cast<rdma::Rkey>(xdr::load_u32(message.data() + kPrefixBytes));
  ChunkCursor cursor(message.data() + kPrefixBytes + 4, message.data() + message.size());
  if (!cursor.skip_empty()) header.chunks = cursor.lists();
  header.header_bytes = static_cast<std::size_t>(cursor.at() - message.data());
  if (cursor.defect() == ChunkDefect::Malformed) return Decode::BadXdr;
  const bool left_over = header.header_bytes < message.size();
  // Bytes after a NoMsg have no meaning (D2-31). A Msg without any payload is an empty part (D2-30).
  if (cursor.defect() == ChunkDefect::None && (header.type == HeaderType::NoMsg) == left_over)
    return Decode::BadXdr;
  if (header.more() && !header.chunks.empty()) return Decode::BadFlags;
  if (cursor.defect() == ChunkDefect::TooManyWrites) return Decode::TooManyWrites;
  return cursor.defect() == ChunkDefect::None ? Decode::Ok : Decode::TooManySegments;
}

void encode_prefix(xdr::Writer& writer, const Prefix& prefix, HeaderType type) noexcept {
  writer.words(prefix.xid, kVersion, prefix.credit.word(), type, prefix.flags);
}

void encode_word_property(xdr::Writer& writer, PropertyId id, std::uint32_t value) noexcept {
  writer.u32(static_cast<std::uint32_t>(id));
  writer.u32(4);
  writer.u32(value);
}

}  // namespace

DecodeResult decode(std::span<const std::byte> message, Negotiation negotiation) noexcept {
  DecodeResult result;
  Header& header = result.header;
  if (message.size() < kFixedBytes) return result;
  header.fixed = load_fixed(message.data());
  header.credit = CreditWord::of(static_cast<std::uint32_t>(header.fixed.credits));

  // An error is decoded regardless of its version, as in version 1.
  if (header.fixed.procedure == static_cast<std::uint32_t>(HeaderType::Error)) {
    result.status = decode_error(message, negotiation, header);
    return result;
  }
  if (header.fixed.version != kVersion) {
    result.status = Decode::BadVersion;
    return result;
  }
  if (message.size() < kPrefixBytes) return result;
  header.flags = xdr::load_u32(message.data() + kFixedBytes);
  header.header_bytes = kPrefixBytes;
  header.type = static_cast<HeaderType>(header.fixed.procedure);
  const bool known = header.type == HeaderType::Msg || header.type == HeaderType::NoMsg ||
                     header.type == HeaderType::ConnProp;
  if (!known) {
    result.status = Decode::BadType;
  } else if ((header.flags & ~kKnownFlags) != 0 || (header.more() && header.type == HeaderType::NoMsg)) {
    result.status = Decode::BadFlags;
  } else if (header.type == HeaderType::ConnProp) {
    header.properties = message.subspan(kPrefixBytes);
    result.status = header.properties.empty() ? Decode::BadXdr : Decode::Ok;
  } else {
    result.status = decode_chunk_fields(message, header);
  }
  return result;
}

std::optional<Properties> decode_properties(std::span<const std::byte> body) noexcept {
  constexpr std::size_t kLeastPropertyBytes = 8;
  Properties properties;
  xdr::Reader reader(body);
  const std::uint32_t count = reader.u32();
  if (count > reader.remaining() / kLeastPropertyBytes) return std::nullopt;
  std::uint32_t seen = 0;  // bit by id; a repeated known id is a defect (D2-23)
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t id = reader.u32();
    const std::uint32_t length = reader.u32();
    if (length > reader.remaining()) return std::nullopt;
    const auto data = reader.opaque_fixed(length);
    if (!reader.ok()) return std::nullopt;
    if (id < static_cast<std::uint32_t>(PropertyId::MaxSendSize) ||
        id > static_cast<std::uint32_t>(PropertyId::HostAuthentication))
      continue;  // unknown: skipped (V2-053)
    if ((seen >> id & 1) != 0) return std::nullopt;
    seen |= 1u << id;
    if (length == 0) continue;  // the property keeps its default
    if (static_cast<PropertyId>(id) == PropertyId::HostAuthentication) {
      xdr::Reader inner(data);
      const std::uint32_t bytes = inner.u32();
      if (!inner.ok() || xdr::padded(bytes) != inner.remaining()) return std::nullopt;
      properties.host_authentication = inner.opaque_fixed(bytes);
      continue;
    }
    if (length != 4) return std::nullopt;
    const std::uint32_t value = xdr::load_u32(data.data());
    switch (static_cast<PropertyId>(id)) {
      case PropertyId::MaxSendSize:
        properties.max_send_bytes = value;
        break;
      case PropertyId::ReceiveBufferSize:
        properties.receive_buffer_bytes = value;
        break;
      case PropertyId::MaxSegmentSize:
        properties.max_segment_bytes = value;
        break;
      case PropertyId::MaxSegmentCount:
        properties.max_segments = value;
        break;
      case PropertyId::ReverseSupport:
        // A value that cannot be interpreted counts as the default (V2-061).
        if (value <= static_cast<std::uint32_t>(ReverseSupport::General))
          properties.reverse = static_cast<ReverseSupport>(value);
        break;
      case PropertyId::HostAuthentication:
        break;
    }
  }
  if (!reader.ok() || reader.remaining() != 0) return std::nullopt;
  return properties;
}

std::size_t header_bytes(const CallChunks& chunks) noexcept {
  return kPrefixBytes + 4 + chunks_bytes(chunks);
}

std::size_t header_bytes(const ReplyChunks& chunks) noexcept {
  return kPrefixBytes + 4 + chunks_bytes(chunks);
}

void encode_call(xdr::Writer& writer, const Prefix& prefix, HeaderType type, rdma::Rkey invalidate,
                 const CallChunks& chunks) noexcept {
  writer.words(prefix.xid, kVersion, prefix.credit.word(), type, prefix.flags, invalidate);
  encode_chunks(writer, chunks);
}

void encode_reply(xdr::Writer& writer, const Prefix& prefix, HeaderType type,
                  const ReplyChunks& chunks) noexcept {
  writer.words(prefix.xid, kVersion, prefix.credit.word(), type, prefix.flags | kResponse, 0);
  encode_chunks(writer, chunks);
}

void encode_grant(xdr::Writer& writer, CreditWord credit) noexcept {
  encode_call(writer, {.xid = {}, .credit = credit}, HeaderType::NoMsg, {}, {});
}

void encode_error(xdr::Writer& writer, rpc::Xid xid, std::uint16_t limit, const Error& error) noexcept {
  encode_prefix(writer, {.xid = xid, .credit = {0, limit}, .flags = kResponse}, HeaderType::Error);
  writer.u32(static_cast<std::uint32_t>(error.code));
  switch (error.code) {
    case ErrorCode::ReadChunks:
    case ErrorCode::WriteChunks:
    case ErrorCode::Segments:
      writer.u32(error.maximum);
      break;
    case ErrorCode::WriteResource:
      writer.u32(error.chunk_index);
      writer.u32(error.bytes_needed);
      break;
    case ErrorCode::ReplyResource:
      writer.u32(error.bytes_needed);
      break;
    case ErrorCode::Vers:
      writer.fail();  // ERR_VERS is encoded by v1::encode_err_vers()
      break;
    default:
      break;
  }
}

void encode_connprop(xdr::Writer& writer, const Prefix& prefix) noexcept {
  encode_prefix(writer, prefix, HeaderType::ConnProp);
}

void encode_parameters(xdr::Writer& writer, const Parameters& parameters) noexcept {
  writer.u32(5);
  encode_word_property(writer, PropertyId::MaxSendSize, parameters.max_send_bytes);
  encode_word_property(writer, PropertyId::ReceiveBufferSize, parameters.receive_buffer_bytes);
  encode_word_property(writer, PropertyId::MaxSegmentSize, parameters.max_segment_bytes);
  encode_word_property(writer, PropertyId::MaxSegmentCount, parameters.max_segments);
  encode_word_property(writer, PropertyId::ReverseSupport, static_cast<std::uint32_t>(parameters.reverse));
}

void encode_host_authentication(xdr::Writer& writer, std::span<const std::byte> octets) noexcept {
  writer.u32(1);
  writer.u32(static_cast<std::uint32_t>(PropertyId::HostAuthentication));
  writer.u32(static_cast<std::uint32_t>(4 + xdr::padded(octets.size())));
  writer.opaque(octets);
}

}  // namespace sluice::rpcrdma::v2
