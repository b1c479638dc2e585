// SPDX-License-Identifier: Apache-2.0
//
// Decoder of the transport headers, and their tables.
#include "pmd/softroce/wire.h"

#include "pmd/softroce/byte_order.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::array<OpcodeTraits, 256> make_traits() {
  std::array<OpcodeTraits, 256> table{};
  const auto set = [&](Opcode opcode, OpcodeTraits value) {
    value.known = true;
    value.response = value.read_response || opcode == Opcode::Acknowledge;
    value.of_connection = !value.unsupported && opcode < Opcode::DatagramSendOnly;
    value.header_bytes = static_cast<std::uint8_t>(
        kBthBytes + (value.has_reth ? kRethBytes : 0) + (value.has_aeth ? kAethBytes : 0) +
        (value.has_immediate ? kImmediateBytes : 0) + (value.has_ieth ? kIethBytes : 0) +
        (value.has_deth ? kDethBytes : 0));
    table[static_cast<std::uint8_t>(opcode)] = value;
  };
  set(Opcode::SendFirst, {.first = true, .send = true});
  set(Opcode::SendMiddle, {.send = true});
  set(Opcode::SendLast, {.last = true, .send = true});
  set(Opcode::SendLastWithImmediate, {.last = true, .send = true, .has_immediate = true});
  set(Opcode::SendOnly, {.first = true, .last = true, .send = true});
  set(Opcode::SendOnlyWithImmediate, {.first = true, .last = true, .send = true, .has_immediate = true});
  set(Opcode::SendLastWithInvalidate, {.last = true, .send = true, .has_ieth = true});
  set(Opcode::SendOnlyWithInvalidate, {.first = true, .last = true, .send = true, .has_ieth = true});
  set(Opcode::WriteFirst, {.first = true, .write = true, .has_reth = true});
  set(Opcode::WriteMiddle, {.write = true});
  set(Opcode::WriteLast, {.last = true, .write = true});
  set(Opcode::WriteLastWithImmediate, {.last = true, .write = true, .has_immediate = true});
  set(Opcode::WriteOnly, {.first = true, .last = true, .write = true, .has_reth = true});
  set(Opcode::WriteOnlyWithImmediate,
      {.first = true, .last = true, .write = true, .has_reth = true, .has_immediate = true});
  set(Opcode::ReadRequest, {.first = true, .last = true, .has_reth = true});
  set(Opcode::ReadResponseFirst, {.first = true, .read_response = true, .has_aeth = true});
  set(Opcode::ReadResponseMiddle, {.read_response = true});
  set(Opcode::ReadResponseLast, {.last = true, .read_response = true, .has_aeth = true});
  set(Opcode::ReadResponseOnly, {.first = true, .last = true, .read_response = true, .has_aeth = true});
  set(Opcode::Acknowledge, {.first = true, .last = true, .has_aeth = true});
  // Atomics and reserved opcodes of reliable connections; 0x12 is a response.
  constexpr std::uint8_t kUnsupported[] = {0x13, 0x14, 0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f};
  for (const std::uint8_t code : kUnsupported)
    set(static_cast<Opcode>(code), {.unsupported = true, .first = true, .last = true});
  set(Opcode::DatagramSendOnly, {.first = true, .last = true, .send = true, .has_deth = true});
  set(Opcode::CongestionNotification, {.first = true, .last = true});
  return table;
}
}  // namespace

constexpr std::array<OpcodeTraits, 256> kTraits = make_traits();

std::optional<Packet> decode(std::span<const std::byte> bytes) noexcept {
  std::optional<Packet> decoded;  // the only return value, so that it is constructed in place
  if (bytes.size() < kBthBytes) return decoded;
  const std::byte* at = bytes.data();
  Packet& packet = decoded.emplace();
  Bth& bth = packet.bth;
  decode_varying_fields(at, packet);
  const auto flags = std::to_integer<std::uint8_t>(at[1]);
  bth.migrated = flags >> 6 & 1;
  bth.version = flags & 15;
  bth.partition_key = load_be16(at + 2);
  bth.fecn = std::to_integer<std::uint8_t>(at[4]) >> 7 & 1;
  bth.becn = std::to_integer<std::uint8_t>(at[4]) >> 6 & 1;
  bth.destination_qp = load_be32(at + 4) & kPsnMask;
  const std::size_t header_bytes = packet.kind.header_bytes;
  if (!packet.kind.known || bth.version != 0 || bytes.size() < header_bytes + bth.pad_bytes) {
    decoded.reset();
    return decoded;
  }
  decode_extended_headers(at + kBthBytes, packet);
  packet.payload = bytes.subspan(header_bytes, bytes.size() - header_bytes - bth.pad_bytes);
  return decoded;
}

std::uint64_t rnr_timer_ns(std::uint8_t code) noexcept {
  // Table in units of 10 us, indexed by code.
  static constexpr std::uint16_t kTens[32] = {
      65535, 1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,   192,
      256,   384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};
  const std::uint64_t tens = code == 0 ? 65536 : kTens[code & 31];
  return tens * 10'000;
}

}  // namespace sluice::rdma::softroce
