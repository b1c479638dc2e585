// SPDX-License-Identifier: Apache-2.0
//
// Answers to TCP and UDP at addresses of the port, byte by byte. tests/operations/link_test.py tests them
// with Linux's TCP and UDP.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/host_frames.h"
#include "pmd/softroce/neighbours.h"

namespace sluice::rdma::softroce {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint8_t kTcp = 6;
constexpr std::uint8_t kUdp = 17;
constexpr std::uint8_t kFin = 1, kSyn = 2, kReset = 4, kAck = 16;
constexpr MacAddress kOwnMac{2, 0, 0, 0, 0, 1};
constexpr MacAddress kSenderMac{2, 0, 0, 0, 0, 2};

PeerAddress address(bool six, std::uint8_t host) {
  if (!six) return PeerAddress::from_ipv4(192, 0, 2, host);
  return {{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
}

class Refusals : public testing::TestWithParam<bool> {
 protected:
  bool six() const { return GetParam(); }
  std::size_t header_bytes() const { return six() ? kIpv6Bytes : kIpv4Bytes; }

  /// Returns a frame from the peer to the port.
  Bytes frame(std::uint8_t protocol, const Bytes& payload) {
    Route route;
    route.source_mac = kSenderMac;
    route.destination_mac = kOwnMac;
    route.source = source_;
    route.destination = destination_;
    Bytes bytes(kMaxNetworkHeaderBytes + payload.size());
    // The payload overwrites the UDP header that this call writes.
    write_network_headers(route, payload.size() - kUdpBytes, bytes.data());
    bytes.resize(kEthernetBytes + header_bytes() + payload.size());
    std::byte* ip = bytes.data() + kEthernetBytes;
    if (six()) {
      ip[6] = std::byte{protocol};
    } else {
      ip[9] = std::byte{protocol};
      store_be16(ip + 10, 0);
      store_be16(ip + 10, internet_checksum({ip, kIpv4Bytes}));
    }
    std::ranges::copy(payload, ip + header_bytes());
    return bytes;
  }
  static Bytes segment(std::uint8_t flags, std::size_t data = 0, std::uint8_t header_words = 5) {
    Bytes tcp(20 + data);
    store_be16(tcp.data(), 1023);
    store_be16(tcp.data() + 2, 2049);
    store_be32(tcp.data() + 4, 0xFFFFFFFF);
    store_be32(tcp.data() + 8, 77);
    tcp[12] = static_cast<std::byte>(header_words << 4);
    tcp[13] = std::byte{flags};
    return tcp;
  }
  static Bytes datagram(std::size_t data) {
    Bytes udp(8 + data, std::byte{5});
    store_be16(udp.data(), 1023);
    store_be16(udp.data() + 2, 111);
    store_be16(udp.data() + 4, static_cast<std::uint16_t>(udp.size()));
    return udp;
  }
  /// Checks the headers of the answer to `bytes` and returns its IP payload; empty if there is no answer.
  Bytes answer(const Bytes& bytes, std::uint8_t protocol) {
    std::array<std::byte, kMaxAnswerBytes> out;
    const std::size_t length = neighbours_.on_frame(parse(bytes), bytes, out.data(), statistics_);
    if (length == 0) return {};
    const std::span<const std::byte> sent(out.data(), length);
    const Frame seen = parse(sent);
    EXPECT_EQ(mac_at(sent.data()), kSenderMac);
    EXPECT_EQ(mac_at(sent.data() + 6), kOwnMac);
    EXPECT_EQ(seen.kind, six() ? FrameKind::Ipv6 : FrameKind::Ipv4);
    EXPECT_EQ(seen.protocol, protocol);
    EXPECT_EQ(seen.source, destination_);
    EXPECT_EQ(seen.destination, source_);
    if (!six()) {
      EXPECT_EQ(internet_checksum(sent.subspan(kEthernetBytes, kIpv4Bytes)), 0);
    }
    std::uint32_t pseudo = protocol + static_cast<std::uint32_t>(seen.transport.size());
    for (const PeerAddress* each : {&seen.source, &seen.destination})
      for (std::size_t i = six() ? 0 : 12; i < 16; i += 2)
        pseudo += static_cast<std::uint32_t>(each->bytes[i] << 8 | each->bytes[i + 1]);
    const bool has_pseudo = six() || protocol == kTcp;
    EXPECT_EQ(internet_checksum(seen.transport, has_pseudo ? pseudo : 0), 0);
    return {seen.transport.begin(), seen.transport.end()};
  }
  Bytes answer_to_segment(std::uint8_t flags, std::size_t data = 0) {
    return answer(frame(kTcp, segment(flags, data)), kTcp);
  }
  std::uint8_t icmp() const { return six() ? 58 : 1; }

  const PortConfig config_ = [] {
    PortConfig config;
    config.addresses = {{address(false, 1), 120}, {address(true, 1), 64}};
    return config;
  }();
  NeighbourCache cache_;
  std::uint64_t now_ns_ = 1'000'000'000;
  Statistics statistics_;
  Neighbours neighbours_{config_, kOwnMac, cache_, now_ns_};
  PeerAddress source_ = address(GetParam(), 2);
  PeerAddress destination_ = address(GetParam(), 1);
};
INSTANTIATE_TEST_SUITE_P(Family, Refusals, testing::Bool(),
                         [](const auto& six) { return six.param ? "ipv6" : "ipv4"; });

/// RFC 9293, section 3.10.7.1.
TEST_P(Refusals, a_segment_without_ack_is_reset_with_the_number_behind_it) {
  for (const auto& [flags, data, length] :
       {std::tuple{kSyn, 0u, 1u}, {std::uint8_t{0}, 10u, 10u}, {kFin, 3u, 4u}}) {
    const Bytes reset = answer_to_segment(flags, data);
    ASSERT_EQ(reset.size(), 20u);
    EXPECT_EQ(load_be16(reset.data()), 2049);
    EXPECT_EQ(load_be16(reset.data() + 2), 1023);
    EXPECT_EQ(load_be32(reset.data() + 4), 0u);
    EXPECT_EQ(load_be32(reset.data() + 8), 0xFFFFFFFF + length);
    EXPECT_EQ(reset[13], std::byte{kReset | kAck});
  }
  EXPECT_EQ(statistics_.refusals_sent, 3u);
}

TEST_P(Refusals, a_segment_with_ack_is_reset_with_the_number_that_it_expects) {
  const Bytes reset = answer_to_segment(kAck, 10);
  ASSERT_EQ(reset.size(), 20u);
  EXPECT_EQ(load_be32(reset.data() + 4), 77u);
  EXPECT_EQ(load_be32(reset.data() + 8), 0u);
  EXPECT_EQ(reset[13], std::byte{kReset});
}

TEST_P(Refusals, resets_and_broken_segments_have_no_answer) {
  EXPECT_TRUE(answer_to_segment(kReset).empty());
  EXPECT_TRUE(answer_to_segment(kReset | kAck).empty());
  EXPECT_TRUE(answer(frame(kTcp, segment(kSyn, 0, 6)), kTcp).empty()) << "its header is longer than it";
  Bytes cut = segment(kSyn);
  cut.resize(19);
  EXPECT_TRUE(answer(frame(kTcp, cut), kTcp).empty());
  EXPECT_TRUE(answer(frame(132, segment(kSyn)), 132).empty()) << "another protocol";
}

/// RFC 792 and RFC 4443, section 3.1.
TEST_P(Refusals, a_datagram_is_answered_by_port_unreachable_that_quotes_it) {
  for (const std::size_t data : {0u, 4u, 3000u}) {
    const Bytes asked = frame(kUdp, datagram(data));
    const Bytes message = answer(asked, icmp());
    const std::size_t whole = asked.size() - kEthernetBytes;
    const std::size_t most = six() ? kMaxRefusalBytes - kIpv6Bytes - 8 : kIpv4Bytes + kUdpBytes;
    ASSERT_EQ(message.size(), 8 + std::min(whole, most)) << data;
    EXPECT_EQ(message[0], std::byte{six() ? std::uint8_t{1} : std::uint8_t{3}});
    EXPECT_EQ(message[1], std::byte{six() ? std::uint8_t{4} : std::uint8_t{3}});
    EXPECT_TRUE(std::equal(message.begin() + 8, message.end(), asked.begin() + kEthernetBytes));
  }
}

TEST_P(Refusals, answers_go_to_hosts_that_have_sent_to_us) {
  Bytes broadcast = frame(kUdp, datagram(4));
  std::ranges::fill(std::span(broadcast).first(6), std::byte{0xff});
  EXPECT_TRUE(answer(broadcast, icmp()).empty());
  destination_ = address(six(), 9);
  EXPECT_TRUE(answer(frame(kUdp, datagram(4)), icmp()).empty());
  destination_ = address(six(), 1);
  source_ = six() ? kAllNodes : PeerAddress::from_ipv4(239, 1, 2, 3);
  EXPECT_TRUE(answer(frame(kUdp, datagram(4)), icmp()).empty());
  source_ = six() ? kNoAddress : PeerAddress::from_ipv4(0, 0, 0, 0);
  EXPECT_TRUE(answer(frame(kUdp, datagram(4)), icmp()).empty());
  source_ = destination_;
  EXPECT_TRUE(answer(frame(kUdp, datagram(4)), icmp()).empty());
  EXPECT_EQ(statistics_.refusals_sent, 0u);
}

TEST_P(Refusals, answers_are_limited_in_rate) {
  const Bytes asked = frame(kTcp, segment(kSyn));
  std::uint32_t answers = 0;
  for (int i = 0; i < 1000; ++i) answers += !answer(asked, kTcp).empty();
  EXPECT_EQ(answers, kRefusalsInARow);
  EXPECT_EQ(statistics_.refusals_limited, 1000u - kRefusalsInARow);
  now_ns_ += 1'000'000'000 / kRefusalsPerSecond;
  EXPECT_FALSE(answer(asked, kTcp).empty());
  EXPECT_TRUE(answer(asked, kTcp).empty());
  now_ns_ += 3600ull * 1'000'000'000;
  answers = 0;
  for (int i = 0; i < 1000; ++i) answers += !answer(asked, kTcp).empty();
  EXPECT_EQ(answers, kRefusalsInARow) << "an idle hour is no credit";
}

TEST_P(Refusals, the_kernels_services_are_left_to_it) {
  neighbours_.refusals().enable(false);
  EXPECT_TRUE(answer_to_segment(kSyn).empty());
  neighbours_.refusals().enable(true);
  EXPECT_FALSE(answer_to_segment(kSyn).empty());
}

}  // namespace
}  // namespace sluice::rdma::softroce
