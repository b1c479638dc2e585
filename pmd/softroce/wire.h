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

/// Headers that follow the base transport header, and the packet's role in its message.
struct OpcodeTraits {
  bool known = false;
  bool unsupported = false;  ///< a request of a reliable connection that is reserved or not supported
  bool first = false;        ///< starts a message (First or Only)
  bool last = false;         ///< ends a message (Last or Only)
  bool send = false;
  bool write = false;
  bool read_response = false;
  bool has_reth = false;
  bool has_aeth = false;
  bool has_immediate = false;
  bool has_ieth = false;
  bool has_deth = false;
  std::uint8_t header_bytes = kBthBytes;  ///< size of all headers
};

const OpcodeTraits& traits(Opcode opcode) noexcept;

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

/// Decodes everything between the UDP header and the invariant CRC. Returns nullopt if the packet is
/// truncated, has an opcode of another transport or an unknown version, or has more padding than payload. All
/// bytes of an unsupported request are payload.
std::optional<Packet> decode(std::span<const std::byte> bytes) noexcept;

/// Writes the headers of `packet` (not its payload) and returns their length, kind.header_bytes. `out` holds
/// kMaxTransportHeaderBytes.
std::size_t encode_headers(const Packet& packet, std::byte* out) noexcept;

/// Returns the number of padding bytes that round a payload up to four bytes.
constexpr std::uint8_t pad_bytes(std::size_t payload) noexcept {
  return static_cast<std::uint8_t>(-payload & 3);
}

/// Returns the receiver-not-ready time (table 45) in ns, for a code from 0 to 31.
std::uint64_t rnr_timer_ns(std::uint8_t code) noexcept;
/// Returns 4.096 us * 2^exponent in ns, for an exponent from 0 to 31. The caller treats 0 as "no timeout".
constexpr std::uint64_t ack_timeout_ns(std::uint8_t exponent) noexcept {
  return std::uint64_t{4096} << (exponent & 31);
}

}  // namespace sluice::rdma::softroce
