// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA version 1 transport headers (RFC 8166, section 4; rows V1-001 to V1-039). Pure functions over
// byte spans: no allocation, no read outside the span, every count is validated. Any thread.
#pragma once

#include <span>

#include "dataplane/rpcrdma/wire/chunk_codec.h"

namespace sluice::rpcrdma::v1 {

using rpcrdma::CallChunks;
using rpcrdma::ReplyChunks;

inline constexpr std::uint32_t kVersion = 1;

enum class Procedure : std::uint32_t { Msg = 0, NoMsg = 1, MsgP = 2, Done = 3, Error = 4 };
enum class ErrorCode : std::uint32_t { Vers = 1, Chunk = 2 };

enum class Decode : std::uint8_t {
  Ok,
  Fragment,         ///< too short to be complete: drop it and use none of its fields (V1-020, A-06)
  BadVersion,       ///< only header.fixed is valid; answer ERR_VERS (V1-022, V1-023)
  BadProcedure,     ///< only header.fixed is valid; answer ERR_CHUNK (V1-031)
  BadChunks,        ///< a chunk field cannot be decoded; answer ERR_CHUNK (V1-033)
  TooManySegments,  ///< well formed as far as read, but exceeds our limits; answer ERR_CHUNK
  BadError,         ///< an RDMA_ERROR that cannot be used: drop it (V1-028)
};

struct Header {
  FixedHeader fixed;
  Procedure procedure = Procedure::Msg;
  ChunkLists chunks;                   ///< Msg, NoMsg, MsgP
  std::size_t header_bytes = 0;        ///< where the payload stream begins
  ErrorCode error = ErrorCode::Chunk;  ///< Error
  rpc::VersionRange supported;         ///< Error with ErrorCode::Vers
};

struct DecodeResult {
  Decode status = Decode::Fragment;
  Header header;
};

/// Returns true for the common message: an RDMA_MSG without chunks whose payload is an RPC call or reply with
/// the XID of the header. decode() finds no defect in such a message. Only its XID, credits and direction
/// vary.
inline bool is_plain(std::span<const std::byte> message) noexcept {
  if (message.size() < kMinMsgHeaderBytes + 2 * xdr::kUnit) return false;
  const auto word = [at = message.data()](std::size_t i) { return xdr::load_encoded(at + i * xdr::kUnit); };
  const auto pair = [at = message.data()](std::size_t i) {
    return xdr::load_encoded_pair(at + i * xdr::kUnit);
  };
  // Word 3 is the procedure, words 4 to 6 are the chunk lists, words 7 and 8 the XID and direction of the RPC
  // message.
  static_assert(static_cast<std::uint32_t>(Procedure::Msg) == 0);
  static_assert(static_cast<std::uint32_t>(rpc::MessageType::Call) == 0);
  constexpr auto kReply = static_cast<std::uint32_t>(rpc::MessageType::Reply);
  return ((word(1) ^ xdr::encoded(kVersion)) | pair(3) | pair(5) | (word(0) ^ word(7)) |
          (word(8) & ~xdr::encoded(kReply))) == 0;
}
/// Returns true if the payload of a plain message is a reply. Requires is_plain().
inline bool plain_response(const std::byte* at) noexcept {
  return xdr::load_encoded(at + kMinMsgHeaderBytes + xdr::kUnit) != 0;
}

/// Decodes one received Send. An RDMA_ERROR is decoded regardless of its version (V1-018, V1-025).
DecodeResult decode(std::span<const std::byte> message) noexcept;

std::size_t header_bytes(const CallChunks& chunks) noexcept;
void encode_call(xdr::Writer& writer, rpc::Xid xid, Credits requested, Procedure procedure,
                 const CallChunks& chunks) noexcept;

/// Encodes the header of an RDMA_MSG call without chunks, kMinMsgHeaderBytes long.
inline void store_plain_call(std::byte* to, rpc::Xid xid, Credits requested) noexcept {
  xdr::store_words(to, xid, kVersion, requested, Procedure::Msg, 0, 0, 0);
}

std::size_t header_bytes(const ReplyChunks& chunks) noexcept;
void encode_reply(xdr::Writer& writer, rpc::Xid xid, Credits granted, Procedure procedure,
                  const ReplyChunks& chunks) noexcept;

/// Encodes the header of an RDMA_MSG reply without chunks, kMinMsgHeaderBytes long.
inline void store_plain_reply(std::byte* to, rpc::Xid xid, Credits granted) noexcept {
  xdr::store_words(to, xid, kVersion, granted, Procedure::Msg, 0, 0, 0);
}

inline constexpr std::size_t kErrVersBytes = 28;
inline constexpr std::size_t kErrChunkBytes = 20;
/// The errors echo the failing message's XID and version (V1-024). ERR_VERS has one format in all versions
/// (RFC 8166, section 7; D2-01).
void encode_err_vers(xdr::Writer& writer, const FixedHeader& failing, Credits granted,
                     rpc::VersionRange supported = {kVersion, kVersion}) noexcept;
void encode_err_chunk(xdr::Writer& writer, const FixedHeader& failing, Credits granted) noexcept;

}  // namespace sluice::rpcrdma::v1
