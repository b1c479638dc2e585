// SPDX-License-Identifier: Apache-2.0
//
// Parts of the frames that a host sends on Ethernet: ARP (RFC 826), neighbour discovery (RFC 4861) and
// multicast listener discovery (RFC 3810). Pure functions that write to `out` and return the number of bytes
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/port_config.h"

namespace sluice::rdma::softroce {

inline constexpr std::size_t kArpBytes = 28;
inline constexpr std::uint16_t kArpRequest = 1;
inline constexpr std::uint16_t kArpReply = 2;

inline constexpr std::uint8_t kProtocolHopByHop = 0;
inline constexpr std::uint8_t kProtocolIcmp = 1;
inline constexpr std::uint8_t kProtocolIcmp6 = 58;
inline constexpr std::size_t kIcmpBytes = 8;
inline constexpr std::byte kNeighbourSolicitation{135};
inline constexpr std::byte kNeighbourAdvertisement{136};
inline constexpr std::size_t kNeighbourBytes = 24;  ///< with the target, without options
inline constexpr std::size_t kLinkOptionBytes = 8;
inline constexpr std::byte kSourceLinkOption{1};
inline constexpr std::byte kTargetLinkOption{2};
inline constexpr std::uint32_t kSolicitedAnswer = 0x40000000;
inline constexpr std::uint32_t kOverride = 0x20000000;
inline constexpr std::byte kOnLinkHops{255};

inline constexpr MacAddress kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
inline constexpr PeerAddress kNoAddress{};
inline constexpr PeerAddress kAllNodes{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};

/// Returns the solicited-node group ff02::1:ffXX:XXXX (RFC 4291, section 2.7.1).
constexpr PeerAddress solicited_group(const PeerAddress& address) noexcept {
  PeerAddress group{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0}};
  for (std::size_t i = 13; i < 16; ++i) group.bytes[i] = address.bytes[i];
  return group;
}
/// Returns the Ethernet group address of an IPv6 group (RFC 2464, section 7).
constexpr MacAddress group_mac(const PeerAddress& group) noexcept {
  return {0x33, 0x33, group.bytes[12], group.bytes[13], group.bytes[14], group.bytes[15]};
}

/// Returns the checksum over the IPv6 pseudo header (RFC 8200, section 8.1) and the ICMPv6 message.
inline std::uint16_t icmp6_checksum(const PeerAddress& from, const PeerAddress& to,
                                    std::span<const std::byte> message) noexcept {
  std::uint32_t sum = kProtocolIcmp6 + static_cast<std::uint32_t>(message.size());
  for (const PeerAddress* address : {&from, &to})
    for (std::size_t i = 0; i < 16; i += 2) sum += address->bytes[i] << 8 | address->bytes[i + 1];
  return internet_checksum(message, sum);
}

inline std::size_t write_ethernet(const PortConfig& config, const MacAddress& own, const MacAddress& to,
                                  std::uint16_t type, std::byte* out) noexcept {
  std::memcpy(out, to.data(), 6);
  std::memcpy(out + 6, own.data(), 6);
  std::size_t at = 12;
  if (config.vlan != kNoVlan) {
    store_be16(out + at, kTypeVlan);
    store_be16(out + at + 2, tag_of(config.vlan, config.service_level));
    at += kVlanBytes;
  }
  store_be16(out + at, type);
  return at + 2;
}

inline std::size_t write_ipv6(const PeerAddress& from, const PeerAddress& to, std::size_t payload,
                              std::byte* out) noexcept {
  store_be32(out, 0x60000000);
  store_be16(out + 4, static_cast<std::uint16_t>(payload));
  out[6] = std::byte{kProtocolIcmp6};
  out[7] = kOnLinkHops;
  std::memcpy(out + 8, from.bytes.data(), 16);
  std::memcpy(out + 24, to.bytes.data(), 16);
  return kIpv6Bytes;
}

/// Writes an ARP request for `target` from `own`, which has the IPv4 address `sender`. Without a sender the
/// request is a probe.
inline std::size_t write_arp_request(const MacAddress& own, const PeerAddress& sender,
                                     const PeerAddress& target, std::byte* out) noexcept {
  store_be16(out, 1);  // Ethernet
  store_be16(out + 2, kTypeIpv4);
  out[4] = std::byte{6};
  out[5] = std::byte{4};
  store_be16(out + 6, kArpRequest);
  std::memcpy(out + 8, own.data(), 6);
  std::memcpy(out + 14, sender.bytes.data() + 12, 4);
  std::memset(out + 18, 0, 6);
  std::memcpy(out + 24, target.bytes.data() + 12, 4);
  return kArpBytes;
}

/// Writes an IPv6 header and a neighbour solicitation or advertisement, with `own` as its link option unless
/// `option` is zero.
inline std::size_t write_neighbour_message(std::byte type, std::uint32_t flags, const PeerAddress& from,
                                           const PeerAddress& to, const PeerAddress& target, std::byte option,
                                           const MacAddress& own, std::byte* out) noexcept {
  const std::size_t bytes = kNeighbourBytes + (option == std::byte{0} ? 0 : kLinkOptionBytes);
  std::byte* at = out + write_ipv6(from, to, bytes, out);
  std::memset(at, 0, bytes);
  at[0] = type;
  store_be32(at + 4, flags);
  std::memcpy(at + 8, target.bytes.data(), 16);
  if (option != std::byte{0}) {
    at[24] = option;
    at[25] = std::byte{1};
    std::memcpy(at + 26, own.data(), 6);
  }
  store_be16(at + 2, icmp6_checksum(from, to, {at, bytes}));
  return kIpv6Bytes + bytes;
}

}  // namespace sluice::rdma::softroce
