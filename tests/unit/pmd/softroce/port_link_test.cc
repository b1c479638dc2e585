// SPDX-License-Identifier: Apache-2.0
//
// Facts that the main thread publishes for the lanes of a port, and the lanes' confirmation that they no
// longer use the ethdev.
#include "pmd/softroce/port_link.h"

#include <gtest/gtest.h>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::rdma::softroce {
namespace {

constexpr MacAddress kMac{2, 0, 0, 0, 0, 1};
constexpr MacAddress kOtherMac{2, 0, 0, 0, 0, 2};

class Link : public testing::Test {
 protected:
  /// Reads the published facts as the lane and confirms them.
  LinkFacts follow(std::uint32_t lane) {
    LinkFacts facts;
    const auto sequence = link_.read(facts);
    EXPECT_TRUE(sequence);
    link_.confirm(lane, facts.use, sequence.value_or(0));
    return facts;
  }

  PortLink link_{2};
};

TEST_F(Link, an_ethdev_is_left_by_all_lanes_before_it_is_closed) {
  link_.publish();
  follow(0);
  EXPECT_FALSE(link_.all_lanes_follow()) << "lane 1 has confirmed nothing yet";
  follow(1);
  EXPECT_TRUE(link_.all_lanes_follow());
  link_.transition(EthdevUse::Leaving);
  link_.publish();
  EXPECT_EQ(link_.use(0), EthdevUse::Open) << "until the lane follows";
  EXPECT_TRUE(link_.has_changed(0));
  follow(0);
  EXPECT_FALSE(link_.has_changed(0));
  EXPECT_EQ(link_.use(0), EthdevUse::Leaving);
  EXPECT_FALSE(link_.all_lanes_follow()) << "lane 1 still uses it";
  follow(1);
  EXPECT_TRUE(link_.all_lanes_follow());
}

TEST_F(Link, the_states_of_an_ethdev_follow_in_one_order) {
  constexpr EthdevUse kStates[] = {EthdevUse::Open, EthdevUse::Leaving, EthdevUse::Closed};
  for (const EthdevUse from : kStates)
    for (const EthdevUse to : kStates)
      EXPECT_EQ(may_follow(from, to), (static_cast<int>(from) + 1) % 3 == static_cast<int>(to));
  const CountedInvariants counted;
  link_.transition(EthdevUse::Closed);
  EXPECT_EQ(link_.facts().use, EthdevUse::Open);
  EXPECT_EQ(counted.failed(Invariant::ethdev_use), 1u);
}

TEST_F(Link, losses_and_returns_of_the_link_are_counted_also_between_two_looks) {
  const auto counts = [&] { return std::pair(link_.facts().downs, link_.facts().ups); };
  link_.change_condition(Condition::Up);
  EXPECT_EQ(counts(), std::pair(0u, 0u));
  link_.change_condition(Condition::PortDown, 1);
  EXPECT_EQ(counts(), std::pair(1u, 0u));
  link_.change_condition(Condition::Gone);
  EXPECT_EQ(counts(), std::pair(1u, 0u)) << "it was down before";
  EXPECT_EQ(link_.facts().announcements, 0u);
  link_.change_condition(Condition::Up);
  EXPECT_EQ(counts(), std::pair(1u, 1u));
  link_.change_condition(Condition::Up, 3);
  EXPECT_EQ(counts(), std::pair(4u, 4u)) << "it flapped";
  EXPECT_EQ(link_.facts().announcements, 2u);
  link_.change_condition(Condition::PortDown);
  EXPECT_EQ(counts(), std::pair(5u, 4u));
}

TEST_F(Link, a_changed_address_is_counted_and_announced_and_the_same_one_is_not) {
  link_.set_mac(kMac);
  link_.set_mtu(4200);
  link_.change_mac(kMac);
  link_.change_mtu(4200);
  EXPECT_EQ(link_.facts().mac_changes + link_.facts().mtu_changes + link_.facts().announcements, 0u);
  link_.change_mac(kOtherMac);
  link_.change_mtu(1500);
  EXPECT_EQ(link_.facts().mac_changes, 1u);
  EXPECT_EQ(link_.facts().mtu_changes, 1u);
  EXPECT_EQ(link_.facts().announcements, 1u);
  link_.publish();
  EXPECT_EQ(follow(1).mac, kOtherMac);
}

}  // namespace
}  // namespace sluice::rdma::softroce
