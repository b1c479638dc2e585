// SPDX-License-Identifier: Apache-2.0
//
// Lanes that share a card whose driver frees packets late: no frame is lost, and no lane stalls for lack of a
// buffer or of room in a ring.
#include <algorithm>
#include <memory>
#include <vector>

#include "pmd/softroce/softroce.h"
#include "tests/driver/card_stub.h"
#include "tests/driver/driver_fixture.h"
#include "tests/driver/flow_stub.h"
#include "tests/driver/lazy_card.h"

namespace sluice::rdma::conformance {
namespace {

using namespace softroce;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kBytes = 1u << 20;  ///< of a message
constexpr int kPatience = 100'000;          ///< iterations; bounds failing tests

/// Clock of the test. In all the iterations of a passing test it advances by less than a retransmission
/// timeout.
std::uint64_t now_ns = 1;
constexpr std::uint64_t kTurnNs = 500;

struct Shape {
  std::uint32_t lanes = 8;
  std::uint16_t queues = 1;
  bool in_place = true;
  bool v6 = false;
  std::uint16_t vlan = 0xFFFF;    ///< untagged
  std::uint32_t lanes_apart = 0;  ///< from the lane of a queue pair to that of its peer
};

/// A card, the port on it, and an endpoint of each lane.
struct Side {
  Side(const char* prefix, std::uint8_t host, const Shape& shape)
      : card(shape.queues), moving(shape.lanes), address(address_of(shape.v6, host)) {
    static int made = 0;
    PortConfig config;
    config.name = prefix + std::to_string(made++);
    config.ethdev = card.ethdev();
    config.lanes = shape.lanes;
    config.hardware_queues = shape.queues;
    config.addresses = {{address, 120}};
    config.vlan = shape.vlan;
    config.transmit_in_place = config.card_reads_payload = shape.in_place;
    config.max_queue_pairs = 4;
    config.clock_ns = []() noexcept { return now_ns; };
    port = Port::open(config);
    for (std::uint32_t lane = 0; lane < shape.lanes; ++lane) {
      devices.push_back(port->make_device(lane));
      Endpoint& endpoint = endpoints.emplace_back();
      endpoint.device = devices.back().get();
      endpoint.qp = endpoint.device->create_queue_pair({});
      endpoint.memory = endpoint.device->allocate_memory(2 * std::size_t{kBytes});
    }
    for (std::uint32_t queue = 0; queue < shape.queues; ++queue) refill(queue);
  }
  ~Side() { endpoints.clear(); }
  static PeerAddress address_of(bool v6, std::uint8_t host) {
    if (!v6) return PeerAddress::from_ipv4(192, 0, 2, host);
    return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}};
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  void connect(std::size_t lane, const Side& peer, std::size_t peer_lane) {
    RcAttributes attributes;
    attributes.path_mtu = 1024;
    attributes.local = address;
    attributes.remote = peer.address;
    attributes.remote_link = peer.port->link_address();
    attributes.remote_qp = peer.endpoints[peer_lane].qp->number();
    ASSERT_TRUE(endpoints[lane].qp->connect(attributes));
  }
  /// Runs each lane once, and after each lane one step of the link for its queue.
  void turn(Side& peer) {
    now_ns += kTurnNs;
    for (std::uint32_t lane = 0; lane < moving; ++lane) {
      const AsLane as(lane);
      if (lane < card.queues()) refill(lane);
      WorkCompletion completions[16];
      const std::size_t count = devices[lane]->poll(completions);
      endpoints[lane].completions.insert(endpoints[lane].completions.end(), completions, completions + count);
      if (lane < card.queues()) card.carry_to(peer.card, lane);
    }
  }
  void refill(std::uint32_t queue) {
    const AsLane as(queue);
    card.refill(port->config().name, queue);
  }
  /// Sum of a counter over all lanes.
  template <typename Counter>
  std::uint64_t sum(Counter Statistics::*counter) const {
    std::uint64_t sum = 0;
    for (const auto& device : devices) sum += device->statistics().*counter;
    return sum;
  }

  LazyCard card;
  std::uint32_t moving;  ///< the first lanes, which are polled
  const PeerAddress address;
  Owned<Port> port;
  std::vector<std::unique_ptr<SoftRoce>> devices;
  std::vector<Endpoint> endpoints;
};

class SoftLanes : public testing::Test {
 protected:
  void open(const Shape& shape) {
    left = std::make_unique<Side>("lanes-l", 1, shape);
    right = std::make_unique<Side>("lanes-r", 2, shape);
    for (std::size_t lane = 0; lane < shape.lanes; ++lane) {
      const std::size_t other = (lane + shape.lanes_apart) % shape.lanes;
      left->connect(lane, *right, other);
      right->connect(other, *left, lane);
    }
  }
  /// Posts a Receive and a Send; both complete with this identifier.
  static void send(Side& from, Side& to, std::size_t lane, std::uint64_t wr_id) {
    ASSERT_TRUE(to.endpoints[lane].receive(wr_id, to.endpoints[lane].sge(kBytes, kBytes)));
    ASSERT_TRUE(from.endpoints[lane].post(SendOpcode::Send, wr_id, {from.endpoints[lane].sge(0, kBytes)}));
  }
  /// Runs iterations until all lanes from `first_lane` on have this work completion. Returns false if some
  /// lane never gets it.
  bool done(const Side& side, std::size_t first_lane, std::uint64_t wr_id) {
    const auto all = [&] {
      return std::all_of(side.endpoints.begin() + static_cast<std::ptrdiff_t>(first_lane),
                         side.endpoints.end(),
                         [wr_id](const Endpoint& each) { return each.find(wr_id) != nullptr; });
    };
    for (int turn = 0; turn < kPatience && !all(); ++turn) {
      left->turn(*right);
      right->turn(*left);
    }
    return all();
  }
  /// Sends a message from each lane of the left side to its peer lane, and checks that it arrives.
  void send_across(const Shape& shape) {
    for (std::size_t lane = 0; lane < shape.lanes; ++lane) {
      Endpoint& from = left->endpoints[lane];
      Endpoint& to = right->endpoints[(lane + shape.lanes_apart) % shape.lanes];
      ASSERT_TRUE(to.receive(1, to.sge(kBytes, kBytes)));
      ASSERT_TRUE(from.post(SendOpcode::Send, 1, {from.sge(0, kBytes)}));
    }
    ASSERT_TRUE(done(*left, 0, 1));
    ASSERT_TRUE(done(*right, 0, 1));
  }
  void expect_no_loss() const {
    for (const Side* side : {left.get(), right.get()}) {
      EXPECT_EQ(side->card.lost(), 0u);
      EXPECT_EQ(side->card.short_of_buffers(), 0u);
      EXPECT_EQ(side->sum(&Statistics::hand_over_drops), 0u);
      EXPECT_EQ(side->sum(&Statistics::packets_sent_again), 0u);
      EXPECT_EQ(side->sum(&Statistics::sequence_errors), 0u);
    }
  }

  std::unique_ptr<Side> left;
  std::unique_ptr<Side> right;
};

TEST_F(SoftLanes, lanes_8_frames_lost_is_zero_where_one_queue_serves_them_all) {
  open({.lanes = 8, .queues = 1});
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      send(*left, *right, lane, 2 * round);
      send(*right, *left, lane, 2 * round + 1);
    }
    for (const std::uint64_t wr_id : {2 * round, 2 * round + 1}) {
      ASSERT_TRUE(done(*left, 0, wr_id)) << "came to a stop in round " << round;
      ASSERT_TRUE(done(*right, 0, wr_id)) << "came to a stop in round " << round;
    }
  }
  expect_no_loss();
}

TEST_F(SoftLanes, lanes_8_frames_lost_is_zero_where_more_lanes_share_one_queue_than_another) {
  open({.lanes = 8, .queues = 3});
  for (std::size_t lane = 0; lane < 8; ++lane) send(*left, *right, lane, 1);
  ASSERT_TRUE(done(*left, 0, 1)) << "came to a stop";
  expect_no_loss();
}

TEST_F(SoftLanes, lanes_that_share_a_queue_share_its_room) {
  constexpr std::size_t kLanes = 4;
  open({.lanes = kLanes, .queues = 1, .in_place = false});
  for (std::uint64_t message = 1; message <= 4; ++message)
    for (std::size_t lane = 0; lane < kLanes; ++lane) send(*left, *right, lane, message);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    ASSERT_TRUE(done(*left, lane, 1));
    EXPECT_EQ(left->endpoints[0].find(4), nullptr)
        << "the lane with the queue has sent everything, lane " << lane << " a quarter";
  }
  for (std::size_t lane = 1; lane < kLanes; ++lane)
    EXPECT_EQ(left->endpoints[lane].find(4), nullptr)
        << "lane " << lane << " has sent everything, others a quarter";
  ASSERT_TRUE(done(*left, 0, 4));
  expect_no_loss();
}

TEST_F(SoftLanes, lanes_that_stand_still_leave_the_others_their_buffers) {
  open({.lanes = 8, .queues = 1});
  for (std::uint64_t message = 1; message <= 2; ++message) {
    for (std::size_t lane = 0; lane < 8; ++lane) send(*left, *right, lane, message);
    right->moving = message == 1 ? 8 : 1;
    for (int turn = 0; turn < kPatience && right->endpoints[0].find(message) == nullptr; ++turn) {
      left->turn(*right);
      right->turn(*left);
    }
    ASSERT_NE(right->endpoints[0].find(message), nullptr) << "message " << message;
    EXPECT_EQ(right->card.short_of_buffers(), 0u);
    right->moving = 8;
    ASSERT_TRUE(done(*left, 0, message));
  }
}

TEST_F(SoftLanes, a_lane_goes_on_while_the_card_keeps_as_many_frames_as_it_has_descriptors) {
  for (const bool in_place : {false, true}) {
    open({.lanes = 2, .queues = 1, .in_place = in_place});
    for (std::uint64_t round = 1; round <= 3; ++round) {
      send(*left, *right, 1, round);
      ASSERT_TRUE(done(*left, 1, round)) << "came to a stop in round " << round;
    }
    expect_no_loss();
  }
}

// --- Payload that the card reads in place

TEST_F(SoftLanes, memory_of_what_a_card_has_sent_is_used_again_and_everything_arrives) {
  for (const std::uint16_t queues : {std::uint16_t{8}, std::uint16_t{3}}) {
    CardStub cards;
    cards.free_sent = [](std::uint16_t ethdev, std::uint16_t queue) {
      LazyCard::of(ethdev)->free_sent(queue);
    };
    open({.lanes = 8, .queues = queues});
    ASSERT_TRUE(left->port->transmission().in_place) << left->port->transmission().obstacle;
    for (std::uint64_t round = 1; round <= 5; ++round) {
      for (std::size_t lane = 0; lane < 8; ++lane) {
        const auto memory = left->endpoints[lane].memory.bytes.first(kBytes);
        for (std::size_t i = 0; i < memory.size(); ++i)
          memory[i] = static_cast<std::byte>(i * 37 + (i >> 9) + round * 11 + lane);
        send(*left, *right, lane, round);
      }
      ASSERT_TRUE(done(*left, 0, round));
      std::vector<Bytes> sent;
      for (Endpoint& each : left->endpoints) {
        const auto memory = each.memory.bytes.first(kBytes);
        sent.emplace_back(memory.begin(), memory.end());
        std::fill(memory.begin(), memory.end(), std::byte{0xEE});
      }
      ASSERT_TRUE(done(*right, 0, round));
      for (std::size_t lane = 0; lane < 8; ++lane)
        EXPECT_TRUE(
            std::ranges::equal(right->endpoints[lane].memory.bytes.subspan(kBytes, kBytes), sent[lane]))
            << "lane " << lane << ", round " << round;
    }
    EXPECT_GT(left->card.in_segments(), 0u);
    EXPECT_EQ(right->sum(&Statistics::icrc_errors), 0u);
    expect_no_loss();
    left.reset(), right.reset();
  }
}

// --- Rules of the card (flow_rules.h). The peer of each queue pair is three lanes further on, so its packets
// arrive at another queue.

TEST_F(SoftLanes, packets_reach_the_lane_of_their_queue_pair_by_rules_of_the_card) {
  for (const Shape& shape : {Shape{.lanes = 8, .queues = 8, .lanes_apart = 3},
                             Shape{.lanes = 8, .queues = 8, .v6 = true, .vlan = 7, .lanes_apart = 3}}) {
    const FlowStub cards;
    open(shape);
    EXPECT_EQ(right->port->steering().rules, 8u);
    EXPECT_EQ(right->port->steering().refusal, "");
    send_across(shape);
    EXPECT_EQ(left->sum(&Statistics::handed_over), 0u);
    EXPECT_EQ(right->sum(&Statistics::handed_over), 0u);
    expect_no_loss();
    left.reset(), right.reset();
    EXPECT_TRUE(cards.rules.empty()) << "rules of a port that is gone";
  }
}

TEST_F(SoftLanes, without_rules_lanes_hand_over_what_is_not_theirs) {
  const Shape shape{.lanes = 8, .queues = 8, .lanes_apart = 3};
  open(shape);
  EXPECT_EQ(right->port->steering().rules, 0u);
  EXPECT_EQ(right->port->steering().refusal, "no such rules");
  send_across(shape);
  EXPECT_GT(right->sum(&Statistics::handed_over), 0u);
  expect_no_loss();
}

TEST_F(SoftLanes, a_card_with_room_for_some_rules_keeps_none) {
  const FlowStub cards(5);
  open({.lanes = 8, .queues = 8});
  EXPECT_TRUE(cards.rules.empty());
  EXPECT_EQ(right->port->steering().rules, 0u);
  EXPECT_EQ(right->port->steering().refusal, "no room for rules");
}

TEST_F(SoftLanes, one_queue_wants_no_rules) {
  const FlowStub cards;
  open({.lanes = 8, .queues = 1});
  EXPECT_TRUE(cards.rules.empty());
  EXPECT_EQ(right->port->steering().refusal, "");
}

}  // namespace
}  // namespace sluice::rdma::conformance
