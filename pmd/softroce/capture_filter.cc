// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/capture_filter.h"

#include <cstring>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint16_t kEtherIpv4 = 0x0800;
constexpr std::uint16_t kEtherArp = 0x0806;
constexpr std::uint16_t kEtherVlan = 0x8100;
constexpr std::uint16_t kEtherIpv6 = 0x86DD;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::size_t kArpIpv4Bytes = 28;
constexpr std::uint32_t kManagement = 1;

/// What a filter asks for. Lengths in the headers are not looked at: of an outgoing frame the payload is elsewhere.
struct Headers {
  bool addressed = false;  ///< source and destination are set
  PeerAddress source;
  PeerAddress destination;
  std::uint32_t queue_pair = 0;  ///< the destination's; zero: not RoCEv2
};

PeerAddress ipv4_at(const std::byte* at) noexcept {
  PeerAddress address = PeerAddress::from_ipv4(0, 0, 0, 0);
  std::memcpy(address.bytes.data() + 12, at, 4);
  return address;
}

void read_transport(Headers& headers, std::uint8_t protocol, std::span<const std::byte> udp) noexcept {
  if (protocol != kProtocolUdp || udp.size() < kUdpBytes + kBthBytes) return;
  if (load_be16(udp.data() + 2) == kRoceUdpPort)
    headers.queue_pair = load_be32(udp.data() + kUdpBytes + 4) & 0xFFFFFF;
}

Headers read(std::span<const std::byte> head) noexcept {
  Headers headers;
  if (head.size() < kEthernetBytes + kVlanBytes) return headers;
  std::uint16_t type = load_be16(head.data() + 12);
  std::size_t offset = kEthernetBytes;
  if (type == kEtherVlan) {
    type = load_be16(head.data() + 16);
    offset += kVlanBytes;
  }
  const auto packet = head.subspan(offset);
  if (type == kEtherIpv4 && packet.size() >= kIpv4Bytes) {
    headers.addressed = true;
    headers.source = ipv4_at(packet.data() + 12);
    headers.destination = ipv4_at(packet.data() + 16);
    const std::size_t header_bytes = std::to_integer<std::size_t>(packet[0] & std::byte{15}) * 4;
    if (header_bytes >= kIpv4Bytes && header_bytes <= packet.size())
      read_transport(headers, std::to_integer<std::uint8_t>(packet[9]), packet.subspan(header_bytes));
  } else if (type == kEtherIpv6 && packet.size() >= kIpv6Bytes) {
    headers.addressed = true;
    std::memcpy(headers.source.bytes.data(), packet.data() + 8, 16);
    std::memcpy(headers.destination.bytes.data(), packet.data() + 24, 16);
    read_transport(headers, std::to_integer<std::uint8_t>(packet[6]), packet.subspan(kIpv6Bytes));
  } else if (type == kEtherArp && packet.size() >= kArpIpv4Bytes) {
    headers.addressed = true;
    headers.source = ipv4_at(packet.data() + 14);
    headers.destination = ipv4_at(packet.data() + 24);
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
  const Headers headers = read(head);
  if (!headers.addressed) return false;
  if (filter.peer && *filter.peer != (way == Way::In ? headers.source : headers.destination)) return false;
  return filter.queue_pair == 0 || of_queue_pair(filter.queue_pair, flow, way, headers);
}

}  // namespace sluice::rdma::softroce
