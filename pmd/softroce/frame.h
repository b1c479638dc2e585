// SPDX-License-Identifier: Apache-2.0
//
// The layers below the transport headers of a RoCEv2 packet: Ethernet with or without VLAN tag, IPv4 or IPv6,
// UDP, and the invariant CRC at the end (annex A17.3; RFC 791, 8200, 768). Pure functions, any thread. Sizes
// and offsets in bytes. Parsing never reads outside the span and reports errors as FrameKind::Malformed.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "dataplane/base/net_address.h"
#include "pmd/softroce/icrc.h"

namespace sluice::rdma::softroce {

using MacAddress = std::array<std::uint8_t, 6>;

inline constexpr std::uint16_t kRoceUdpPort = 4791;
inline constexpr std::size_t kEthernetBytes = 14;
inline constexpr std::size_t kVlanBytes = 4;
inline constexpr std::size_t kIpv4Bytes = 20;
inline constexpr std::size_t kIpv6Bytes = 40;
inline constexpr std::size_t kUdpBytes = 8;
inline constexpr std::size_t kMaxNetworkHeaderBytes = kEthernetBytes + kVlanBytes + kIpv6Bytes + kUdpBytes;

inline constexpr std::uint16_t kTypeIpv4 = 0x0800;
inline constexpr std::uint16_t kTypeArp = 0x0806;
inline constexpr std::uint16_t kTypeIpv6 = 0x86DD;
inline constexpr std::uint16_t kTypeVlan = 0x8100;

inline constexpr std::uint16_t kNoVlan = 0xFFFF;
/// Returns the VLAN of a tag's identifier. A priority tag, with identifier zero, belongs to no VLAN (IEEE
/// 802.1Q, table 9-2).
constexpr std::uint16_t vlan_of(std::uint16_t identifier) noexcept {
  return identifier == 0 ? kNoVlan : identifier;
}

/// Explicit congestion notification, the low bits of the traffic class (RFC 3168).
inline constexpr std::uint8_t kEcnMask = 3;
inline constexpr std::uint8_t kEcnCapable = 2;
inline constexpr std::uint8_t kEcnCongested = 3;

/// Returns the traffic class of packets that routers mark rather than drop on congestion.
constexpr std::uint8_t class_of(std::uint8_t traffic_class) noexcept {
  return static_cast<std::uint8_t>((traffic_class & ~kEcnMask) | kEcnCapable);
}

/// Header fields of one direction of a flow.
struct Route {
  MacAddress source_mac{};
  MacAddress destination_mac{};
  std::uint16_t vlan = kNoVlan;  ///< identifier, 0 to 4095; kNoVlan means no tag
  std::uint8_t priority = 0;     ///< priority in the tag, 0 to 7
  PeerAddress source;
  PeerAddress destination;
  std::uint16_t udp_source_port = 0xC000;  ///< entropy for ECMP and RSS
  std::uint8_t traffic_class = kEcnCapable;
  std::uint8_t hop_limit = 64;
};

constexpr bool is_ipv4(const PeerAddress& address) noexcept {
  for (int i = 0; i < 10; ++i)
    if (address.bytes[i] != 0) return false;
  return address.bytes[10] == 0xFF && address.bytes[11] == 0xFF;
}

// Comparisons for every packet, written out because the compiler would call memcmp().
constexpr bool same(const PeerAddress& a, const PeerAddress& b) noexcept {
  using Halves = std::array<std::uint64_t, 2>;
  const auto x = std::bit_cast<Halves>(a.bytes);
  const auto y = std::bit_cast<Halves>(b.bytes);
  return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
}
inline MacAddress mac_at(const std::byte* at) noexcept {
  MacAddress result;
  std::memcpy(result.data(), at, result.size());
  return result;
}
inline bool same(const MacAddress& a, const std::byte* b) noexcept {
  std::uint32_t x, y;
  std::uint16_t v, w;
  std::memcpy(&x, a.data(), sizeof x);
  std::memcpy(&v, a.data() + sizeof x, sizeof v);
  std::memcpy(&y, b, sizeof y);
  std::memcpy(&w, b + sizeof y, sizeof w);
  return x == y && v == w;
}

enum class FrameKind : std::uint8_t { Roce, Arp, Ipv4, Ipv6, Malformed, Other };

/// A received frame. Offsets are from its first byte.
struct Frame {
  FrameKind kind = FrameKind::Other;
  std::uint16_t vlan = kNoVlan;        ///< vlan_of() of its tag
  std::uint8_t priority = 0;           ///< priority in its tag
  std::uint16_t network_offset = 0;    ///< ARP, IPv4 or IPv6 header
  std::uint16_t transport_offset = 0;  ///< Roce: base transport header; Ipv4, Ipv6: end of the IP header
  std::uint16_t udp_source_port = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t protocol = 0;             ///< Ipv4, Ipv6: protocol of the payload
  std::span<const std::byte> transport;  ///< Roce: up to the invariant CRC; Ipv4, Ipv6: IP payload
  PeerAddress source;                    ///< not for Arp
  PeerAddress destination;
};

/// Parses Ethernet, IP and UDP headers. `bytes` may have padding after the packet. IP fragments are Malformed
/// because RoCEv2 has none. Packets with IPv4 options are Other because hosts send some themselves (IGMP).
Frame parse(std::span<const std::byte> bytes) noexcept;

/// Returns the tag control information from priority and identifier (IEEE 802.1Q, 9.6).
constexpr std::uint16_t tag_of(std::uint16_t vlan, std::uint8_t priority) noexcept {
  return static_cast<std::uint16_t>(priority << 13 | vlan);
}

/// Returns the number of bytes that write_network_headers() writes.
std::size_t network_header_bytes(const Route& route) noexcept;

/// Writes Ethernet, IP and UDP headers of a packet with `transport_bytes` after the UDP header (including the
/// invariant CRC).
void write_network_headers(const Route& route, std::size_t transport_bytes, std::byte* out) noexcept;

/// Reports whether the invariant CRC of a Roce frame is correct.
bool icrc_correct(const Frame& frame, std::span<const std::byte> bytes) noexcept;

/// Reports whether the IPv4 checksum is correct. Runs for every packet, so it is faster than
/// internet_checksum(): a multiple of 2^16 - 1 is the sum of all ones, in either byte order (RFC 1071,
/// section 2), and no header is all zeros.
inline bool ipv4_checksum_correct(const std::byte* header) noexcept {
  std::uint64_t first, second;
  std::uint32_t third;
  std::memcpy(&first, header, sizeof first);
  std::memcpy(&second, header + 8, sizeof second);
  std::memcpy(&third, header + 16, sizeof third);
  std::uint64_t sum = first + second;
  sum += sum < second;
  sum += third;
  sum += sum < third;
  return sum % 0xFFFF == 0;
}

/// Returns the checksum of RFC 1071. To checksum several parts, pass the sum of the others as `start`; only
/// the last part may have an odd length.
std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint32_t start = 0) noexcept;

}  // namespace sluice::rdma::softroce
