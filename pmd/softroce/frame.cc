// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/frame.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/capture_filter.h"
#include "pmd/softroce/icrc.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::byte kIpv4NoOptions{0x45};
constexpr std::byte kIpv4MostOptions{0x4F};
constexpr std::uint16_t kDontFragment = 0x4000;
constexpr std::uint16_t kFragmentMask = 0x3FFF;  // more-fragments flag and offset

/// Returns a sum of words as the 16 bits of ones' complement arithmetic (RFC 1071).
std::uint16_t folded(std::uint64_t sum) noexcept {
  sum = (sum & 0xFFFFFFFF) + (sum >> 32);
  sum = (sum & 0xFFFF) + (sum >> 16);
  sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<std::uint16_t>((sum & 0xFFFF) + (sum >> 16));
}

/// Writes the IPv4 address at `at`, mapped to IPv6, as two words. same() reads two words, and a load of a
/// word stalls until narrower stores to it have left the store buffer.
void set_ipv4(PeerAddress& address, const std::byte* at) noexcept {
  constexpr auto kMapped = PeerAddress::from_ipv4(0, 0, 0, 0);
  auto halves = std::bit_cast<std::array<std::uint64_t, 2>>(kMapped.bytes);
  std::uint32_t own;
  std::memcpy(&own, at, sizeof own);
  if constexpr (std::endian::native == std::endian::little)
    halves[1] |= std::uint64_t{own} << 32;
  else
    halves[1] |= own;
  std::memcpy(address.bytes.data(), halves.data(), sizeof halves);
}

bool parse_ipv4(Frame& frame, std::span<const std::byte> packet) noexcept {
  if (packet.size() < kIpv4Bytes) return false;
  if (packet[0] > kIpv4NoOptions && packet[0] <= kIpv4MostOptions) return true;  // for example IGMP
  if (packet[0] != kIpv4NoOptions) return false;
  const std::size_t total = load_be16(packet.data() + 2);
  if (total < kIpv4Bytes || total > packet.size()) return false;
  if ((load_be16(packet.data() + 6) & kFragmentMask) != 0) return false;
  if (!ipv4_checksum_correct(packet.data())) return false;
  frame.kind = FrameKind::Ipv4;
  frame.traffic_class = std::to_integer<std::uint8_t>(packet[1]);
  frame.protocol = std::to_integer<std::uint8_t>(packet[9]);
  set_ipv4(frame.source, packet.data() + 12);
  set_ipv4(frame.destination, packet.data() + 16);
  frame.transport_offset = static_cast<std::uint16_t>(frame.network_offset + kIpv4Bytes);
  frame.transport = packet.first(total).subspan(kIpv4Bytes);
  return true;
}

bool parse_ipv6(Frame& frame, std::span<const std::byte> packet) noexcept {
  if (packet.size() < kIpv6Bytes || std::to_integer<unsigned>(packet[0]) >> 4 != 6) return false;
  const std::size_t payload = load_be16(packet.data() + 4);
  if (payload > packet.size() - kIpv6Bytes) return false;
  frame.kind = FrameKind::Ipv6;
  frame.traffic_class = static_cast<std::uint8_t>(load_be16(packet.data()) >> 4);
  frame.protocol = std::to_integer<std::uint8_t>(packet[6]);
  std::memcpy(frame.source.bytes.data(), packet.data() + 8, 16);
  std::memcpy(frame.destination.bytes.data(), packet.data() + 24, 16);
  frame.transport_offset = static_cast<std::uint16_t>(frame.network_offset + kIpv6Bytes);
  frame.transport = packet.subspan(kIpv6Bytes, payload);
  return true;
}

/// Makes the packet Roce and narrows `transport` if it is UDP to the RoCEv2 port. Returns false if it is
/// malformed.
bool parse_roce(Frame& frame) noexcept {
  const auto udp = frame.transport;
  if (udp.size() < kUdpBytes || load_be16(udp.data() + 2) != kRoceUdpPort) return true;
  const std::size_t length = load_be16(udp.data() + 4);
  if (length < kUdpBytes + kBthBytes + kIcrcBytes || length > udp.size()) return false;
  frame.kind = FrameKind::Roce;
  frame.udp_source_port = load_be16(udp.data());
  frame.transport_offset = static_cast<std::uint16_t>(frame.transport_offset + kUdpBytes);
  frame.transport = udp.first(length - kIcrcBytes).subspan(kUdpBytes);
  return true;
}

}  // namespace

Frame parse(std::span<const std::byte> bytes) noexcept {
  Frame frame;
  if (bytes.size() < kEthernetBytes) {
    frame.kind = FrameKind::Malformed;
    return frame;
  }
  std::size_t offset = kEthernetBytes;
  std::uint16_t type = load_be16(bytes.data() + 12);
  if (type == kTypeVlan) {
    if (bytes.size() < kEthernetBytes + kVlanBytes) {
      frame.kind = FrameKind::Malformed;
      return frame;
    }
    const std::uint16_t tag = load_be16(bytes.data() + 14);
    frame.vlan = vlan_of(tag & 0x0FFF);
    frame.priority = static_cast<std::uint8_t>(tag >> 13);
    type = load_be16(bytes.data() + 16);
    offset += kVlanBytes;
  }
  frame.network_offset = static_cast<std::uint16_t>(offset);
  const auto packet = bytes.subspan(offset);
  bool good = true;
  if (type == kTypeIpv4)
    good = parse_ipv4(frame, packet);
  else if (type == kTypeIpv6)
    good = parse_ipv6(frame, packet);
  else if (type == kTypeArp)
    frame.kind = FrameKind::Arp;
  if (good && (frame.kind == FrameKind::Ipv4 || frame.kind == FrameKind::Ipv6) &&
      frame.protocol == kProtocolUdp)
    good = parse_roce(frame);
  if (!good) frame.kind = FrameKind::Malformed;
  return frame;
}

std::size_t network_header_bytes(const Route& route) noexcept {
  return kEthernetBytes + (route.vlan == kNoVlan ? 0 : kVlanBytes) +
         (is_ipv4(route.source) ? kIpv4Bytes : kIpv6Bytes) + kUdpBytes;
}

void write_network_headers(const Route& route, std::size_t transport_bytes, std::byte* out) noexcept {
  std::byte* at = out;
  std::memcpy(at, route.destination_mac.data(), 6);
  std::memcpy(at + 6, route.source_mac.data(), 6);
  at += 12;
  if (route.vlan != kNoVlan) {
    store_be16(at, kTypeVlan);
    store_be16(at + 2, tag_of(route.vlan, route.priority));
    at += kVlanBytes;
  }
  const bool v4 = is_ipv4(route.source);
  store_be16(at, v4 ? kTypeIpv4 : kTypeIpv6);
  at += 2;
  const auto udp_bytes = static_cast<std::uint16_t>(kUdpBytes + transport_bytes);
  if (v4) {
    at[0] = kIpv4NoOptions;
    at[1] = std::byte{route.traffic_class};
    store_be16(at + 2, static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes));
    store_be16(at + 4, 0);  // never fragmented, so no identification (RFC 6864)
    store_be16(at + 6, kDontFragment);
    at[8] = std::byte{route.hop_limit};
    at[9] = std::byte{kProtocolUdp};
    store_be16(at + 10, 0);
    std::memcpy(at + 12, route.source.bytes.data() + 12, 4);
    std::memcpy(at + 16, route.destination.bytes.data() + 12, 4);
    store_be16(at + 10, internet_checksum({at, kIpv4Bytes}));
    at += kIpv4Bytes;
  } else {
    store_be32(at, 0x60000000u | std::uint32_t{route.traffic_class} << 20);
    store_be16(at + 4, udp_bytes);
    at[6] = std::byte{kProtocolUdp};
    at[7] = std::byte{route.hop_limit};
    std::memcpy(at + 8, route.source.bytes.data(), 16);
    std::memcpy(at + 24, route.destination.bytes.data(), 16);
    at += kIpv6Bytes;
  }
  store_be16(at, route.udp_source_port);
  store_be16(at + 2, kRoceUdpPort);
  store_be16(at + 4, udp_bytes);
  store_be16(at + 6, 0);  // A17.3.1: no UDP checksum, since there is an invariant CRC
}

bool icrc_correct(const Frame& frame, std::span<const std::byte> bytes) noexcept {
  const std::uint32_t crc =
      icrc_start(bytes.data() + frame.network_offset,
                 std::size_t{frame.transport_offset} - frame.network_offset, frame.transport.size());
  std::uint32_t expected;  // least significant byte first, as in the processor's memory
  std::memcpy(&expected, frame.transport.data() + frame.transport.size(), kIcrcBytes);
  return crc == expected;
}

std::uint16_t internet_checksum(std::span<const std::byte> bytes, std::uint32_t start) noexcept {
  std::uint64_t sum = start;
  std::size_t i = 0;
  for (; i + 2 <= bytes.size(); i += 2) sum += load_be16(bytes.data() + i);
  if (i < bytes.size()) sum += std::to_integer<std::uint32_t>(bytes[i]) << 8;
  return static_cast<std::uint16_t>(~folded(sum));
}

namespace {

constexpr std::size_t kArpIpv4Bytes = 28;
constexpr std::uint32_t kManagement = 1;

/// Header fields that a filter matches. Length fields are ignored, because the payload of an outgoing frame
/// is in other buffers.
struct Headers {
  bool addressed = false;  ///< source and destination are set
  PeerAddress source;
  PeerAddress destination;
  std::uint32_t queue_pair = 0;  ///< destination queue pair; zero if not RoCEv2
};

void read_transport(Headers& headers, std::uint8_t protocol, std::span<const std::byte> udp) noexcept {
  if (protocol != kProtocolUdp || udp.size() < kUdpBytes + kBthBytes) return;
  if (load_be16(udp.data() + 2) == kRoceUdpPort)
    headers.queue_pair = load_be32(udp.data() + kUdpBytes + 4) & 0xFFFFFF;
}

Headers read_headers(std::span<const std::byte> head) noexcept {
  Headers headers;
  if (head.size() < kEthernetBytes + kVlanBytes) return headers;
  std::uint16_t type = load_be16(head.data() + 12);
  std::size_t offset = kEthernetBytes;
  if (type == kTypeVlan) {
    type = load_be16(head.data() + 16);
    offset += kVlanBytes;
  }
  const auto packet = head.subspan(offset);
  if (type == kTypeIpv4 && packet.size() >= kIpv4Bytes) {
    headers.addressed = true;
    set_ipv4(headers.source, packet.data() + 12);
    set_ipv4(headers.destination, packet.data() + 16);
    const std::size_t header_bytes = std::to_integer<std::size_t>(packet[0] & std::byte{15}) * 4;
    if (header_bytes >= kIpv4Bytes && header_bytes <= packet.size())
      read_transport(headers, std::to_integer<std::uint8_t>(packet[9]), packet.subspan(header_bytes));
  } else if (type == kTypeIpv6 && packet.size() >= kIpv6Bytes) {
    headers.addressed = true;
    std::memcpy(headers.source.bytes.data(), packet.data() + 8, 16);
    std::memcpy(headers.destination.bytes.data(), packet.data() + 24, 16);
    read_transport(headers, std::to_integer<std::uint8_t>(packet[6]), packet.subspan(kIpv6Bytes));
  } else if (type == kTypeArp && packet.size() >= kArpIpv4Bytes) {
    headers.addressed = true;
    set_ipv4(headers.source, packet.data() + 14);
    set_ipv4(headers.destination, packet.data() + 24);
  }
  return headers;
}

bool of_queue_pair(std::uint32_t wanted, const Flow& flow, Way way, const Headers& headers) noexcept {
  if (way == Way::In || wanted == kManagement) return headers.queue_pair == wanted;
  return flow.queue_pair == wanted && headers.queue_pair == flow.peer_queue_pair &&
         headers.destination == flow.peer;
}

}  // namespace

bool matches(const CaptureFilter& filter, const Flow& flow, Way way,
             std::span<const std::byte> head) noexcept {
  if (!filter.peer && filter.queue_pair == 0) return true;
  const Headers headers = read_headers(head);
  if (!headers.addressed) return false;
  if (filter.peer && *filter.peer != (way == Way::In ? headers.source : headers.destination)) return false;
  return filter.queue_pair == 0 || of_queue_pair(filter.queue_pair, flow, way, headers);
}

}  // namespace sluice::rdma::softroce
