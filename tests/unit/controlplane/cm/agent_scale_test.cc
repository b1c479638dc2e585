// SPDX-License-Identifier: Apache-2.0
//
// Connection management with the maximum number of connections of eight reactors. Measures the cost of a
// message and of a loop iteration in entries visited and timers handled.
#include <gtest/gtest.h>

#include <unordered_map>
#include <vector>

#include "controlplane/cm/agent.h"

namespace sluice::cm {
namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;
constexpr std::uint32_t kMany = 131'072;
constexpr std::uint16_t kListener = 20049;
const PeerAddress kListens = PeerAddress::from_ipv4(192, 0, 2, 1);

PeerAddress peer(std::uint32_t number) {
  return PeerAddress::from_ipv4(10, static_cast<std::uint8_t>(number >> 16),
                                static_cast<std::uint8_t>(number >> 8), static_cast<std::uint8_t>(number));
}

struct Consumer final : Agent::Host {
  void send_mad(const Endpoint&, std::span<const std::byte, kMadBytes> mad) override {
    ++sent;
    last = decode(mad).message;
  }
  void on_request(Id id, const PeerParameters&) override { requests.push_back(id); }
  void on_reply(Id, const PeerParameters&) override {}
  void on_established(Id id) override { established.push_back(id); }
  void on_rejected(Id id, RejectReason, std::span<const std::byte>) override { rejected.push_back(id); }
  void on_disconnected(Id id) override { disconnected.push_back(id); }

  std::uint64_t sent = 0;
  Message last;
  std::vector<Id> requests, established, rejected, disconnected;
};

std::array<std::byte, kMadBytes> request(const PeerAddress& from, std::uint32_t number) {
  ConnectRequest request{.local_id = number,
                         .service_id = service_id(kListener),
                         .qpn = number,
                         .local_response_timeout = 20,
                         .path_mtu = 5};
  request.private_data.set(encode_ip_addressing({1, from, kListens}));
  return encode({number, request});
}

/// Restores connections of a predecessor. Their numbers are `step` apart.
void restore(Agent& agent, std::uint32_t count, std::uint32_t step) {
  for (std::uint32_t i = 1; i <= count; ++i)
    ASSERT_TRUE(agent.restore({.id = i * step,
                               .remote_id = i * step,
                               .transaction_id = i,
                               .local_qpn = i,
                               .remote_qpn = i * step,
                               .endpoint = {kListens, peer(7), {}}}));
}

TEST(CmScale, a_message_looks_at_few_entries_however_many_there_are) {
  Consumer consumer;
  Agent agent(consumer, {.seed = 7, .max_connections = 2 * kMany});
  restore(agent, kMany, 1);
  EXPECT_EQ(agent.connections(), kMany);
  EXPECT_LE(agent.longest_chain(), 12u);
}

TEST(CmScale, peers_cannot_choose_numbers_that_meet_in_one_bucket) {
  Consumer consumer;
  Agent agent(consumer, {.seed = 7, .max_connections = 2 * kMany});
  constexpr std::uint32_t kChosen = 10'000;
  // All of these numbers share a bucket in a table of this size that does not hash them.
  restore(agent, kChosen,
          static_cast<std::uint32_t>(std::unordered_map<std::uint32_t, int>(2 * kMany).bucket_count()));
  EXPECT_EQ(agent.connections(), kChosen);
  EXPECT_LE(agent.longest_chain(), 8u);
}

TEST(CmScale, timers_that_are_due_together_are_handled_in_parts_the_earliest_first) {
  constexpr std::uint32_t kConnections = 1000;
  Consumer consumer;
  Agent agent(consumer, {.seed = 7,
                         .max_connections = kMany,
                         .max_ended_per_source = kConnections,
                         .time_wait_ns = 100 * kMillisecond});
  restore(agent, kConnections, 1);
  EXPECT_FALSE(agent.advance(kMillisecond));
  for (std::uint32_t i = 1; i <= kConnections; ++i) agent.disconnect(Id{i}, kMillisecond + i);
  EXPECT_EQ(consumer.sent, kConnections);
  EXPECT_FALSE(agent.advance(2 * kMillisecond)) << "none is due";
  EXPECT_EQ(consumer.sent, kConnections);
  // All of their answers are overdue after half a second.
  std::uint64_t turns = 0;
  for (bool more = true; more; ++turns) {
    const std::uint64_t before = consumer.sent;
    more = agent.advance(600 * kMillisecond);
    ASSERT_LE(consumer.sent - before, Agent::kTimersPerAdvance) << "more than fit into a ring";
    if (turns == 0) {
      const auto* last = std::get_if<DisconnectRequest>(&consumer.last.body);
      ASSERT_NE(last, nullptr);
      EXPECT_EQ(last->local_id, Agent::kTimersPerAdvance) << "those that have waited longest";
    }
  }
  EXPECT_EQ(consumer.sent, 2 * kConnections);
  EXPECT_EQ(turns, (kConnections + Agent::kTimersPerAdvance - 1) / Agent::kTimersPerAdvance);
}

class HalfOpenPerSource : public ::testing::Test {
 protected:
  void ask(const PeerAddress& from, std::uint64_t now_ns) {
    ++asked_;
    agent_.on_mad({kListens, from, {}}, request(from, asked_), now_ns);
  }

  Consumer consumer_;
  Agent agent_{consumer_, {.seed = 5, .max_half_open = 10, .max_half_open_per_source = 3}};
  std::uint32_t asked_ = 0;
  void SetUp() override { agent_.listen(kListener); }
};

TEST_F(HalfOpenPerSource, one_that_never_confirms_leaves_places_to_the_others) {
  for (int i = 0; i < 50; ++i) ask(peer(1), kMillisecond);
  EXPECT_EQ(consumer_.requests.size(), 3u);
  EXPECT_EQ(agent_.statistics().refused_resources, 47u);
  for (std::uint32_t other = 2; other < 9; ++other) ask(peer(other), kMillisecond);
  EXPECT_EQ(consumer_.requests.size(), 10u) << "each of the others has a place";
}

TEST_F(HalfOpenPerSource, its_own_oldest_gives_way_when_it_has_had_its_time) {
  ask(peer(2), kMillisecond);
  for (std::uint32_t i = 0; i < 3; ++i) ask(peer(1), kMillisecond + i);
  ask(peer(1), 300 * kMillisecond);
  ASSERT_EQ(consumer_.requests.size(), 5u);
  ASSERT_EQ(consumer_.rejected.size(), 1u);
  EXPECT_EQ(consumer_.rejected[0], consumer_.requests[1]) << "not that of another, which is older";
  // A released slot is available to the next request of this source.
  EXPECT_TRUE(agent_.reject(consumer_.requests[2], RejectReason::Consumer, {}, 300 * kMillisecond));
  ask(peer(1), 300 * kMillisecond);
  EXPECT_EQ(consumer_.requests.size(), 6u);
  EXPECT_EQ(consumer_.rejected.size(), 1u);
}

}  // namespace
}  // namespace sluice::cm
