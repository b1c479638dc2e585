// SPDX-License-Identifier: Apache-2.0
//
// The header fields that all packets of a peer have in common, so that its next packet is recognized by a few
// wide comparisons (header prediction; V. Jacobson, RFC 1144, section 3.2.2, does the same for TCP). They are
// learned from a packet that passed all checks, and forgotten when the path changes. A frame that matches
// needs no further check of its network headers except lengths and IPv4 checksum; any other frame takes the
// general path.
//
// Plain values; the owner's reactor. No function reads outside the span. Offsets and sizes in bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/invariant.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

/// Offsets in frames of one kind, and the bits in which the packets of a connection agree: everything up to
/// the end of the base transport header except lengths, identification, hop limit, checksums, opcode, flags
/// and PSN.
struct HeaderLayout {
  static constexpr std::size_t kMostWords = 10;
  using Words = std::array<std::uint64_t, kMostWords>;

  constexpr HeaderLayout(std::size_t network, bool ipv4) noexcept
      : network_at(network),
        transport_at(network + (ipv4 ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes),
        words((transport_at + kBthBytes + 7) / 8),
        v4(ipv4) {
    for (std::size_t at = 0; at < transport_at + kBthBytes; ++at)
      mask[at / 8] |= std::uint64_t{common_bits(at)} << at % 8 * 8;
  }

  std::size_t network_at;
  std::size_t transport_at;
  std::size_t words;  ///< number of 64-bit words up to the end of the base transport header, rounded up
  bool v4;
  Words mask{};

 private:
  /// Returns the bits of a byte in which packets agree.
  constexpr std::uint8_t common_bits(std::size_t at) const noexcept {
    const std::size_t udp_at = transport_at - kUdpBytes;
    if (at >= transport_at) {
      const std::size_t in_bth = at - transport_at;
      if (in_bth == 1) return 0x4F;  // solicited event and padding differ
      return in_bth == 0 || in_bth >= 8 ? 0 : 0xFF;
    }
    if (at >= udp_at + 4) return 0;  // length and checksum
    if (at >= udp_at || at < network_at) return 0xFF;
    const std::size_t in_ip = at - network_at;
    if (!v4) return (in_ip >= 4 && in_ip < 6) || in_ip == 7 ? 0 : 0xFF;
    return (in_ip >= 2 && in_ip < 6) || in_ip == 8 || in_ip == 10 || in_ip == 11 ? 0 : 0xFF;
  }
};

inline constexpr HeaderLayout kLayoutV4{kEthernetBytes, true};
inline constexpr HeaderLayout kLayoutV6{kEthernetBytes, false};
inline constexpr HeaderLayout kLayoutTaggedV4{kEthernetBytes + kVlanBytes, true};
inline constexpr HeaderLayout kLayoutTaggedV6{kEthernetBytes + kVlanBytes, false};

/// Calls visit.operator()<kLayout>() with the layout of a frame that may carry RoCEv2. Returns false if the
/// frame has another type or is too short to be compared.
template <typename Visit>
[[gnu::always_inline]] inline bool with_layout(std::span<const std::byte> frame,
                                               const Visit& visit) noexcept {
  if (frame.size() < kLayoutV4.words * 8) return false;
  const std::uint16_t type = load_be16(frame.data() + 12);
  if (type == kTypeIpv4) [[likely]]
    return visit.template operator()<kLayoutV4>();
  if (frame.size() >= kLayoutTaggedV4.words * 8 && type == kTypeVlan &&
      load_be16(frame.data() + 16) == kTypeIpv4)
    return visit.template operator()<kLayoutTaggedV4>();
  if (frame.size() < kLayoutV6.words * 8) return false;
  if (type == kTypeIpv6) return visit.template operator()<kLayoutV6>();
  return type == kTypeVlan && load_be16(frame.data() + 16) == kTypeIpv6 &&
         visit.template operator()<kLayoutTaggedV6>();
}
static_assert(kLayoutV4.words < kLayoutTaggedV4.words && kLayoutV6.words == kLayoutTaggedV6.words);

/// Returns the bytes between the UDP header and the invariant CRC, as parse() finds them. Returns zero unless
/// the IP and UDP lengths agree and lie within the frame, and the IPv4 checksum is correct.
template <const HeaderLayout& kLayout>
std::size_t transport_bytes_of(std::span<const std::byte> frame) noexcept {
  const std::byte* const ip = frame.data() + kLayout.network_at;
  const std::size_t udp = load_be16(frame.data() + kLayout.transport_at - 4);
  const std::size_t payload = kLayout.v4 ? load_be16(ip + 2) - kIpv4Bytes : load_be16(ip + 4);
  if (payload != udp || udp > frame.size() - (kLayout.transport_at - kUdpBytes) ||
      udp < kUdpBytes + kBthBytes + kIcrcBytes)
    return 0;
  if (kLayout.v4 && !ipv4_checksum_correct(ip)) return 0;
  return udp - kUdpBytes - kIcrcBytes;
}

class ExpectedHeaders {
 public:
  /// Returns whether the frame, which has this layout, agrees with the learned packet.
  template <const HeaderLayout& kLayout>
  [[gnu::always_inline]] bool match(const std::byte* frame) const noexcept {
    if (layout_ != &kLayout) return false;
    std::uint64_t differing = 0;
#pragma GCC unroll 10
    for (std::size_t i = 0; i < kLayout.words; ++i)
      differing |= (word(frame, i) & kLayout.mask[i]) ^ image_[i];
    return differing == 0;
  }
  /// Learns from a frame that passed all checks.
  void learn(std::span<const std::byte> frame) noexcept {
    with_layout(frame, [&]<const HeaderLayout & kLayout>() noexcept {
      layout_ = &kLayout;
      for (std::size_t i = 0; i < kLayout.words; ++i) image_[i] = word(frame.data(), i) & kLayout.mask[i];
      SLUICE_INVARIANT_DEBUG(match<kLayout>(frame.data()), connection_state);
      return true;
    });
  }
  /// Matches nothing until the next packet is learned.
  void forget() noexcept {
    layout_ = nullptr;
  }

 private:
  static std::uint64_t word(const std::byte* frame, std::size_t i) noexcept {
    std::uint64_t value;
    std::memcpy(&value, frame + i * 8, sizeof value);
    return value;
  }

  const HeaderLayout* layout_ = nullptr;  ///< null while no packet was learned
  HeaderLayout::Words image_{};           ///< common bits of the packet that was learned
};

}  // namespace sluice::rdma::softroce
