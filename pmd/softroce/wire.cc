// SPDX-License-Identifier: Apache-2.0
//
// Transport headers and the ICRC. There are two implementations of the ICRC of a packet's headers: carry-less
// multiplication (x86-64 with PCLMULQDQ), which needs neither a copy nor a call for a short packet, and ISA-L
// for every other processor. ISA-L also continues the CRC over long payloads.
#include "pmd/softroce/wire.h"

#include <isa-l/crc.h>
#ifdef __x86_64__
#include <smmintrin.h>
#include <wmmintrin.h>
#endif

#include <cstring>

#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/icrc.h"

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
  bth.opcode = static_cast<Opcode>(at[0]);
  const auto flags = std::to_integer<std::uint8_t>(at[1]);
  bth.solicited = flags >> 7 & 1;
  bth.migrated = flags >> 6 & 1;
  bth.pad_bytes = flags >> 4 & 3;
  bth.version = flags & 15;
  bth.partition_key = load_be16(at + 2);
  bth.fecn = std::to_integer<std::uint8_t>(at[4]) >> 7 & 1;
  bth.becn = std::to_integer<std::uint8_t>(at[4]) >> 6 & 1;
  bth.destination_qp = load_be32(at + 4) & kPsnMask;
  bth.ack_request = std::to_integer<std::uint8_t>(at[8]) >> 7 & 1;
  bth.psn = load_be32(at + 8) & kPsnMask;
  packet.kind = traits(bth.opcode);
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

// --- Invariant CRC

std::uint32_t icrc_continue(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

std::uint32_t icrc_start_copied(const std::byte* network, std::size_t network_bytes,
                                std::size_t transport_bytes) noexcept {
  // The local routing header is replaced by eight bytes of ones.
  constexpr std::size_t kPseudo = 8;
  // A short packet takes one call of the library, because a call costs more than copying.
  constexpr std::size_t kTogether = 256;
  std::byte masked[kPseudo + kIpv6Bytes + kUdpBytes + kTogether];
  const std::size_t together = smaller_of(transport_bytes, kTogether);
  std::memset(masked, 0xFF, kPseudo);
  std::byte* const ip = masked + kPseudo;
  const std::size_t ip_bytes = network_bytes - kUdpBytes;
  std::memcpy(ip, network, network_bytes + together);
  if (ip_bytes == kIpv4Bytes) {
    ip[1] = std::byte{0xFF};
    ip[8] = std::byte{0xFF};
    ip[10] = ip[11] = std::byte{0xFF};
  } else {
    ip[0] |= std::byte{0x0F};
    ip[1] = ip[2] = ip[3] = std::byte{0xFF};
    ip[7] = std::byte{0xFF};
  }
  ip[ip_bytes + 6] = ip[ip_bytes + 7] = std::byte{0xFF};
  ip[network_bytes + 4] = std::byte{0xFF};
  const std::uint32_t crc = icrc_continue(0, {masked, kPseudo + network_bytes + together});
  if (together == transport_bytes) return crc;
  return icrc_continue(crc, {network + network_bytes + together, transport_bytes - together});
}

#ifdef __x86_64__
namespace {

// Largest number of transport bytes that are folded here. ISA-L processes several blocks in parallel and is
// faster for more.
constexpr std::size_t kMostFolded = 256;
constexpr std::size_t kBlock = 16;

// Powers of x modulo the polynomial 0x04C11DB7, bit-reflected, as V. Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), derives them. The first factor of a pair
// belongs to the lower half of a block.
struct Factors {
  std::uint64_t lower, upper;
};
constexpr Factors kOneBlock{0x1751997D0, 0x0CCAA009E};    // advance by 16 bytes
constexpr Factors kFourBlocks{0x154442BD4, 0x1C6E41596};  // advance by 64 bytes
constexpr std::uint64_t kHalfBlock = 0x163CD6124;
constexpr Factors kBarrett{0x1DB710641, 0x1F7011641};  // polynomial and its reciprocal

// Control bytes of a byte shuffle: read at 16 + n, they shift a block down by n bytes, at 16 - n up by n.
alignas(64) constexpr std::uint8_t kShifts[3 * kBlock] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};

#define SLUICE_CARRYLESS [[gnu::target("pclmul,sse4.1"), gnu::always_inline]] inline

SLUICE_CARRYLESS __m128i block_at(const void* at) noexcept {
  return _mm_loadu_si128(static_cast<const __m128i*>(at));
}

SLUICE_CARRYLESS __m128i pair(Factors factors) noexcept {
  return _mm_set_epi64x(static_cast<long long>(factors.upper), static_cast<long long>(factors.lower));
}

/// Advances `state` past the distance of `factors` and adds the block there.
SLUICE_CARRYLESS __m128i fold(__m128i state, __m128i factors, __m128i block) noexcept {
  const __m128i lower = _mm_clmulepi64_si128(state, factors, 0x00);
  const __m128i upper = _mm_clmulepi64_si128(state, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(lower, upper), block);
}

/// Folds the `count` bytes at `at`. The 16 bytes before `at` must be accessible.
SLUICE_CARRYLESS __m128i fold_rest(__m128i state, const std::byte* at, std::size_t count) noexcept {
  const __m128i one = pair(kOneBlock);
  if (count >= 8 * kBlock) {
    const __m128i four = pair(kFourBlocks);
    __m128i lanes[4] = {_mm_setzero_si128(), _mm_setzero_si128(), _mm_setzero_si128(), state};
    for (; count >= 4 * kBlock; at += 4 * kBlock, count -= 4 * kBlock)
      for (std::size_t i = 0; i < 4; ++i) lanes[i] = fold(lanes[i], four, block_at(at + i * kBlock));
    state = lanes[0];
    for (std::size_t i = 1; i < 4; ++i) state = fold(state, one, lanes[i]);
  }
  for (; count >= kBlock; at += kBlock, count -= kBlock) state = fold(state, one, block_at(at));
  if (count == 0) return state;
  // State and rest are 16 + count bytes: fold the first `count` of them onto the last 16.
  const __m128i up = block_at(kShifts + count);
  const __m128i down = block_at(kShifts + kBlock + count);
  const __m128i last = block_at(at + count - kBlock);
  return fold(_mm_shuffle_epi8(state, up), one, _mm_blendv_epi8(_mm_shuffle_epi8(state, down), last, down));
}

/// Returns the CRC of the bytes that were folded into `state`.
SLUICE_CARRYLESS std::uint32_t reduced(__m128i state) noexcept {
  const __m128i words = _mm_setr_epi32(-1, 0, -1, 0);
  const __m128i upper = _mm_clmulepi64_si128(state, pair(kOneBlock), 0x10);
  state = _mm_xor_si128(_mm_srli_si128(state, 8), upper);
  const __m128i half = _mm_cvtsi64_si128(static_cast<long long>(kHalfBlock));
  state =
      _mm_xor_si128(_mm_srli_si128(state, 4), _mm_clmulepi64_si128(_mm_and_si128(state, words), half, 0x00));
  const __m128i barrett = pair(kBarrett);
  __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(state, words), barrett, 0x10);
  quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, words), barrett, 0x00);
  return ~static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(state, quotient), 1));
}

}  // namespace

[[gnu::target("pclmul,sse4.1")]] std::uint32_t icrc_start_folded(const std::byte* network,
                                                                 std::size_t network_bytes,
                                                                 std::size_t transport_bytes) noexcept {
  // Blocks begin eight bytes before the IP header, with the ones that replace the local routing header. The
  // CRC starts with the complement of its first 32 bits.
  const __m128i first = _mm_slli_si128(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(network)), 8);
  const __m128i one = pair(kOneBlock);
  constexpr int k32 = -1;
  __m128i state;
  std::size_t folded;  // bytes from `network` on
  if (network_bytes == kIpv4Bytes + kUdpBytes) {
    // Type of service; TTL and checksum; UDP checksum and the byte of FECN and BECN.
    state = _mm_or_si128(first, _mm_setr_epi32(0, k32, 0xFF00, 0));
    state = fold(state, one,
                 _mm_or_si128(block_at(network + 8), _mm_setr_epi32(static_cast<int>(0xFFFF00FF), 0, 0, 0)));
    state =
        fold(state, one,
             _mm_or_si128(block_at(network + 24), _mm_setr_epi32(static_cast<int>(0xFFFF0000), 0, 0xFF, 0)));
    folded = kIpv4Bytes + kUdpBytes + kBthBytes;
  } else {
    // Traffic class and flow label; hop limit; UDP checksum and the byte of FECN and BECN.
    state = _mm_or_si128(first,
                         _mm_setr_epi32(0, k32, static_cast<int>(0xFFFFFF0F), static_cast<int>(0xFF000000)));
    state = fold(state, one, block_at(network + 8));
    state = fold(state, one, block_at(network + 24));
    state =
        fold(state, one,
             _mm_or_si128(block_at(network + 40), _mm_setr_epi32(0, static_cast<int>(0xFFFF0000), 0, 0xFF)));
    folded = 56;
  }
  const std::byte* const rest = network + folded;
  const std::size_t rest_bytes = network_bytes + transport_bytes - folded;
  if (transport_bytes <= kMostFolded) return reduced(fold_rest(state, rest, rest_bytes));
  return icrc_continue(reduced(state), {rest, rest_bytes});
}

bool icrc_folds() noexcept {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#else
std::uint32_t icrc_start_folded(const std::byte* network, std::size_t network_bytes,
                                std::size_t transport_bytes) noexcept {
  return icrc_start_copied(network, network_bytes, transport_bytes);
}

bool icrc_folds() noexcept {
  return false;
}
#endif

namespace {
const bool folds = icrc_folds();
}

std::uint32_t icrc_start(const std::byte* network, std::size_t network_bytes,
                         std::size_t transport_bytes) noexcept {
  return folds ? icrc_start_folded(network, network_bytes, transport_bytes)
               : icrc_start_copied(network, network_bytes, transport_bytes);
}

}  // namespace sluice::rdma::softroce
