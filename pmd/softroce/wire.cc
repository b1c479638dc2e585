// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/wire.h"

#include "dataplane/base/invariant.h"
#include "pmd/softroce/byte_order.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::array<OpcodeTraits, 256> make_traits() {
  std::array<OpcodeTraits, 256> table{};
  const auto set = [&](Opcode opcode, OpcodeTraits value) {
    value.known = true;
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
constexpr std::array<OpcodeTraits, 256> kTraits = make_traits();

constexpr std::uint32_t k24Bits = 0xFFFFFF;

}  // namespace

const OpcodeTraits& traits(Opcode opcode) noexcept {
  return kTraits[static_cast<std::uint8_t>(opcode)];
}

std::optional<Packet> decode(std::span<const std::byte> bytes) noexcept {
  std::optional<Packet> decoded;  // the only return value, so that it is constructed in place
  if (bytes.size() < kBthBytes) return decoded;
  const std::byte* at = bytes.data();
  Packet& packet = decoded.emplace();
  Bth& bth = packet.bth;
  bth.opcode = static_cast<Opcode>(at[0]);
  const auto flags = std::to_integer<std::uint8_t>(at[1]);
  bth.solicited = flags >> 7 & 1;
  bth.migrated = flags >> 6 & 1;
  bth.pad_bytes = flags >> 4 & 3;
  bth.version = flags & 15;
  bth.partition_key = load_be16(at + 2);
  bth.fecn = std::to_integer<std::uint8_t>(at[4]) >> 7 & 1;
  bth.becn = std::to_integer<std::uint8_t>(at[4]) >> 6 & 1;
  bth.destination_qp = load_be32(at + 4) & k24Bits;
  bth.ack_request = std::to_integer<std::uint8_t>(at[8]) >> 7 & 1;
  bth.psn = load_be32(at + 8) & k24Bits;
  packet.kind = traits(bth.opcode);
  const std::size_t header_bytes = packet.kind.header_bytes;
  if (!packet.kind.known || bth.version != 0 || bytes.size() < header_bytes + bth.pad_bytes) {
    decoded.reset();
    return decoded;
  }
  at += kBthBytes;
  if (packet.kind.has_deth) {
    packet.deth = {load_be32(at), load_be32(at + 4) & k24Bits};
    at += kDethBytes;
  }
  if (packet.kind.has_reth) {
    packet.reth = {load_be64(at), load_be32(at + 8), load_be32(at + 12)};
    at += kRethBytes;
  }
  if (packet.kind.has_aeth) {
    const auto syndrome = std::to_integer<std::uint8_t>(at[0]);
    packet.aeth = {static_cast<Syndrome>(syndrome >> 5 & 3), static_cast<std::uint8_t>(syndrome & 31),
                   load_be32(at) & k24Bits};
    at += kAethBytes;
  }
  if (packet.kind.has_immediate) {
    packet.immediate = load_be32(at);
    at += kImmediateBytes;
  }
  if (packet.kind.has_ieth) packet.invalidate_rkey = load_be32(at);
  packet.payload = bytes.subspan(header_bytes, bytes.size() - header_bytes - bth.pad_bytes);
  return decoded;
}

std::size_t encode_headers(const Packet& packet, std::byte* out) noexcept {
  const Bth& bth = packet.bth;
  std::byte* at = out;
  at[0] = static_cast<std::byte>(bth.opcode);
  at[1] = static_cast<std::byte>(bth.solicited << 7 | bth.migrated << 6 | bth.pad_bytes << 4 | bth.version);
  store_be16(at + 2, bth.partition_key);
  store_be32(at + 4, bth.destination_qp | static_cast<std::uint32_t>(bth.fecn) << 31 |
                         static_cast<std::uint32_t>(bth.becn) << 30);
  store_be32(at + 8, bth.psn | static_cast<std::uint32_t>(bth.ack_request) << 31);
  at += kBthBytes;
  if (packet.kind.has_deth) {
    store_be32(at, packet.deth.queue_key);
    store_be32(at + 4, packet.deth.source_qp);
    at += kDethBytes;
  }
  if (packet.kind.has_reth) {
    store_be64(at, packet.reth.address);
    store_be32(at + 8, packet.reth.rkey);
    store_be32(at + 12, packet.reth.length);
    at += kRethBytes;
  }
  if (packet.kind.has_aeth) {
    store_be32(at, packet.aeth.msn | static_cast<std::uint32_t>(packet.aeth.value) << 24 |
                       static_cast<std::uint32_t>(packet.aeth.syndrome) << 29);
    at += kAethBytes;
  }
  if (packet.kind.has_immediate) {
    store_be32(at, packet.immediate);
    at += kImmediateBytes;
  }
  if (packet.kind.has_ieth) {
    store_be32(at, packet.invalidate_rkey);
    at += kIethBytes;
  }
  SLUICE_INVARIANT_DEBUG(at - out == packet.kind.header_bytes, buffer_bounds);
  SLUICE_INVARIANT_DEBUG(bth.psn <= k24Bits && bth.destination_qp <= k24Bits, psn_window);
  return static_cast<std::size_t>(at - out);
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
