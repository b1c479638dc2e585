// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/port_refusals.h"

#include <cstring>

#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/host_frames.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint8_t kProtocolIcmp = 1;
constexpr std::uint8_t kProtocolTcp = 6;
constexpr std::uint8_t kProtocolUdp = 17;
constexpr std::byte kHops{64};

constexpr std::size_t kTcpBytes = 20;
constexpr std::uint8_t kFin = 1;
constexpr std::uint8_t kSyn = 2;
constexpr std::uint8_t kReset = 4;
constexpr std::uint8_t kAck = 16;

constexpr std::size_t kIcmpBytes = 8;
constexpr std::byte kUnreachable{3};       // RFC 792
constexpr std::byte kPortUnreachable{3};   // its code
constexpr std::byte kUnreachable6{1};      // RFC 4443
constexpr std::byte kPortUnreachable6{4};  // its code

std::uint8_t tcp_flags(std::span<const std::byte> segment) noexcept {
  return static_cast<std::uint8_t>(segment[13]);
}

/// Returns the length of a segment in sequence numbers, or less than zero if its header is longer than the segment.
std::int64_t sequence_length(std::span<const std::byte> segment) noexcept {
  const auto header = static_cast<std::int64_t>(static_cast<std::uint8_t>(segment[12]) >> 4) * 4;
  const std::uint8_t flags = tcp_flags(segment);
  return static_cast<std::int64_t>(segment.size()) - header + ((flags & kSyn) != 0) + ((flags & kFin) != 0);
}

/// Writes an IP header from the destination of `frame` to its source, for `payload` bytes.
std::size_t write_header(const Frame& frame, std::uint8_t protocol, std::size_t payload,
                         std::byte* out) noexcept {
  if (frame.kind == FrameKind::Ipv6) {
    const std::size_t bytes = write_ipv6(frame.destination, frame.source, payload, out);
    out[6] = std::byte{protocol};
    out[7] = kHops;
    return bytes;
  }
  std::memset(out, 0, kIpv4Bytes);
  out[0] = std::byte{0x45};
  store_be16(out + 2, static_cast<std::uint16_t>(kIpv4Bytes + payload));
  out[6] = std::byte{0x40};  // not to be fragmented
  out[8] = kHops;
  out[9] = std::byte{protocol};
  std::memcpy(out + 12, frame.destination.bytes.data() + 12, 4);
  std::memcpy(out + 16, frame.source.bytes.data() + 12, 4);
  store_be16(out + 10, internet_checksum({out, kIpv4Bytes}));
  return kIpv4Bytes;
}

/// Returns the sum of the pseudo header of TCP (RFC 9293, section 3.1) or ICMPv6. IPv4 addresses are the last four bytes.
std::uint32_t pseudo_header(const Frame& frame, std::uint8_t protocol, std::size_t bytes) noexcept {
  std::uint32_t sum = protocol + static_cast<std::uint32_t>(bytes);
  for (const PeerAddress* address : {&frame.source, &frame.destination})
    for (std::size_t i = frame.kind == FrameKind::Ipv6 ? 0 : 12; i < 16; i += 2)
      sum += static_cast<std::uint32_t>(address->bytes[i] << 8 | address->bytes[i + 1]);
  return sum;
}

std::size_t write_reset(const Frame& frame, std::byte* out) noexcept {
  const auto segment = frame.transport;
  std::byte* tcp = out + write_header(frame, kProtocolTcp, kTcpBytes, out);
  std::memset(tcp, 0, kTcpBytes);
  std::memcpy(tcp, segment.data() + 2, 2);
  std::memcpy(tcp + 2, segment.data(), 2);
  tcp[12] = std::byte{kTcpBytes / 4 << 4};
  if ((tcp_flags(segment) & kAck) != 0) {
    std::memcpy(tcp + 4, segment.data() + 8, 4);
    tcp[13] = std::byte{kReset};
  } else {
    store_be32(tcp + 8, load_be32(segment.data() + 4) + static_cast<std::uint32_t>(sequence_length(segment)));
    tcp[13] = std::byte{kReset | kAck};
  }
  store_be16(tcp + 16, internet_checksum({tcp, kTcpBytes}, pseudo_header(frame, kProtocolTcp, kTcpBytes)));
  return static_cast<std::size_t>(tcp + kTcpBytes - out);
}

std::size_t write_unreachable(const Frame& frame, std::span<const std::byte> packet,
                              std::byte* out) noexcept {
  const bool v6 = frame.kind == FrameKind::Ipv6;
  // The IP header and eight bytes of the datagram, or all that fits.
  const std::size_t most = v6 ? kMaxRefusalBytes - kIpv6Bytes - kIcmpBytes : kIpv4Bytes + kUdpBytes;
  const std::size_t quoted = smaller_of(packet.size(), most);
  const std::size_t bytes = kIcmpBytes + quoted;
  std::byte* icmp = out + write_header(frame, v6 ? kProtocolIcmp6 : kProtocolIcmp, bytes, out);
  std::memset(icmp, 0, kIcmpBytes);
  icmp[0] = v6 ? kUnreachable6 : kUnreachable;
  icmp[1] = v6 ? kPortUnreachable6 : kPortUnreachable;
  std::memcpy(icmp + kIcmpBytes, packet.data(), quoted);
  store_be16(icmp + 2,
             internet_checksum({icmp, bytes}, v6 ? pseudo_header(frame, kProtocolIcmp6, bytes) : 0));
  return static_cast<std::size_t>(icmp + bytes - out);
}

/// Returns whether the address can be that of one host.
bool is_host(const PeerAddress& address) noexcept {
  if (!is_ipv4(address)) return address.bytes[0] != 0xff && !same(address, kNoAddress);
  return address.bytes[12] != 0 && address.bytes[12] < 224;
}

}  // namespace

bool PortRefusals::has_answer(const Frame& frame, std::uint64_t now_ns, Statistics& statistics) noexcept {
  if (!enabled_ || !is_host(frame.source)) return false;
  const auto payload = frame.transport;
  const bool tcp = frame.protocol == kProtocolTcp && payload.size() >= kTcpBytes &&
                   (tcp_flags(payload) & kReset) == 0 && sequence_length(payload) >= 0;
  if (!tcp && (frame.protocol != kProtocolUdp || payload.size() < kUdpBytes)) return false;
  if (!within_rate(now_ns)) {
    ++statistics.refusals_limited;
    return false;
  }
  ++statistics.refusals_sent;
  return true;
}

std::size_t PortRefusals::write(const Frame& frame, std::span<const std::byte> packet,
                                std::byte* out) noexcept {
  return frame.protocol == kProtocolTcp ? write_reset(frame, out) : write_unreachable(frame, packet, out);
}

bool PortRefusals::within_rate(std::uint64_t now_ns) noexcept {
  constexpr std::uint64_t kCostNs = 1'000'000'000 / kRefusalsPerSecond;
  const std::uint64_t from = larger_of(paid_until_ns_, now_ns);
  if (from - now_ns > (kRefusalsInARow - 1) * kCostNs) return false;
  paid_until_ns_ = from + kCostNs;
  return true;
}

}  // namespace sluice::rdma::softroce
