// SPDX-License-Identifier: Apache-2.0
//
// The InfiniBand transport headers of a RoCEv2 packet (InfiniBand Architecture Specification volume 1,
// chapter 9; annex A17). Pure functions, any thread. Decoded payload points into the packet's bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/base/invariant.h"
#include "pmd/softroce/byte_order.h"

namespace sluice::rdma::softroce {

enum class Opcode : std::uint8_t {
  SendFirst = 0x00,
  SendMiddle = 0x01,
  SendLast = 0x02,
  SendLastWithImmediate = 0x03,
  SendOnly = 0x04,
  SendOnlyWithImmediate = 0x05,
  WriteFirst = 0x06,
  WriteMiddle = 0x07,
  WriteLast = 0x08,
  WriteLastWithImmediate = 0x09,
  WriteOnly = 0x0a,
  WriteOnlyWithImmediate = 0x0b,
  ReadRequest = 0x0c,
  ReadResponseFirst = 0x0d,
  ReadResponseMiddle = 0x0e,
  ReadResponseLast = 0x0f,
  ReadResponseOnly = 0x10,
  Acknowledge = 0x11,
  CompareAndSwap = 0x13,
  FetchAndAdd = 0x14,
  SendLastWithInvalidate = 0x16,
  SendOnlyWithInvalidate = 0x17,
  DatagramSendOnly = 0x64,
  CongestionNotification = 0x81,
};

inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kRethBytes = 16;
inline constexpr std::size_t kAethBytes = 4;
inline constexpr std::size_t kImmediateBytes = 4;
inline constexpr std::size_t kIethBytes = 4;
inline constexpr std::size_t kDethBytes = 8;
inline constexpr std::size_t kCnpPayloadBytes = 16;
inline constexpr std::size_t kMaxTransportHeaderBytes = kBthBytes + kRethBytes + kImmediateBytes;

/// Headers that follow the base transport header, and the packet's role in its message. All fit one word,
/// because every packet has a copy.
struct OpcodeTraits {
  std::uint8_t header_bytes = kBthBytes;  ///< size of all headers
  bool known : 1 = false;
  bool unsupported : 1 = false;  ///< a request of a reliable connection that is reserved or not supported
  bool first : 1 = false;        ///< starts a message (First or Only)
  bool last : 1 = false;         ///< ends a message (Last or Only)
  bool send : 1 = false;
  bool write : 1 = false;
  bool read_response : 1 = false;
  bool has_reth : 1 = false;
  bool has_aeth : 1 = false;
  bool has_immediate : 1 = false;
  bool has_ieth : 1 = false;
  bool has_deth : 1 = false;
  bool of_connection : 1 = false;  ///< a request or response of a reliable connection that is supported
  bool response : 1 = false;       ///< an acknowledgement or a read response
};
static_assert(sizeof(OpcodeTraits) <= sizeof(std::uint32_t));

/// Traits of all opcodes.
extern const std::array<OpcodeTraits, 256> kTraits;
inline const OpcodeTraits& traits(Opcode opcode) noexcept {
  return kTraits[static_cast<std::uint8_t>(opcode)];
}

/// Packet sequence numbers are modulo 2^24; a precedes b if b is less than half of that range ahead.
inline constexpr std::uint32_t kPsnMask = 0xFFFFFF;
constexpr std::uint32_t psn_add(std::uint32_t psn, std::uint32_t packets) noexcept {
  return (psn + packets) & kPsnMask;
}
/// Returns b - a as a signed distance.
constexpr std::int32_t psn_distance(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>((b - a) << 8) >> 8;
}
static_assert(psn_distance(0xFFFFFF, 1) == 2 && psn_distance(1, 0xFFFFFF) == -2);

struct Bth {
  Opcode opcode = Opcode::SendOnly;
  bool solicited = false;
  bool migrated = true;  ///< MigReq: set on a connection without an alternate path
  std::uint8_t pad_bytes = 0;
  std::uint8_t version = 0;
  std::uint16_t partition_key = 0xFFFF;
  bool fecn = false;
  bool becn = false;
  std::uint32_t destination_qp = 0;  ///< 24 bits
  bool ack_request = false;
  std::uint32_t psn = 0;  ///< 24 bits
};

struct Reth {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t length = 0;
};

/// Kinds of the AETH syndrome (9.7.5.2); the low five bits are a credit count, a timer or a code.
enum class Syndrome : std::uint8_t { Ack = 0, RnrNak = 1, Nak = 3 };
enum class NakCode : std::uint8_t {
  SequenceError = 0,
  InvalidRequest = 1,
  RemoteAccess = 2,
  RemoteOperational = 3,
};
/// Credit count of a responder without end-to-end flow control.
inline constexpr std::uint8_t kCreditsInvalid = 0x1F;

struct Aeth {
  Syndrome syndrome = Syndrome::Ack;
  std::uint8_t value = kCreditsInvalid;
  std::uint32_t msn = 0;  ///< 24 bits
};

struct Deth {
  std::uint32_t queue_key = 0;
  std::uint32_t source_qp = 0;
};

/// The transport part of a packet, from the base transport header to the end of the payload. Fields of
/// headers that the opcode does not have are meaningless.
struct Packet {
  [[gnu::always_inline]] constexpr Packet() noexcept {}  // a call costs too much per frame

  Bth bth;
  OpcodeTraits kind;
  Reth reth;
  Aeth aeth;
  Deth deth;
  std::uint32_t immediate = 0;
  std::uint32_t invalidate_rkey = 0;
  std::span<const std::byte> payload;  ///< payload without padding
};

/// Decodes the fields of the base transport header in which the packets of a connection differ.
[[gnu::always_inline]] inline void decode_varying_fields(const std::byte* at, Packet& packet) noexcept {
  packet.bth.opcode = static_cast<Opcode>(at[0]);
  packet.kind = traits(packet.bth.opcode);
  const auto flags = std::to_integer<std::uint8_t>(at[1]);
  packet.bth.solicited = flags >> 7 & 1;
  packet.bth.pad_bytes = flags >> 4 & 3;
  const std::uint32_t psn = load_be32(at + 8);
  packet.bth.ack_request = psn >> 31;
  packet.bth.psn = psn & kPsnMask;
}

/// Decodes the headers after the base transport header, which begin at `at`, as packet.kind requires.
inline void decode_extended_headers(const std::byte* at, Packet& packet) noexcept {
  if (packet.kind.has_deth) {
    packet.deth = {load_be32(at), load_be32(at + 4) & kPsnMask};
    at += kDethBytes;
  }
  if (packet.kind.has_reth) {
    packet.reth = {load_be64(at), load_be32(at + 8), load_be32(at + 12)};
    at += kRethBytes;
  }
  if (packet.kind.has_aeth) {
    const auto syndrome = std::to_integer<std::uint8_t>(at[0]);
    packet.aeth = {static_cast<Syndrome>(syndrome >> 5 & 3), static_cast<std::uint8_t>(syndrome & 31),
                   load_be32(at) & kPsnMask};
    at += kAethBytes;
  }
  if (packet.kind.has_immediate) {
    packet.immediate = load_be32(at);
    at += kImmediateBytes;
  }
  if (packet.kind.has_ieth) packet.invalidate_rkey = load_be32(at);
}

/// Decodes the transport headers of a packet of which a connection expects the other fields of the base
/// transport header, from `bytes`, which include that header. Returns false if the opcode is not one of a
/// connection, or if the packet is truncated.
[[gnu::always_inline]] inline bool decode_expected(const std::byte* at, std::size_t bytes,
                                                   Packet& packet) noexcept {
  decode_varying_fields(at, packet);
  const std::size_t header_bytes = packet.kind.header_bytes;
  const std::size_t around = header_bytes + packet.bth.pad_bytes;
  if (!packet.kind.of_connection || bytes < around) return false;
  if (header_bytes > kBthBytes) decode_extended_headers(at + kBthBytes, packet);
  packet.payload = {at + header_bytes, bytes - around};
  return true;
}

/// Decodes everything between the UDP header and the invariant CRC. Returns nullopt if the packet is
/// truncated, has an opcode of another transport or an unknown version, or has more padding than payload. All
/// bytes of an unsupported request are payload.
std::optional<Packet> decode(std::span<const std::byte> bytes) noexcept;

/// Writes the headers of `packet` (not its payload), which `kind` has, and returns their length. `out` holds
/// kMaxTransportHeaderBytes. The function is always inlined, so that a caller's packet needs no memory.
[[gnu::always_inline]] inline std::size_t encode_headers(const Packet& packet, const OpcodeTraits& kind,
                                                         std::byte* out) noexcept {
  const Bth& bth = packet.bth;
  SLUICE_INVARIANT_DEBUG(bth.psn <= kPsnMask && bth.destination_qp <= kPsnMask, psn_window);
  std::byte* at = out;
  at[0] = static_cast<std::byte>(bth.opcode);
  at[1] = static_cast<std::byte>(bth.solicited << 7 | bth.migrated << 6 | bth.pad_bytes << 4 | bth.version);
  store_be16(at + 2, bth.partition_key);
  store_be32(at + 4, bth.destination_qp | static_cast<std::uint32_t>(bth.fecn) << 31 |
                         static_cast<std::uint32_t>(bth.becn) << 30);
  store_be32(at + 8, bth.psn | static_cast<std::uint32_t>(bth.ack_request) << 31);
  at += kBthBytes;
  if (kind.header_bytes == kBthBytes) return kBthBytes;
  if (kind.has_deth) {
    store_be32(at, packet.deth.queue_key);
    store_be32(at + 4, packet.deth.source_qp);
    at += kDethBytes;
  }
  if (kind.has_reth) {
    store_be64(at, packet.reth.address);
    store_be32(at + 8, packet.reth.rkey);
    store_be32(at + 12, packet.reth.length);
    at += kRethBytes;
  }
  if (kind.has_aeth) {
    store_be32(at, packet.aeth.msn | static_cast<std::uint32_t>(packet.aeth.value) << 24 |
                       static_cast<std::uint32_t>(packet.aeth.syndrome) << 29);
    at += kAethBytes;
  }
  if (kind.has_immediate) {
    store_be32(at, packet.immediate);
    at += kImmediateBytes;
  }
  if (kind.has_ieth) {
    store_be32(at, packet.invalidate_rkey);
    at += kIethBytes;
  }
  SLUICE_INVARIANT_DEBUG(at - out == kind.header_bytes, buffer_bounds);
  return static_cast<std::size_t>(at - out);
}
/// Writes the headers of a packet whose kind is set.
inline std::size_t encode_headers(const Packet& packet, std::byte* out) noexcept {
  return encode_headers(packet, packet.kind, out);
}

/// Returns the number of padding bytes that round a payload up to four bytes.
constexpr std::uint8_t pad_bytes(std::size_t payload) noexcept {
  return static_cast<std::uint8_t>(-payload & 3);
}

/// Encoded transport headers of a packet to send.
struct TransportHeaders {
  std::array<std::byte, kMaxTransportHeaderBytes> bytes{};
  std::uint8_t count = 0;          ///< bytes of the headers
  std::uint8_t padding_bytes = 0;  ///< bytes of padding after the payload
};

/// Encodes the headers of a packet with `payload_bytes` of payload, whose padding this sets. Its kind need
/// not be set.
[[gnu::always_inline]] inline TransportHeaders encoded(Packet& packet, std::size_t payload_bytes) noexcept {
  packet.bth.pad_bytes = pad_bytes(payload_bytes);
  TransportHeaders headers;
  headers.padding_bytes = packet.bth.pad_bytes;
  headers.count =
      static_cast<std::uint8_t>(encode_headers(packet, traits(packet.bth.opcode), headers.bytes.data()));
  return headers;
}

/// Returns the receiver-not-ready time (table 45) in ns, for a code from 0 to 31.
std::uint64_t rnr_timer_ns(std::uint8_t code) noexcept;
/// Returns 4.096 us * 2^exponent in ns, for an exponent from 0 to 31. The caller treats 0 as "no timeout".
constexpr std::uint64_t ack_timeout_ns(std::uint8_t exponent) noexcept {
  return std::uint64_t{4096} << (exponent & 31);
}

}  // namespace sluice::rdma::softroce
