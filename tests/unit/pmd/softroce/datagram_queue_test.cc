// SPDX-License-Identifier: Apache-2.0
//
// Shares of the queue of management datagrams for the control plane.
#include "pmd/softroce/datagram_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace sluice::rdma::softroce {
namespace {

PeerAddress host(std::uint8_t number) {
  return PeerAddress::from_ipv4(192, 0, 2, number);
}

class DatagramQueueTest : public testing::Test {
 protected:
  bool arrives(std::uint8_t from) {
    Datagram datagram;
    datagram.remote = host(from);
    datagram.bytes = ++number_;
    const bool taken = queue_.has_room_for(datagram.remote);
    if (taken) queue_.add(datagram);
    return taken;
  }
  std::size_t arrive(std::uint8_t from, int count) {
    std::size_t taken = 0;
    for (int i = 0; i < count; ++i) taken += arrives(from);
    return taken;
  }

  DatagramQueue queue_;
  std::uint16_t number_ = 0;
};

TEST_F(DatagramQueueTest, one_source_has_a_quarter_and_the_others_lose_nothing) {
  EXPECT_EQ(arrive(1, 1000), 16u);
  EXPECT_EQ(arrive(2, 10), 10u);
  EXPECT_FALSE(arrives(1));
  EXPECT_TRUE(arrives(3));
  EXPECT_EQ(arrive(2, 1000), 6u);
  EXPECT_EQ(arrive(3, 1000), 15u);
  EXPECT_EQ(arrive(4, 1000), 16u);
  EXPECT_FALSE(arrives(5)) << "full";
}

TEST_F(DatagramQueueTest, what_is_taken_makes_room_and_keeps_the_order) {
  EXPECT_EQ(arrive(1, 20), 16u);
  EXPECT_TRUE(arrives(2));
  std::array<Datagram, 4> taken;
  ASSERT_EQ(queue_.take(taken), 4u);
  for (std::uint16_t i = 0; i < 4; ++i) EXPECT_EQ(taken[i].bytes, i + 1);
  EXPECT_EQ(arrive(1, 20), 4u);
  std::vector<Datagram> rest(64);
  ASSERT_EQ(queue_.take(rest), 17u);
  EXPECT_EQ(rest[12].remote, host(2));
}

}  // namespace
}  // namespace sluice::rdma::softroce
