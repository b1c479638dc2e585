// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/net_address.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice
