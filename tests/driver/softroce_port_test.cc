// SPDX-License-Identifier: Apache-2.0
//
// Opening a softroce port: which configurations are refused with which message, how the ethdev is configured,
// and that each of its lanes sends and receives.
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include <string>

#include "pmd/softroce/pools.h"
#include "tests/driver/raw_peer.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;

class SoftPort : public RawPeerTest {
 protected:
  /// Each configuration gets a new name, because DPDK keeps objects that a refused port had created.
  static PortConfig config_of(const RawWire& wire) {
    static int made = 0;
    PortConfig config;
    config.name = "port" + std::to_string(made++);
    config.ethdev = wire.ethdev();
    config.addresses = {{kOwn, 120}};
    return config;
  }
  /// Returns the message with which the port is refused; empty if it opens.
  static std::string refusal(const PortConfig& config) {
    try {
      Port::open(config);
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  }
  static void expect_says(const std::string& sentence, const std::string& part) {
    EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
  }
};

TEST_F(SoftPort, no_lane_and_more_than_there_can_be_are_refused) {
  RawWire wire;
  PortConfig config = config_of(wire);
  for (const std::uint32_t lanes : {0u, kMaxLanes + 1}) {
    config.lanes = lanes;
    expect_says(refusal(config), "supports 1 to 8 reactors");
  }
  config.lanes = 1;
  EXPECT_EQ(refusal(config), "");
}

TEST_F(SoftPort, the_pools_of_a_process_that_ends_are_left_to_the_kernel) {
  RawWire wire;
  RawWire second_wire;
  const PortConfig freed = config_of(wire);
  Port::open(freed)->make_device(0);
  EXPECT_EQ(rte_mempool_lookup((freed.name + "-rx0").c_str()), nullptr);
  const PortConfig left = config_of(second_wire);
  leave_pools(true);
  Port::open(left)->make_device(0);
  leave_pools(false);
  rte_mempool* const pool = rte_mempool_lookup((left.name + "-rx0").c_str());
  ASSERT_NE(pool, nullptr) << "DPDK would have written zeros over all of it";
  free_pool(pool);
}

TEST_F(SoftPort, a_port_of_a_name_that_is_taken_is_refused_and_says_what_failed) {
  RawWire wire;
  RawWire second_wire;
  const PortConfig config = config_of(wire);
  const auto first = Port::open(config);
  PortConfig second = config_of(second_wire);
  second.name = config.name;
  expect_says(refusal(second), "cannot create receive buffers (File exists)");
}

TEST_F(SoftPort, a_ring_that_cannot_be_made_is_refused_by_its_name) {
  RawWire wire;
  PortConfig config = config_of(wire);
  config.lanes = 2;
  const std::string name = config.name + "-0to1";
  rte_ring* taken = rte_ring_create(name.c_str(), 64, 0, 0);
  ASSERT_NE(taken, nullptr);
  expect_says(refusal(config), "Cannot make the ring '" + name + "' (File exists)");
  rte_ring_free(taken);
}

TEST_F(SoftPort, receive_buffers_lie_where_the_card_is_or_nowhere) {
  for (const unsigned node : {0u, 1u}) {
    RawWire wire(1, node);
    const PortConfig config = config_of(wire);
    if (node >= rte_socket_count()) {
      expect_says(refusal(config), "cannot create receive buffers");
      continue;
    }
    const auto port = Port::open(config);
    const rte_mempool* pool = rte_mempool_lookup((config.name + "-rx0").c_str());
    ASSERT_NE(pool, nullptr);
    EXPECT_EQ(pool->socket_id, static_cast<int>(node));
  }
}

TEST_F(SoftPort, several_receive_queues_share_the_packets_by_their_hash_and_one_needs_none) {
  for (const std::uint16_t queues : {std::uint16_t{1}, std::uint16_t{2}}) {
    RawWire wire(queues);
    PortConfig config = config_of(wire);
    config.lanes = config.hardware_queues = 2;  // limited to what the ethdev has
    const auto port = Port::open(config);
    rte_eth_conf used{};
    ASSERT_EQ(rte_eth_dev_conf_get(wire.ethdev(), &used), 0);
    EXPECT_EQ(used.rxmode.mq_mode, queues == 2 ? RTE_ETH_MQ_RX_RSS : RTE_ETH_MQ_RX_NONE);
  }
}

TEST_F(SoftPort, the_mtu_of_a_virtual_ethdev_is_that_of_what_it_stands_on) {
  RawWire wire;
  std::uint16_t before = 0;
  ASSERT_EQ(rte_eth_dev_get_mtu(wire.ethdev(), &before), 0);
  PortConfig config = config_of(wire);
  config.link_mtu = 4200;
  const auto port = Port::open(config);
  std::uint16_t after = 0;
  ASSERT_EQ(rte_eth_dev_get_mtu(wire.ethdev(), &after), 0);
  EXPECT_EQ(after, before);
}

/// Lanes beyond the hardware queues receive and send through a lane that has a queue.
TEST_F(SoftPort, every_lane_of_a_full_port_takes_requests_and_answers) {
  for (const std::uint16_t queues : {std::uint16_t{1}, std::uint16_t{3}}) {
    open(
        [&](PortConfig& config) {
          config.lanes = kMaxLanes;
          config.hardware_queues = queues;
          config.link_mtu = 1500;
        },
        queues);
    for (std::uint32_t lane = 0; lane < kMaxLanes; ++lane) {
      connect(own, kPeerQp + lane, {}, lane);
      EXPECT_EQ(static_cast<std::uint32_t>(own.qp->number()) % kMaxLanes, lane);
      ASSERT_TRUE(own.receive(1, own.sge(0, 64)));
      sent.clear();
      inject(frame(own, Opcode::SendOnly, kPeerPsn, pattern(8)), lane % queues);
      EXPECT_TRUE(completed(own, 1)) << lane;
      EXPECT_TRUE(until([&] { return count(Opcode::Acknowledge) == 1; })) << lane;
      ASSERT_FALSE(sent.empty());
      EXPECT_EQ(sent[0].packet.bth.destination_qp, kPeerQp + lane);
    }
  }
}

}  // namespace
}  // namespace sluice::rdma::conformance
