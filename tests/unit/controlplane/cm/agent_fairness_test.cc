// SPDX-License-Identifier: Apache-2.0
//
// Fair shares of connection management in virtual time: a source that never answers competes with a client
// that connects once a second.
#include <gtest/gtest.h>

#include "tests/unit/controlplane/cm/fairness_lab.h"

namespace sluice::cm {
namespace {

using namespace lab;

class AgentFairness : public ::testing::TestWithParam<Load> {};

TEST_P(AgentFairness, a_source_that_never_answers_keeps_no_newcomer_from_connecting) {
  const Load& load = GetParam();
  Gateway gateway(load.connections);
  pass_beside(gateway, load);
  EXPECT_EQ(gateway.refused, 0u) << "of 100 requests";
  EXPECT_EQ(gateway.not_accepted, 0u);
  EXPECT_EQ(gateway.up.size(), load.connected);
  EXPECT_LE(gateway.agent.connections(), 2 * load.connections);
}

INSTANTIATE_TEST_SUITE_P(Loads, AgentFairness,
                         ::testing::Values(Load{32, 0, 7, false}, Load{32, 16, 7, false},
                                           Load{32, 31, 7, false}, Load{32, 16, 45, false},
                                           Load{256, 200, 7, false}, Load{256, 200, 45, false},
                                           Load{32, 16, 48, true}, Load{32, 24, 45, true}));

TEST(AgentShares, a_disconnect_request_is_sent_four_times) {
  Gateway gateway(32);
  gateway.ask(kHostile);
  gateway.end_last();
  for (std::uint64_t at_ns = kMs; at_ns < 20 * kSecond; at_ns += 10 * kMs) gateway.pass_to(at_ns);
  EXPECT_EQ(gateway.disconnect_requests, 4u);
  EXPECT_EQ(gateway.agent.connections(), 0u);
}

TEST(AgentShares, ended_connections_of_one_source_have_a_share_of_the_table) {
  Gateway gateway(32);
  for (int i = 0; i < 40; ++i) {
    gateway.ask(kHostile);
    gateway.end_last();
  }
  EXPECT_EQ(gateway.agent.connections(), 16u) << "a quarter of the table";
  EXPECT_EQ(gateway.agent.statistics().evicted, 24u);
  EXPECT_EQ(gateway.other, 0u);
}

class AgentHalfOpen : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(AgentHalfOpen, one_client_opens_all_of_its_connections_at_once_and_others_have_places) {
  Gateway gateway(GetParam());
  for (std::uint32_t i = 0; i < kPerClient; ++i) gateway.request(kNewcomer);
  EXPECT_EQ(gateway.refused, 0u) << "as nconnect=16 does";
  for (std::uint8_t i = 0; i < 8; ++i) gateway.request(PeerAddress::from_ipv4(10, 0, 0, i));
  EXPECT_EQ(gateway.other, 0u);
  EXPECT_EQ(gateway.agent.connections(), kPerClient + 8);
}

INSTANTIATE_TEST_SUITE_P(Connections, AgentHalfOpen, ::testing::Values(32, 64, 256));

TEST(AgentShares, half_open_places_follow_a_reload) {
  Gateway gateway(32);
  gateway.agent.set_half_open_limits(with_limits({}, 32, 24));
  for (std::uint32_t i = 0; i < 24; ++i) gateway.request(kNewcomer);
  EXPECT_EQ(gateway.refused, 0u);
  gateway.request(kNewcomer);
  EXPECT_EQ(gateway.refused, 1u);
}

}  // namespace
}  // namespace sluice::cm
