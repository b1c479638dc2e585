// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/neighbours.h"

#include <algorithm>
#include <cstring>

#include "pmd/softroce/byte_order.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint16_t kTypeIpv4 = 0x0800;
constexpr std::uint16_t kTypeArp = 0x0806;
constexpr std::uint16_t kTypeIpv6 = 0x86DD;
constexpr std::uint16_t kTypeVlan = 0x8100;

constexpr std::size_t kArpBytes = 28;
constexpr std::uint16_t kArpRequest = 1;
constexpr std::uint16_t kArpReply = 2;

constexpr std::uint8_t kProtocolIcmp = 1;
constexpr std::uint8_t kProtocolIcmp6 = 58;
constexpr std::size_t kIcmpBytes = 8;
constexpr std::byte kEchoRequest{8};
constexpr std::byte kEchoReply{0};
constexpr std::byte kEcho6Request{128};
constexpr std::byte kEcho6Reply{129};
constexpr std::byte kNeighbourSolicitation{135};
constexpr std::byte kNeighbourAdvertisement{136};
constexpr std::size_t kNeighbourBytes = 24;  // with the target, without options
constexpr std::size_t kLinkOptionBytes = 8;
constexpr std::byte kSourceLinkOption{1};
constexpr std::byte kTargetLinkOption{2};
constexpr std::uint32_t kSolicitedOverride = 0x60000000;
constexpr std::byte kOnLinkHops{255};

constexpr MacAddress kBroadcast{0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

PeerAddress ipv4_at(const std::byte* at) noexcept {
  PeerAddress address = PeerAddress::from_ipv4(0, 0, 0, 0);
  std::memcpy(address.bytes.data() + 12, at, 4);
  return address;
}
PeerAddress ipv6_at(const std::byte* at) noexcept {
  PeerAddress address;
  std::memcpy(address.bytes.data(), at, 16);
  return address;
}
MacAddress mac_at(const std::byte* at) noexcept {
  MacAddress mac;
  std::memcpy(mac.data(), at, mac.size());
  return mac;
}

/// Checksum over the IPv6 pseudo header (RFC 8200, section 8.1) and the ICMPv6 message.
std::uint16_t icmp6_checksum(const PeerAddress& from, const PeerAddress& to,
                             std::span<const std::byte> message) noexcept {
  std::uint32_t sum = kProtocolIcmp6 + static_cast<std::uint32_t>(message.size());
  for (const PeerAddress* address : {&from, &to})
    for (std::size_t i = 0; i < 16; i += 2) sum += address->bytes[i] << 8 | address->bytes[i + 1];
  return internet_checksum(message, sum);
}

std::size_t write_ipv6(const PeerAddress& from, const PeerAddress& to, std::size_t payload,
                       std::byte* out) noexcept {
  store_be32(out, 0x60000000);
  store_be16(out + 4, static_cast<std::uint16_t>(payload));
  out[6] = std::byte{kProtocolIcmp6};
  out[7] = kOnLinkHops;
  std::memcpy(out + 8, from.bytes.data(), 16);
  std::memcpy(out + 24, to.bytes.data(), 16);
  return kIpv6Bytes;
}

/// ff02::1:ffXX:XXXX and its Ethernet group (RFC 4291, section 2.7.1; RFC 2464, section 7).
PeerAddress solicited_group(const PeerAddress& address) noexcept {
  PeerAddress group{{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0}};
  std::copy_n(address.bytes.begin() + 13, 3, group.bytes.begin() + 13);
  return group;
}
MacAddress group_mac(const PeerAddress& group) noexcept {
  return {0x33, 0x33, group.bytes[12], group.bytes[13], group.bytes[14], group.bytes[15]};
}

}  // namespace

bool Neighbours::is_own(const PeerAddress& address) const noexcept {
  return std::any_of(config_.addresses.begin(), config_.addresses.end(),
                     [&](const InterfaceAddress& own) { return own.address == address; });
}

const PeerAddress* Neighbours::own_of_family(bool v4) const noexcept {
  for (const InterfaceAddress& own : config_.addresses)
    if (is_ipv4(own.address) == v4) return &own.address;
  return nullptr;
}

const PeerAddress& Neighbours::next_hop(const PeerAddress& remote) const noexcept {
  for (const InterfaceAddress& own : config_.addresses)
    if (remote.within(own.address, own.prefix_bits)) return remote;
  for (const PeerAddress& gateway : config_.gateways)
    if (is_ipv4(gateway) == is_ipv4(remote)) return gateway;
  return remote;
}

std::optional<MacAddress> Neighbours::find(const PeerAddress& remote) const noexcept {
  const PeerAddress& hop = next_hop(remote);
  for (const Neighbour& neighbour : neighbours_)
    if (neighbour.known && neighbour.address == hop) return neighbour.link;
  return std::nullopt;
}

void Neighbours::learn(const PeerAddress& remote, const MacAddress& link) noexcept {
  for (Neighbour& neighbour : neighbours_)
    if (neighbour.known && neighbour.address == remote) {
      neighbour.link = link;
      return;
    }
  neighbours_[next_++ % kMaxNeighbours] = {true, remote, link};
}

std::size_t Neighbours::ethernet_header(const MacAddress& to, std::uint16_t type,
                                        std::byte* out) const noexcept {
  std::memcpy(out, to.data(), 6);
  std::memcpy(out + 6, own_.data(), 6);
  std::size_t at = 12;
  if (config_.vlan != kNoVlan) {
    store_be16(out + at, kTypeVlan);
    store_be16(out + at + 2, config_.vlan);
    at += kVlanBytes;
  }
  store_be16(out + at, type);
  return at + 2;
}

std::size_t Neighbours::ask(const PeerAddress& remote, std::byte* out) const noexcept {
  const PeerAddress& hop = next_hop(remote);
  const bool v4 = is_ipv4(hop);
  const PeerAddress* own = own_of_family(v4);
  if (own == nullptr) return 0;
  if (v4) {
    std::byte* at = out + ethernet_header(kBroadcast, kTypeArp, out);
    store_be16(at, 1);  // Ethernet
    store_be16(at + 2, kTypeIpv4);
    at[4] = std::byte{6};
    at[5] = std::byte{4};
    store_be16(at + 6, kArpRequest);
    std::memcpy(at + 8, own_.data(), 6);
    std::memcpy(at + 14, own->bytes.data() + 12, 4);
    std::memset(at + 18, 0, 6);
    std::memcpy(at + 24, hop.bytes.data() + 12, 4);
    return static_cast<std::size_t>(at + kArpBytes - out);
  }
  const PeerAddress group = solicited_group(hop);
  std::byte* ip = out + ethernet_header(group_mac(group), kTypeIpv6, out);
  std::byte* at = ip + write_ipv6(*own, group, kNeighbourBytes + kLinkOptionBytes, ip);
  std::memset(at, 0, kNeighbourBytes + kLinkOptionBytes);
  at[0] = kNeighbourSolicitation;
  std::memcpy(at + 8, hop.bytes.data(), 16);
  at[24] = kSourceLinkOption;
  at[25] = std::byte{1};
  std::memcpy(at + 26, own_.data(), 6);
  store_be16(at + 2, icmp6_checksum(*own, group, {at, kNeighbourBytes + kLinkOptionBytes}));
  return static_cast<std::size_t>(at + kNeighbourBytes + kLinkOptionBytes - out);
}

std::size_t Neighbours::on_frame(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                 Statistics& statistics) noexcept {
  if (frame.vlan != config_.vlan || bytes.size() > kMaxAnswerBytes) return 0;
  switch (frame.kind) {
    case FrameKind::Arp:
      return on_arp(frame, bytes, out, statistics);
    case FrameKind::Ipv4:
      return frame.protocol == kProtocolIcmp ? on_icmp(frame, bytes, out, statistics) : 0;
    case FrameKind::Ipv6:
      return frame.protocol == kProtocolIcmp6 ? on_icmp6(frame, bytes, out, statistics) : 0;
    default:
      return 0;
  }
}

std::size_t Neighbours::on_arp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                               Statistics& statistics) noexcept {
  const auto arp = bytes.subspan(frame.network_offset);
  if (arp.size() < kArpBytes || load_be16(arp.data()) != 1 || load_be16(arp.data() + 2) != kTypeIpv4 ||
      arp[4] != std::byte{6} || arp[5] != std::byte{4})
    return 0;
  const std::uint16_t operation = load_be16(arp.data() + 6);
  const MacAddress sender = mac_at(arp.data() + 8);
  const PeerAddress sender_address = ipv4_at(arp.data() + 14);
  const PeerAddress target = ipv4_at(arp.data() + 24);
  if (!is_own(target)) return 0;
  learn(sender_address, sender);
  if (operation != kArpRequest) return 0;
  std::byte* at = out + ethernet_header(sender, kTypeArp, out);
  std::memcpy(at, arp.data(), 6);
  store_be16(at + 6, kArpReply);
  std::memcpy(at + 8, own_.data(), 6);
  std::memcpy(at + 14, arp.data() + 24, 4);
  std::memcpy(at + 18, arp.data() + 8, 10);
  ++statistics.arp_replies;
  return static_cast<std::size_t>(at + kArpBytes - out);
}

/// Echo: returns the request with its addresses swapped.
std::size_t Neighbours::on_icmp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                Statistics& statistics) const noexcept {
  const auto message = frame.transport;
  if (message.size() < kIcmpBytes || message[0] != kEchoRequest || !is_own(frame.destination)) return 0;
  const std::size_t length = frame.transport_offset + message.size();
  std::memcpy(out, bytes.data(), length);
  ethernet_header(mac_at(bytes.data() + 6), kTypeIpv4, out);
  std::byte* ip = out + frame.network_offset;
  std::memcpy(ip + 12, bytes.data() + frame.network_offset + 16, 4);
  std::memcpy(ip + 16, bytes.data() + frame.network_offset + 12, 4);
  std::byte* icmp = out + frame.transport_offset;
  icmp[0] = kEchoReply;
  store_be16(icmp + 2, 0);
  store_be16(icmp + 2, internet_checksum({icmp, message.size()}));
  ++statistics.echo_replies;
  return length;
}

std::size_t Neighbours::on_icmp6(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                                 Statistics& statistics) noexcept {
  const auto message = frame.transport;
  if (message.size() < kIcmpBytes || icmp6_checksum(frame.source, frame.destination, message) != 0) return 0;
  const MacAddress sender = mac_at(bytes.data() + 6);
  const bool on_link = bytes[frame.network_offset + std::size_t{7}] == kOnLinkHops;

  if (message[0] == kEcho6Request && is_own(frame.destination)) {
    std::byte* ip = out + ethernet_header(sender, kTypeIpv6, out);
    std::byte* at = ip + write_ipv6(frame.destination, frame.source, message.size(), ip);
    std::memcpy(at, message.data(), message.size());
    at[0] = kEcho6Reply;
    store_be16(at + 2, 0);
    store_be16(at + 2, icmp6_checksum(frame.destination, frame.source, {at, message.size()}));
    ++statistics.echo_replies;
    return static_cast<std::size_t>(at + message.size() - out);
  }
  if (!on_link || message.size() < kNeighbourBytes) return 0;
  const PeerAddress target = ipv6_at(message.data() + 8);
  if (message[0] == kNeighbourAdvertisement && is_own(frame.destination)) {
    const auto option = message.subspan(kNeighbourBytes);
    if (option.size() >= kLinkOptionBytes && option[0] == kTargetLinkOption && option[1] == std::byte{1})
      learn(target, mac_at(option.data() + 2));
    return 0;
  }
  if (message[0] != kNeighbourSolicitation || !is_own(target)) return 0;
  learn(frame.source, sender);
  std::byte* ip = out + ethernet_header(sender, kTypeIpv6, out);
  std::byte* at = ip + write_ipv6(target, frame.source, kNeighbourBytes + kLinkOptionBytes, ip);
  std::memset(at, 0, kNeighbourBytes + kLinkOptionBytes);
  at[0] = kNeighbourAdvertisement;
  store_be32(at + 4, kSolicitedOverride);
  std::memcpy(at + 8, target.bytes.data(), 16);
  at[24] = kTargetLinkOption;
  at[25] = std::byte{1};
  std::memcpy(at + 26, own_.data(), 6);
  store_be16(at + 2, icmp6_checksum(target, frame.source, {at, kNeighbourBytes + kLinkOptionBytes}));
  ++statistics.arp_replies;
  return static_cast<std::size_t>(at + kNeighbourBytes + kLinkOptionBytes - out);
}

}  // namespace sluice::rdma::softroce
