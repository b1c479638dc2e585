// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/net_address.h"

#include <gtest/gtest.h>

#include <array>

namespace sluice {
namespace {

TEST(Netid, V1_179_V2_153_rdma_names_ipv4_and_rdma6_names_ipv6) {
  const auto v4 = PeerAddress::from_ipv4(192, 0, 2, 1);
  EXPECT_STREQ(netid(v4), "rdma");
  EXPECT_EQ(universal_address(v4, 20049), "192.0.2.1.78.81");
  const PeerAddress v6{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  EXPECT_STREQ(netid(v6), "rdma6");
  EXPECT_EQ(universal_address(v6, 20049), "2001:db8::1.78.81");
}

TEST(PeerAddress, a_prefix_is_compared_by_bits) {
  const auto address = PeerAddress::from_ipv4(192, 0, 2, 129);
  EXPECT_TRUE(address.within(PeerAddress::from_ipv4(192, 0, 2, 128), 121));
  EXPECT_FALSE(address.within(PeerAddress::from_ipv4(192, 0, 2, 0), 121));
  EXPECT_TRUE(address.within(PeerAddress::from_ipv4(192, 0, 2, 0), 120));
  EXPECT_TRUE(address.within(address, 128));
  EXPECT_FALSE(address.within(PeerAddress::from_ipv4(192, 0, 2, 128), 128));
}

TEST(PeerAddress, the_own_address_is_the_first_of_the_peers_family) {
  const PeerAddress v6{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const PeerAddress own[] = {v6, PeerAddress::from_ipv4(192, 0, 2, 1), PeerAddress::from_ipv4(192, 0, 2, 2)};
  EXPECT_EQ(local_for(own, PeerAddress::from_ipv4(198, 51, 100, 7)), own[1]);
  EXPECT_EQ(local_for(own, PeerAddress{{0xfe, 0x80}}), v6);
  EXPECT_EQ(local_for({}, v6), PeerAddress{});
}

TEST(PeerAddress, the_own_address_for_a_link_local_peer_is_link_local) {
  const PeerAddress global{{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const PeerAddress on_link{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  const PeerAddress peer_on_link{{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}};
  const PeerAddress four = PeerAddress::from_ipv4(192, 0, 2, 1);
  EXPECT_EQ(local_for(std::array{four, global, on_link}, peer_on_link), on_link);
  EXPECT_EQ(local_for(std::array{four, on_link, global}, global), global);
  EXPECT_EQ(local_for(std::array{four, on_link}, global), on_link) << "the only address of the family";
}

TEST(PeerAddress, the_text_of_a_link_local_address_has_the_interface_of_its_zone) {
  const auto on_loopback = parse_address("fe80::1%lo");
  ASSERT_TRUE(on_loopback);
  EXPECT_NE(on_loopback->zone, 0u);
  EXPECT_EQ(to_string(*on_loopback), "fe80::1%lo");
  EXPECT_EQ(text_without_zone(*on_loopback), "fe80::1");
  EXPECT_EQ(universal_address(*on_loopback, 20049), "fe80::1.78.81") << "another host has other interfaces";
  EXPECT_NE(on_loopback, parse_address("fe80::1")) << "two links, two hosts";
  EXPECT_TRUE(on_loopback->within(PeerAddress{{0xfe, 0x80}}, 64)) << "a prefix counts on every link";
  for (const char* const wrong : {"fe80::1%", "fe80::1%eth77", "2001:db8::1%lo", "192.0.2.1%lo", "%lo", "lo"})
    EXPECT_FALSE(parse_address(wrong)) << wrong;
  EXPECT_EQ(to_string({.bytes = on_loopback->bytes, .zone = 0x7fffffff}), "fe80::1%2147483647");
}

}  // namespace
}  // namespace sluice
