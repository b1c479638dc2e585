// SPDX-License-Identifier: Apache-2.0
//
// The invariant CRC, by carry-less multiplication on x86-64 and by ISA-L on every other processor. Headers
// and a short payload are folded in blocks of 16 bytes, without a copy and without a call. A long payload is
// folded in blocks of 128 bytes if the processor has VPCLMULQDQ, in the same pass as its copy if there is
// one. Otherwise ISA-L continues the CRC.
#include "pmd/softroce/icrc.h"

#include <isa-l/crc.h>
#ifdef __x86_64__
#include <smmintrin.h>
#include <wmmintrin.h>
#endif

#include <cstring>
#include <type_traits>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

namespace {

// Largest number of bytes that are folded in blocks of 16. Larger blocks are faster for more bytes.
constexpr std::size_t kMostFolded = 256;

std::uint32_t library_continue(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace

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
  const std::uint32_t crc = library_continue(0, {masked, kPseudo + network_bytes + together});
  if (together == transport_bytes) return crc;
  return library_continue(crc, {network + network_bytes + together, transport_bytes - together});
}

#ifdef __x86_64__
namespace {

constexpr std::size_t kBlock = 16;

// Powers of x modulo the polynomial 0x04C11DB7, bit-reflected, as V. Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), derives them. The first factor of a pair
// belongs to the lower half of a block.
struct Factors {
  std::uint64_t lower, upper;
};

/// Returns x^exponent modulo the polynomial, reflected in 33 bits.
constexpr std::uint64_t power(unsigned exponent) noexcept {
  std::uint32_t remainder = 1;
  for (unsigned i = 0; i < exponent; ++i)
    remainder = (remainder >> 31) != 0 ? remainder << 1 ^ 0x04C11DB7 : remainder << 1;
  std::uint64_t reflected = 0;
  for (unsigned bit = 0; bit < 32; ++bit) reflected |= std::uint64_t{remainder >> bit & 1} << (32 - bit);
  return reflected;
}
/// Returns the factors that advance a state by this many bytes.
constexpr Factors advance(unsigned bytes) noexcept {
  return {power(8 * bytes + 32), power(8 * bytes - 32)};
}

constexpr Factors kOneBlock = advance(16);
constexpr Factors kTwoBlocks = advance(32);
constexpr Factors kFourBlocks = advance(64);
constexpr Factors kEightBlocks = advance(128);
constexpr std::uint64_t kHalfBlock = power(64);
constexpr Factors kBarrett{0x1DB710641, 0x1F7011641};  // polynomial and its reciprocal
static_assert(kOneBlock.lower == 0x1751997D0 && kOneBlock.upper == 0x0CCAA009E);

// Control bytes of a byte shuffle: read at 16 + n, they shift a block down by n bytes, at 16 - n up by n.
alignas(64) constexpr std::uint8_t kShifts[3 * kBlock] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};

#define SLUICE_CARRYLESS [[gnu::target("avx,pclmul"), gnu::always_inline]] inline

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
  for (const std::byte* const end = at + (count & ~(kBlock - 1)); at != end; at += kBlock)
    state = fold(state, one, block_at(at));
  count &= kBlock - 1;
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

// Two blocks, as the registers of AVX2 hold them. No header declares this without all of AVX-512.
using Pair = long long __attribute__((vector_size(32)));
constexpr std::size_t kPair = 2 * kBlock;
constexpr std::size_t kWide = 4 * kPair;

#define SLUICE_WIDE_TARGET gnu::target("avx2,pclmul,vpclmulqdq")
#define SLUICE_WIDE [[SLUICE_WIDE_TARGET, gnu::always_inline]] inline
#ifdef __clang__
#define SLUICE_MULTIPLY __builtin_ia32_pclmulqdq256
#else
#define SLUICE_MULTIPLY __builtin_ia32_vpclmulqdq_v4di
#endif

SLUICE_WIDE Pair fold(Pair state, Pair factors, Pair blocks) noexcept {
  return SLUICE_MULTIPLY(state, factors, 0x00) ^ SLUICE_MULTIPLY(state, factors, 0x11) ^ blocks;
}

SLUICE_WIDE Pair twice(Factors factors) noexcept {
  const auto lower = static_cast<long long>(factors.lower);
  const auto upper = static_cast<long long>(factors.upper);
  return Pair{lower, upper, lower, upper};
}

/// Returns the pair of blocks at `from`, and copies it to `to` unless that is null at compile time.
template <typename To>
SLUICE_WIDE Pair pair_at(const std::byte* from, To to, std::size_t at) noexcept {
  Pair pair;
  std::memcpy(&pair, from + at, sizeof pair);
  if constexpr (!std::is_null_pointer_v<To>) std::memcpy(to + at, &pair, sizeof pair);
  return pair;
}

/// Returns the CRC of a state into which everything up to the first block at `from` was folded, and of the
/// rest of the `count` bytes there, at least kWide. Copies all of them to `to` unless that is nullptr.
template <typename To>
[[SLUICE_WIDE_TARGET]] std::uint32_t wide_crc(__m128i first, const std::byte* from, std::size_t count,
                                              To to) noexcept {
  SLUICE_INVARIANT_DEBUG(count >= kWide, buffer_bounds);
  Pair lanes[4];
  for (std::size_t i = 0; i < 4; ++i) lanes[i] = pair_at(from, to, i * kPair);
  lanes[0][0] = first[0];
  lanes[0][1] = first[1];
  const Pair far = twice(kEightBlocks);
  std::size_t at = kWide;
  for (; at + kWide <= count; at += kWide)
    for (std::size_t i = 0; i < 4; ++i) lanes[i] = fold(lanes[i], far, pair_at(from, to, at + i * kPair));
  const Pair next = twice(kTwoBlocks);
  for (std::size_t i = 1; i < 4; ++i) lanes[i] = fold(lanes[i - 1], next, lanes[i]);
  const Pair& last = lanes[3];
  const __m128i state = fold(__m128i{last[0], last[1]}, pair(kOneBlock), __m128i{last[2], last[3]});
  if constexpr (!std::is_null_pointer_v<To>) std::memcpy(to + at, from + at, count - at);
  return reduced(fold_rest(state, from + at, count - at));
}

/// Continues `crc`, of which the complement of its 32 bits is added to the first ones of the bytes.
template <typename To>
[[SLUICE_WIDE_TARGET]] std::uint32_t wide_continue(std::uint32_t crc, std::span<const std::byte> from,
                                                   To to) noexcept {
  const __m128i first = block_at(from.data());
  const __m128i added = _mm_cvtsi32_si128(static_cast<int>(~crc));
  return wide_crc(_mm_xor_si128(first, added), from.data(), from.size(), to);
}

}  // namespace

[[gnu::target("avx,pclmul")]] std::uint32_t icrc_start_folded(const std::byte* network,
                                                              std::size_t network_bytes,
                                                              std::size_t transport_bytes,
                                                              bool wide) noexcept {
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
  if (wide) return wide_crc(fold(state, one, block_at(rest)), rest, rest_bytes, nullptr);
  return library_continue(reduced(state), {rest, rest_bytes});
}

bool icrc_folds() noexcept {
  return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("avx");
}

bool icrc_is_wide() noexcept {
  return icrc_folds() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
}
#else
namespace {

template <typename To>
std::uint32_t wide_continue(std::uint32_t crc, std::span<const std::byte> from, To) noexcept {
  return library_continue(crc, from);
}

}  // namespace

std::uint32_t icrc_start_folded(const std::byte* network, std::size_t network_bytes,
                                std::size_t transport_bytes, bool) noexcept {
  return icrc_start_copied(network, network_bytes, transport_bytes);
}

bool icrc_folds() noexcept {
  return false;
}

bool icrc_is_wide() noexcept {
  return false;
}
#endif

namespace {

const bool folds = icrc_folds();
const bool wide = icrc_is_wide();

}  // namespace

std::uint32_t icrc_start(const std::byte* network, std::size_t network_bytes,
                         std::size_t transport_bytes) noexcept {
  SLUICE_INVARIANT_DEBUG(transport_bytes >= kBthBytes, buffer_bounds);
  return folds ? icrc_start_folded(network, network_bytes, transport_bytes, wide)
               : icrc_start_copied(network, network_bytes, transport_bytes);
}

std::uint32_t icrc_continue(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return wide && bytes.size() > kMostFolded ? wide_continue(crc, bytes, nullptr)
                                            : library_continue(crc, bytes);
}

std::uint32_t icrc_copy(std::uint32_t crc, std::span<const std::byte> from, std::byte* to) noexcept {
  if (wide && from.size() > kMostFolded) return wide_continue(crc, from, to);
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
  return library_continue(crc, from);
}

}  // namespace sluice::rdma::softroce
