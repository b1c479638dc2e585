// SPDX-License-Identifier: Apache-2.0
//
// RPC-over-RDMA version 2 transport headers (draft-ietf-nfsv4-rpcrdma-version-two-00, section 6; rows V2-001
// to V2-159, whose section 1 has the layout and the order of checks). Pure functions over byte spans: no
// allocation, no read outside the span, every count is validated. Any thread.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "dataplane/rpcrdma/wire/chunk_codec.h"

namespace sluice::rpcrdma::v2 {

inline constexpr std::uint32_t kVersion = 2;
inline constexpr std::size_t kPrefixBytes = 20;
/// Length of a header with the prefix, the handle to invalidate and three empty chunk fields.
inline constexpr std::size_t kMinMsgHeaderBytes = kPrefixBytes + 4 + kEmptyChunksBytes;
/// Largest first message of a client, in bytes (section 4.3.3; V2-007).
inline constexpr std::size_t kMaxFirstMessageBytes = 1024;

enum class HeaderType : std::uint32_t { Msg = 0, NoMsg = 1, Error = 4, ConnProp = 5 };

enum Flags : std::uint32_t {
  kResponse = 1,  ///< the receiver chose the XID
  kMore = 2,      ///< the payload continues in the next message
};
inline constexpr std::uint32_t kKnownFlags = kResponse | kMore;

/// Credit word: an increment and a limit, instead of the single grant of version 1 (section 4.3.1; V2-033).
/// Stored as one word because it is encoded right after it has been built, and loading two halves that were
/// just stored as one word defeats store forwarding.
class CreditWord {
 public:
  constexpr CreditWord() noexcept = default;
  constexpr CreditWord(std::uint16_t granted, std::uint16_t limit) noexcept
      : word_(std::uint32_t{limit} << 16 | granted) {}
  static constexpr CreditWord of(std::uint32_t word) noexcept {
    return {static_cast<std::uint16_t>(word), static_cast<std::uint16_t>(word >> 16)};
  }

  /// Returns the credits that the sender of the message newly grants to its receiver.
  constexpr std::uint16_t granted() const noexcept { return static_cast<std::uint16_t>(word_); }
  /// Returns the maximum number of credits that the sender of the message grants at a time.
  constexpr std::uint16_t limit() const noexcept { return static_cast<std::uint16_t>(word_ >> 16); }
  constexpr std::uint32_t word() const noexcept { return word_; }
  bool operator==(const CreditWord&) const = default;

 private:
  std::uint32_t word_ = 0;
};

enum class ErrorCode : std::uint32_t {
  Vers = 1,
  BadXdr = 2,
  InvalHtype = 3,
  InvalFlag = 4,
  ReadChunks = 5,
  WriteChunks = 6,
  Segments = 7,
  WriteResource = 8,
  ReplyResource = 9,
  System = 10,
};

/// Body of RDMA2_ERROR. The code determines which fields are valid; codes not named below have no fields
/// (V2-121).
struct Error {
  ErrorCode code = ErrorCode::System;
  rpc::VersionRange supported{};   ///< Vers
  std::uint32_t maximum = 0;       ///< ReadChunks, WriteChunks, Segments
  std::uint32_t chunk_index = 0;   ///< WriteResource: counts from 1; 0 is unknown
  std::uint32_t bytes_needed = 0;  ///< WriteResource, ReplyResource
};

enum class Decode : std::uint8_t {
  Ok,
  Fragment,         ///< too short for a prefix: drop it and use none of its fields (V2-005)
  BadVersion,       ///< only header.fixed is valid; answer ERR_VERS (V2-004)
  BadType,          ///< prefix valid; answer INVAL_HTYPE (V2-030)
  BadFlags,         ///< prefix valid; answer INVAL_FLAG (V2-023)
  BadXdr,           ///< prefix valid; answer BAD_XDR (V2-110)
  TooManySegments,  ///< prefix valid; answer SEGMENTS
  TooManyWrites,    ///< prefix valid; answer WRITE_CHUNKS (V2-115)
  BadError,         ///< an RDMA2_ERROR that cannot be used: drop it (V2-108)
  /// ERR_CHUNK of version 1 while the version is open: the peer does not speak version 2 (D2-01).
  NoVersion2,
};

struct Header {
  FixedHeader fixed{};  ///< its procedure word is the header type, its credits word is `credit`
  CreditWord credit{};
  HeaderType type = HeaderType::Msg;
  std::uint32_t flags = 0;
  rdma::Rkey invalidate{};       ///< Msg, NoMsg: handle that the responder may invalidate; zero: none
  ChunkLists chunks{};           ///< Msg, NoMsg
  std::size_t header_bytes = 0;  ///< where the payload begins
  Error error{};                 ///< Error
  /// ConnProp: the body, or a part of the body if the message is one of several.
  std::span<const std::byte> properties{};

  bool response() const noexcept { return (flags & kResponse) != 0; }
  bool more() const noexcept { return (flags & kMore) != 0; }
  /// Returns true for a grant-only message, which is identified by its empty lists alone; its XID and handle
  /// are ignored (V2-041).
  bool grant_only() const noexcept { return type == HeaderType::NoMsg && chunks.empty(); }
};

struct DecodeResult {
  Decode status = Decode::Fragment;
  Header header;
};

/// State of version negotiation at the receiver, which determines how an error message is decoded (D2-01).
enum class Negotiation : std::uint8_t {
  Open,   ///< our first message is unanswered: an error may have the format of RFC 8166
  Fixed,  ///< version 2 is settled
};

/// Decodes one received Send. The body of a ConnProp is decoded by decode_properties(), which needs all its
/// parts.
DecodeResult decode(std::span<const std::byte> message,
                    Negotiation negotiation = Negotiation::Fixed) noexcept;

/// Returns true for the common message: a Msg in one piece, without chunks or a handle to invalidate, whose
/// RPC message has the XID and direction of the header. decode() finds no defect in such a message. Only its
/// XID, credits and direction vary.
inline bool is_plain(std::span<const std::byte> message) noexcept {
  if (message.size() < kMinMsgHeaderBytes + 2 * xdr::kUnit) return false;
  const auto word = [at = message.data()](std::size_t i) { return xdr::load_encoded(at + i * xdr::kUnit); };
  const auto pair = [at = message.data()](std::size_t i) {
    return xdr::load_encoded_pair(at + i * xdr::kUnit);
  };
  // Words 0 and 1 are XID and version, word 3 is the header type, words 4 and 5 are flags and handle, words 6
  // to 8 the chunk lists, words 9 and 10 the XID and direction of the RPC message. Words 0 and 9 must be
  // equal, and words 4 and 10.
  static_assert(kResponse == static_cast<std::uint32_t>(rpc::MessageType::Reply));
  static_assert(static_cast<std::uint32_t>(rpc::MessageType::Call) == 0);
  return ((pair(3) & ~xdr::encoded_pair(0, kResponse)) | pair(5) | pair(7) |
          (pair(0) ^ pair(9) ^ pair(3) ^ xdr::encoded_pair(0, kVersion)) |
          (word(1) ^ xdr::encoded(kVersion))) == 0;
}

/// The fields that decode() finds in a plain message are loaded one by one. A struct of them would be stored
/// word by word and read again as a whole, and such a load stalls until the stores have retired.
inline CreditWord plain_credit(const std::byte* at) noexcept {
  return CreditWord::of(xdr::load_u32(at + 2 * xdr::kUnit));
}
inline bool plain_response(const std::byte* at) noexcept {
  return xdr::load_encoded(at + kFixedBytes) != 0;
}
inline FixedHeader load_plain(const std::byte* at) noexcept {
  return {static_cast<rpc::Xid>(xdr::load_u32(at)), kVersion,
          static_cast<Credits>(xdr::load_u32(at + 2 * xdr::kUnit)),
          static_cast<std::uint32_t>(HeaderType::Msg)};
}

// --- Properties (section 5)

enum class PropertyId : std::uint32_t {
  MaxSendSize = 1,
  ReceiveBufferSize = 2,
  MaxSegmentSize = 3,
  MaxSegmentCount = 4,
  ReverseSupport = 5,
  HostAuthentication = 6,
};
enum class ReverseSupport : std::uint32_t { None = 0, Inline = 1, General = 2 };

inline constexpr std::uint32_t kDefaultSendBytes = 4096;
inline constexpr std::uint32_t kDefaultReceiveBytes = 4096;
inline constexpr std::uint32_t kDefaultSegmentBytes = 1u << 20;
inline constexpr std::uint32_t kDefaultSegmentCount = 16;

/// Properties 1 to 5 of one end. A property that was not announced has its default (V2-052).
struct Parameters {
  std::uint32_t max_send_bytes = kDefaultSendBytes;
  std::uint32_t receive_buffer_bytes = kDefaultReceiveBytes;
  std::uint32_t max_segment_bytes = kDefaultSegmentBytes;
  std::uint32_t max_segments = kDefaultSegmentCount;  ///< in one header, the sum over all its lists
  ReverseSupport reverse = ReverseSupport::Inline;
  bool operator==(const Parameters&) const = default;
};

/// Properties that a peer has announced.
struct Properties : Parameters {
  std::optional<std::span<const std::byte>> host_authentication;
};

/// Decodes the joined body of a ConnProp. Returns nothing if it cannot be parsed; the caller then answers
/// BAD_XDR and applies none of it (V2-054, V2-055).
std::optional<Properties> decode_properties(std::span<const std::byte> body) noexcept;

// --- Encoding. A writer without room fails and stays failed.

struct Prefix {
  rpc::Xid xid{};
  CreditWord credit{};
  std::uint32_t flags = 0;
};

std::size_t header_bytes(const CallChunks& chunks) noexcept;
std::size_t header_bytes(const ReplyChunks& chunks) noexcept;
/// Encodes the header of a call. `type` is Msg or NoMsg.
void encode_call(xdr::Writer& writer, const Prefix& prefix, HeaderType type, rdma::Rkey invalidate,
                 const CallChunks& chunks) noexcept;
/// Encodes the header of a Msg call without chunks and flags, kMinMsgHeaderBytes long.
inline void store_plain_call(std::byte* to, rpc::Xid xid, CreditWord credit) noexcept {
  xdr::store_words(to, xid, kVersion, credit.word(), HeaderType::Msg, 0, 0, 0, 0, 0);
}
/// Encodes the header of a reply, with the RESPONSE flag.
void encode_reply(xdr::Writer& writer, const Prefix& prefix, HeaderType type,
                  const ReplyChunks& chunks) noexcept;
/// Encodes the header of a Msg reply without chunks, kMinMsgHeaderBytes long.
inline void store_plain_reply(std::byte* to, rpc::Xid xid, CreditWord credit) noexcept {
  xdr::store_words(to, xid, kVersion, credit.word());
  // Words are stored in pairs because the compiler does not merge these stores.
  static_assert(static_cast<std::uint32_t>(HeaderType::Msg) == 0);
  xdr::store_u64(to + 3 * xdr::kUnit, kResponse);
  xdr::store_u64(to + 5 * xdr::kUnit, 0);
  xdr::store_u64(to + 7 * xdr::kUnit, 0);
}
/// Encodes a grant-only message, whose XID is zero (V2-041).
void encode_grant(xdr::Writer& writer, CreditWord credit) noexcept;

/// Encodes an error, with the RESPONSE flag and no granted credits (V2-044). Not for ErrorCode::Vers, which
/// is encoded by v1::encode_err_vers().
void encode_error(xdr::Writer& writer, rpc::Xid xid, std::uint16_t limit, const Error& error) noexcept;

/// Encodes the prefix of a ConnProp, or of a part of one.
void encode_connprop(xdr::Writer& writer, const Prefix& prefix) noexcept;
/// Encodes the body of a ConnProp with properties 1 to 5.
void encode_parameters(xdr::Writer& writer, const Parameters& parameters) noexcept;
/// Encodes the body of a ConnProp with property 6 alone.
void encode_host_authentication(xdr::Writer& writer, std::span<const std::byte> octets) noexcept;

}  // namespace sluice::rpcrdma::v2
