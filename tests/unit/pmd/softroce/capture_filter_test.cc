// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/capture_filter.h"

#include <gtest/gtest.h>

#include <vector>

#include "pmd/softroce/byte_order.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {
namespace {

constexpr PeerAddress kHere = PeerAddress::from_ipv4(192, 0, 2, 1);
constexpr PeerAddress kThere = PeerAddress::from_ipv4(192, 0, 2, 2);
constexpr PeerAddress kSixThere{{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
constexpr PeerAddress kSixHere{{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
constexpr Flow kFlow{.queue_pair = 0x11, .peer_queue_pair = 0x22, .peer = kThere};

/// Returns the headers of a packet to `queue_pair`.
std::vector<std::byte> packet(const PeerAddress& from, const PeerAddress& to, std::uint32_t queue_pair,
                              std::uint16_t vlan = kNoVlan) {
  Route route;
  route.source = from;
  route.destination = to;
  route.vlan = vlan;
  std::vector<std::byte> bytes(network_header_bytes(route) + kBthBytes);
  write_network_headers(route, 1000, bytes.data());  // the packet has no payload here
  store_be32(bytes.data() + network_header_bytes(route) + 4, queue_pair);
  return bytes;
}

CaptureFilter peer(const PeerAddress& address) {
  return {.peer = address, .queue_pair = 0};
}
CaptureFilter queue_pair(std::uint32_t number) {
  return {.peer = {}, .queue_pair = number};
}

TEST(CaptureFilter, an_empty_one_keeps_whatever_there_is) {
  EXPECT_TRUE(matches({}, {}, Way::In, {}));
  EXPECT_TRUE(matches({}, {}, Way::Out, packet(kHere, kThere, 1)));
}

TEST(CaptureFilter, a_peer_is_the_source_of_what_comes_and_the_destination_of_what_goes) {
  for (const std::uint16_t vlan : {kNoVlan, std::uint16_t{7}}) {
    EXPECT_TRUE(matches(peer(kThere), {}, Way::In, packet(kThere, kHere, 5, vlan)));
    EXPECT_FALSE(matches(peer(kThere), {}, Way::In, packet(kHere, kThere, 5, vlan)));
    EXPECT_TRUE(matches(peer(kThere), {}, Way::Out, packet(kHere, kThere, 5, vlan)));
    EXPECT_FALSE(matches(peer(kThere), {}, Way::Out, packet(kThere, kHere, 5, vlan)));
    EXPECT_TRUE(matches(peer(kSixThere), {}, Way::In, packet(kSixThere, kSixHere, 5, vlan)));
    EXPECT_FALSE(matches(peer(kSixThere), {}, Way::Out, packet(kSixThere, kSixHere, 5, vlan)));
  }
}

TEST(CaptureFilter, arp_belongs_to_its_sender_and_target) {
  std::vector<std::byte> arp(kEthernetBytes + 28);
  store_be16(arp.data() + 12, 0x0806);
  std::copy_n(reinterpret_cast<const std::byte*>(kThere.bytes.data()) + 12, 4,
              arp.data() + kEthernetBytes + 14);
  std::copy_n(reinterpret_cast<const std::byte*>(kHere.bytes.data()) + 12, 4,
              arp.data() + kEthernetBytes + 24);
  EXPECT_TRUE(matches(peer(kThere), {}, Way::In, arp));
  EXPECT_FALSE(matches(peer(kThere), {}, Way::Out, arp));
  EXPECT_TRUE(matches(peer(kHere), {}, Way::Out, arp));
  EXPECT_FALSE(matches(queue_pair(0x11), kFlow, Way::In, arp));
}

TEST(CaptureFilter, a_queue_pair_is_ours_and_what_goes_names_the_peers) {
  EXPECT_TRUE(matches(queue_pair(0x11), kFlow, Way::In, packet(kThere, kHere, 0x11)));
  EXPECT_FALSE(matches(queue_pair(0x11), kFlow, Way::In, packet(kThere, kHere, 0x22)));
  EXPECT_TRUE(matches(queue_pair(0x11), kFlow, Way::Out, packet(kHere, kThere, 0x22)));
  EXPECT_FALSE(matches(queue_pair(0x11), kFlow, Way::Out, packet(kHere, kThere, 0x11)));
  // Another host may have a queue pair of the same number, and the flow may be that of an earlier filter.
  EXPECT_FALSE(matches(queue_pair(0x11), kFlow, Way::Out, packet(kHere, kSixThere, 0x22)));
  EXPECT_FALSE(matches(queue_pair(0x12), kFlow, Way::Out, packet(kHere, kThere, 0x22)));
  // The management queue pair has the same number on each host.
  EXPECT_TRUE(matches(queue_pair(1), {}, Way::Out, packet(kHere, kThere, 1)));
  EXPECT_TRUE(matches(queue_pair(1), {}, Way::In, packet(kThere, kHere, 1)));
}

TEST(CaptureFilter, both_have_to_match) {
  const CaptureFilter both{.peer = kThere, .queue_pair = 0x11};
  EXPECT_TRUE(matches(both, kFlow, Way::In, packet(kThere, kHere, 0x11)));
  EXPECT_FALSE(matches(both, kFlow, Way::In, packet(kHere, kHere, 0x11)));
  EXPECT_FALSE(matches(both, kFlow, Way::In, packet(kThere, kHere, 0x12)));
}

TEST(CaptureFilter, headers_that_are_cut_off_match_nothing) {
  for (const auto& whole : {packet(kThere, kHere, 0x11, 7), packet(kSixThere, kSixHere, 0x11)})
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
      EXPECT_FALSE(matches(queue_pair(0x11), kFlow, Way::In,
                           std::vector(whole.begin(), whole.begin() + static_cast<long>(bytes))))
          << bytes;
  std::vector<std::byte> bad = packet(kThere, kHere, 0x11);
  bad[kEthernetBytes] = std::byte{0x4F};  // options that extend to the end of the packet
  EXPECT_FALSE(matches(queue_pair(0x11), kFlow, Way::In, bad));
}

}  // namespace
}  // namespace sluice::rdma::softroce
