// SPDX-License-Identifier: Apache-2.0
//
// Differences between the versions of RPC-over-RDMA that the general path of calls and replies depends on,
// each with its source. A link selects the rules when its version is known. The path of plain messages and
// the negotiation ask for the version itself. Constants; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/rpcrdma/link/link_context.h"
#include "dataplane/rpcrdma/wire/v1.h"
#include "dataplane/rpcrdma/wire/v2.h"

namespace sluice::rpcrdma {

/// Fields of a message header other than its chunk lists.
struct HeaderFields {
  rpc::Xid xid{};
  std::uint32_t credits = 0;  ///< credit word, as encoded
  bool no_msg = false;        ///< the RPC message is in a chunk
  rdma::Rkey invalidate{};    ///< version 2: handle that the responder may invalidate
};

/// One object for each version. Link::rules() returns that of the connection.
struct VersionRules {
  // --- Headers (RFC 8166, section 4; draft, section 6)
  std::size_t chunks_at;  ///< position of the chunk lists in a header, in bytes
  void (*encode_call)(xdr::Writer&, const HeaderFields&, const CallChunks&) noexcept;
  void (*encode_reply)(xdr::Writer&, const HeaderFields&, const ReplyChunks&) noexcept;
  /// Encodes the answer to a message that is refused for any reason but its version. `credits` is the grant
  /// or the credit limit.
  void (*encode_error)(xdr::Writer&, const FixedHeader& failing, std::uint32_t credits,
                       const v2::Error&) noexcept;
  std::uint64_t Counters::*errors_sent;  ///< counts these answers

  // --- Credits and message size
  /// Every message uses a credit (draft, section 4.3.1). False: only calls do, and each reply sets the number
  /// of calls that may be outstanding (RFC 8166, section 3.3.1).
  bool credit_per_message;
  /// A message that is longer than a Send may continue in the next one (draft, section 6.3.2.2; V2-084).
  bool continues_messages;
  /// Both ends announce limits of segments and authenticate themselves by properties (draft, section 5).
  bool has_properties;

  // --- Chunks
  /// A data chunk has no round-up, and a Read chunk of another length than its count word is refused (V2-071,
  /// D2-49). False: old requesters add up to three bytes (V1-073, A-07), and calls with other lengths get
  /// GARBAGE_ARGS.
  bool exact_chunks;
  /// Read segments must be in order of their positions, and the numbers of chunks and segments are limited
  /// (V2-051, V2-082, V2-113, V2-115).
  bool limits_chunks;
  /// A Read chunk of an argument that is not eligible is refused (V2-155). False: the binding decides
  /// (V1-188, A-10).
  bool refuses_ineligible_reads;
  /// Write chunks for a procedure without eligible results are refused unless the binding ignores them
  /// (V1-189). Version 2 returns them unused (V2-079).
  bool refuses_useless_writes;
  /// A reply in a Send returns the Reply chunk that it did not use (RFC 8166, section 4.3.3). Version 2
  /// returns none (D2-33).
  bool returns_unused_reply_chunk;
  /// ReplyChunkPolicy::Always applies (V1-120). False: a reply that fits a Send is inline (D2-42).
  bool prefers_reply_chunk;
  /// A call names a handle that its reply may invalidate (draft, section 6.3.2; V2-129).
  bool names_handle;
  /// A call is repeated with larger chunks on request, so its first offer may be smaller than its memory
  /// (V2-105).
  bool grows_chunks;

  // --- A payload that is not a call
  std::uint64_t Counters::*not_a_call_counter;
  v2::Error not_a_call;  ///< V1-033; D2-11

  /// Returns the length of a reply's header.
  std::size_t header_bytes(const ReplyChunks& chunks) const noexcept {
    return chunks_at + chunks_bytes(chunks);
  }
};

/// Rules of version 1. They also apply before the first message has settled the version of a server.
inline constexpr VersionRules kVersion1Rules{
    .chunks_at = kFixedBytes,
    .encode_call =
        [](xdr::Writer& writer, const HeaderFields& fields, const CallChunks& chunks) noexcept {
          v1::encode_call(writer, fields.xid, static_cast<Credits>(fields.credits),
                          fields.no_msg ? v1::Procedure::NoMsg : v1::Procedure::Msg, chunks);
        },
    .encode_reply =
        [](xdr::Writer& writer, const HeaderFields& fields, const ReplyChunks& chunks) noexcept {
          v1::encode_reply(writer, fields.xid, static_cast<Credits>(fields.credits),
                           fields.no_msg ? v1::Procedure::NoMsg : v1::Procedure::Msg, chunks);
        },
    // ERR_CHUNK is the only other error and has no fields (RFC 8166, section 4.5).
    .encode_error =
        [](xdr::Writer& writer, const FixedHeader& failing, std::uint32_t credits,
           const v2::Error&) noexcept {
          v1::encode_err_chunk(writer, failing, static_cast<Credits>(credits));
        },
    .errors_sent = &Counters::err_chunk_sent,
    .credit_per_message = false,
    .continues_messages = false,
    .has_properties = false,
    .exact_chunks = false,
    .limits_chunks = false,
    .refuses_ineligible_reads = false,
    .refuses_useless_writes = true,
    .returns_unused_reply_chunk = true,
    .prefers_reply_chunk = true,
    .names_handle = false,
    .grows_chunks = false,
    .not_a_call_counter = &Counters::no_payload,
    .not_a_call = {.code = v2::ErrorCode::BadXdr},
};

inline constexpr VersionRules kVersion2Rules{
    .chunks_at = v2::kMinMsgHeaderBytes - kEmptyChunksBytes,
    .encode_call =
        [](xdr::Writer& writer, const HeaderFields& fields, const CallChunks& chunks) noexcept {
          v2::encode_call(writer, {.xid = fields.xid, .credit = v2::CreditWord::of(fields.credits)},
                          fields.no_msg ? v2::HeaderType::NoMsg : v2::HeaderType::Msg, fields.invalidate,
                          chunks);
        },
    .encode_reply =
        [](xdr::Writer& writer, const HeaderFields& fields, const ReplyChunks& chunks) noexcept {
          v2::encode_reply(writer, {.xid = fields.xid, .credit = v2::CreditWord::of(fields.credits)},
                           fields.no_msg ? v2::HeaderType::NoMsg : v2::HeaderType::Msg, chunks);
        },
    .encode_error =
        [](xdr::Writer& writer, const FixedHeader& failing, std::uint32_t credits,
           const v2::Error& error) noexcept {
          v2::encode_error(writer, failing.xid, static_cast<std::uint16_t>(credits), error);
        },
    .errors_sent = &Counters::v2_errors_sent,
    .credit_per_message = true,
    .continues_messages = true,
    .has_properties = true,
    .exact_chunks = true,
    .limits_chunks = true,
    .refuses_ineligible_reads = true,
    .refuses_useless_writes = false,
    .returns_unused_reply_chunk = false,
    .prefers_reply_chunk = false,
    .names_handle = true,
    .grows_chunks = true,
    .not_a_call_counter = &Counters::direction_mismatch,
    .not_a_call = {.code = v2::ErrorCode::InvalFlag},
};

}  // namespace sluice::rpcrdma
