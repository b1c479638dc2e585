// SPDX-License-Identifier: Apache-2.0
//
// Data that passes a reactor uninterpreted: management datagrams, and sets of transport properties.
#include "dataplane/reactor/connectors.h"
#include "dataplane/reactor/properties.h"
#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

// --- Datagrams

class Datagrams : public testing::Test {
 protected:
  static rdma::Datagram datagram(std::uint8_t first) {
    rdma::Datagram made;
    made.bytes = 256;
    made.data[0] = std::byte{first};
    return made;
  }

  FakeDevice device_;
  MemorySegment segment_;
  Counters counters_;
  DatagramRelay relay_{device_, segment_.area(), counters_};
};

TEST_F(Datagrams, pass_both_ways_and_are_counted) {
  EXPECT_FALSE(relay_.poll());
  device_.received.push_back(datagram(1));
  ASSERT_TRUE(segment_.area().punt_down.push({datagram(2)}));
  EXPECT_TRUE(relay_.poll());
  segment::Punt up;
  ASSERT_TRUE(segment_.area().punt_up.pop(up));
  EXPECT_EQ(up.datagram.data[0], std::byte{1});
  ASSERT_EQ(device_.sent.size(), 1u);
  EXPECT_EQ(device_.sent[0].data[0], std::byte{2});
  EXPECT_EQ(counters_.punts, 2u);
  EXPECT_EQ(counters_.punts_lost, 0u);
}

TEST_F(Datagrams, of_one_pass_are_bounded_in_each_direction) {
  for (std::size_t i = 0; i < kDatagramsPerPass + 1; ++i) {
    device_.received.push_back(datagram(1));
    ASSERT_TRUE(segment_.area().punt_down.push({datagram(2)}));
  }
  EXPECT_TRUE(relay_.poll());
  EXPECT_EQ(device_.received.size(), 1u);
  EXPECT_EQ(device_.sent.size(), kDatagramsPerPass);
}

TEST_F(Datagrams, that_find_the_ring_full_wait_in_the_device) {
  while (segment_.area().punt_up.push({datagram(0)})) {
  }
  device_.received.push_back(datagram(1));
  EXPECT_FALSE(relay_.poll());
  EXPECT_EQ(device_.received.size(), 1u);
  segment::Punt up;
  ASSERT_TRUE(segment_.area().punt_up.pop(up));
  EXPECT_TRUE(relay_.poll());
  EXPECT_TRUE(device_.received.empty());
  EXPECT_EQ(counters_.punts_lost, 0u);
}

// --- Properties

class Properties : public testing::Test {
 protected:
  void send_down(std::uint32_t connection, std::uint32_t incarnation) {
    segment::PropertyPart part{
        .connection = connection, .incarnation = incarnation, .total_bytes = 8, .offset = 0, .bytes = 8};
    ASSERT_TRUE(parts_.segment.area().properties_down.push(part));
  }

  FakeDevice device_;
  Parts parts_{device_};
};

TEST_F(Properties, that_are_meant_for_no_connection_are_dropped) {
  const rpcrdma::Connection& connection = parts_.establish(5);
  const std::uint32_t incarnation = parts_.incarnation(connection);
  send_down(connection.number(), incarnation + 1);
  send_down(kConnections, incarnation);
  send_down(0xFFFF, incarnation);
  EXPECT_TRUE(parts_.properties.poll());
  EXPECT_EQ(parts_.segment.area().properties_down.size(), 0u);
  EXPECT_FALSE(parts_.properties.poll());
}

TEST_F(Properties, of_a_set_longer_than_a_part_go_up_in_order_under_the_id_of_their_connection) {
  PropertyRelay relay(parts_.segment.area());
  std::vector<std::byte> body(segment::PropertyPart::kBytes + 4, std::byte{7});
  ASSERT_TRUE(relay.take(2, 55, body, true));
  segment::PropertyPart first;
  segment::PropertyPart second;
  ASSERT_TRUE(parts_.segment.area().properties_up.pop(first));
  ASSERT_TRUE(parts_.segment.area().properties_up.pop(second));
  EXPECT_EQ(first.incarnation, 55u);
  EXPECT_EQ(first.connection, 2u);
  EXPECT_EQ(first.first_set, 1u);
  EXPECT_EQ(first.bytes, segment::PropertyPart::kBytes);
  EXPECT_EQ(second.offset, segment::PropertyPart::kBytes);
  EXPECT_EQ(second.bytes, 4u);
  EXPECT_EQ(second.total_bytes, body.size());
}

TEST_F(Properties, of_a_set_that_breaks_off_are_forgotten_with_the_next_one) {
  PropertyRelay relay(parts_.segment.area());
  auto& down = parts_.segment.area().properties_down;
  ASSERT_TRUE(down.push({.connection = 1, .incarnation = 9, .total_bytes = 900, .offset = 0, .bytes = 480}));
  ASSERT_TRUE(down.push({.connection = 2, .incarnation = 10, .total_bytes = 4, .offset = 0, .bytes = 4}));
  std::vector<std::uint32_t> delivered;
  relay.poll([&](std::uint16_t, std::uint32_t incarnation, std::span<const std::byte> octets) {
    EXPECT_EQ(octets.size(), 4u);
    delivered.push_back(incarnation);
    return true;
  });
  EXPECT_EQ(delivered, std::vector<std::uint32_t>{10});
}

TEST_F(Properties, with_lengths_that_cannot_be_reach_nobody) {
  PropertyRelay relay(parts_.segment.area());
  auto& down = parts_.segment.area().properties_down;
  ASSERT_TRUE(down.push({.incarnation = 9, .total_bytes = 481, .offset = 0, .bytes = 481}));
  ASSERT_TRUE(down.push({.incarnation = 9, .total_bytes = 484, .offset = 480, .bytes = 4}));
  relay.poll([&](std::uint16_t, std::uint32_t, std::span<const std::byte>) {
    ADD_FAILURE();
    return true;
  });
}

}  // namespace
}  // namespace sluice::reactor
