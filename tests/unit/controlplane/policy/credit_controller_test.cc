// SPDX-License-Identifier: Apache-2.0
//
// Credits on a segment. The test plays the reactor.
#include "controlplane/policy/credit_controller.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "controlplane/config/changes.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::policy {
namespace {

class Keeper : public ::testing::Test {
 protected:
  void start(const std::string& more) {
    config_ = lab::configuration(more);
    credits_ = std::make_unique<CreditController>(layout(), config_.credit_settings());
  }
  segment::Layout& layout() { return segment_.layout(); }

  /// Applies the hints as the reactor does. Returns the grants that have changed, by connection.
  std::map<std::uint32_t, segment::Grant> follow() {
    std::map<std::uint32_t, segment::Grant> changed;
    std::uint32_t number = 0;
    while (layout().reactors[0].wanted.hints.pop(number)) {
      const segment::Grant grant = segment_.grant(number);
      layout().reactors[0].use[number].granted = grant.credits;
      changed[number] = grant;
    }
    return changed;
  }

  lab::TestSegment segment_{"credits"};
  config::Config config_;
  std::unique_ptr<CreditController> credits_;
};

TEST_F(Keeper, grants_go_to_living_connections_and_follow_their_use) {
  start("[policy]\nslots = 100\nidle_s = 5\n");
  for (std::uint32_t i = 0; i < 10; ++i) segment_.publish(i, lab::client(10), 0, 64);
  credits_->poll(lab::kSecondNs);
  auto set = follow();
  ASSERT_EQ(set.size(), 10u);
  for (const auto& [number, grant] : set) EXPECT_EQ(grant.credits, 10u);
  EXPECT_EQ(credits_->start_of(0, lab::client(9)).credits, 10u)
      << "a new connection gets what the others have";
  // One is active and gets the maximum. The nine others become idle and share the remainder.
  for (std::uint64_t now = 2; now < 20; ++now) {
    layout().reactors[0].use[4].calls = now;
    layout().reactors[0].use[4].peak_busy = layout().reactors[0].use[4].granted.load();
    credits_->poll(now * lab::kSecondNs);
    follow();
  }
  EXPECT_EQ(layout().reactors[0].use[4].granted, 64u);
  EXPECT_EQ(layout().reactors[0].use[5].granted, 4u);
  EXPECT_EQ(layout().reactors[0].peaks_read.load(), 19u) << "peaks start anew with each look";
  // The connection ends, and its successor in the slot has its own grant.
  segment_.publish(4, lab::client(10), 0, 64, segment::ConnectionState::Unused);
  credits_->poll(21 * lab::kSecondNs);
  EXPECT_EQ(credits_->policy(0).connections(), 9u);
  EXPECT_GT(credits_->statistics().changes, 10u);
}

TEST_F(Keeper, grants_are_wanted_of_all_also_when_no_hint_finds_room) {
  start("[policy]\nslots = 300\n");
  auto& wanted = layout().reactors[0].wanted;
  while (wanted.hints.push(0)) {
  }
  for (std::uint32_t i = 0; i < 300; ++i)
    segment_.publish(i, lab::client(static_cast<std::uint8_t>(1 + i / 2)), 0, 64);
  credits_->poll(lab::kSecondNs);
  for (std::uint32_t i = 0; i < 300; ++i) EXPECT_EQ(segment_.grant(i).credits, 1u) << i;
}

TEST_F(Keeper, what_a_predecessor_wanted_and_the_reactor_has_not_followed_stands) {
  start("[policy]\nslots = 20\n");
  for (std::uint32_t i = 0; i < 4; ++i) segment_.publish(i, lab::client(10), 0, 64);
  credits_->poll(lab::kSecondNs);
  EXPECT_EQ(segment_.grant(3).credits, 5u);
  start("[policy]\nslots = 20\n");  // takes over
  EXPECT_EQ(credits_->policy(0).connections(), 0u);
  credits_->poll(2 * lab::kSecondNs);
  EXPECT_EQ(credits_->policy(0).granted(3), 5u);
  EXPECT_EQ(credits_->statistics().changes, 0u);
}

TEST_F(Keeper, a_control_plane_that_takes_over_goes_on_with_what_is_granted) {
  start("[policy]\nslots = 20\n");
  for (std::uint32_t i = 0; i < 4; ++i) segment_.publish(i, lab::client(10), 0, 5);
  credits_->poll(lab::kSecondNs);
  EXPECT_TRUE(follow().empty());
  EXPECT_EQ(credits_->policy(0).granted(3), 5u);
}

TEST_F(Keeper, a_reload_moves_connections_to_their_new_class) {
  start("");
  segment_.publish(0, lab::client(10), 0, 64);
  segment_.publish(1, lab::client(77), 0, 64);
  credits_->poll(lab::kSecondNs);
  EXPECT_TRUE(follow().empty());
  config_ = config::live_part(
      config_, lab::configuration(
                   "[[client_class]]\nname = \"few\"\nclients = [\"192.0.2.77/32\"]\nmax_credits = 3\n"));
  credits_->reconfigure(config_.credit_settings());
  credits_->poll(lab::kSecondNs + 1);
  const auto set = follow();
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set.at(1).credits, 3u);
  EXPECT_EQ(set.at(1).client_class, 1u);
  EXPECT_EQ(credits_->start_of(0, lab::client(77)).credits, 3u);
  EXPECT_EQ(credits_->start_of(0, lab::client(78)).credits, 64u);
}

/// Class "few" for the address 192.0.2.77, "gold" for the host "a".
const std::string kGold =
    "[[client_class]]\nname = \"few\"\nclients = [\"192.0.2.77/32\"]\nmax_credits = 3\n"
    "[[client_class]]\nname = \"gold\"\nmax_credits = 9\n"
    "[[host_authentication.host]]\nname = \"a\"\nkey_files = [\"/a\"]\nclass = \"gold\"\n"
    "[[host_authentication.host]]\nname = \"b\"\nkey_files = [\"/b\"]\n";

TEST_F(Keeper, an_authenticated_host_is_in_its_class_from_then_on) {
  start(kGold);
  constexpr auto kOpen = segment::ConnectionState::Open;
  for (std::uint32_t number : {0, 1, 2}) segment_.publish(number, lab::client(77), 1, 3);
  credits_->poll(lab::kSecondNs);
  EXPECT_TRUE(follow().empty());
  // The reactor has admitted 0 as "a" and moved it to its class; 1 is a host without a class; 2 has not
  // authenticated.
  segment_.publish(0, lab::client(77), 2, 3, kOpen, "a");
  segment_.publish(1, lab::client(77), 1, 3, kOpen, "b");
  credits_->poll(2 * lab::kSecondNs);
  auto set = follow();
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set.at(0).client_class, 2u);
  EXPECT_EQ(set.at(0).credits, 9u);
  // Neither a reload that leaves its class unchanged nor further changes of its entry move it back.
  credits_->reconfigure(config_.credit_settings());
  credits_->poll(3 * lab::kSecondNs);
  segment_.publish(0, lab::client(77), 2, 9, kOpen, "a");
  credits_->poll(4 * lab::kSecondNs);
  EXPECT_TRUE(follow().empty());
  // After its entry is removed from the configuration, its address determines the class again.
  config_ = lab::configuration(kGold.substr(0, kGold.find("[[host")) + "clients = [\"198.51.100.1\"]\n");
  credits_->reconfigure(config_.credit_settings());
  credits_->poll(5 * lab::kSecondNs);
  set = follow();
  ASSERT_EQ(set.size(), 1u);
  EXPECT_EQ(set.at(0).client_class, 1u);
  EXPECT_EQ(set.at(0).credits, 3u);
}

TEST_F(Keeper, a_grant_does_not_move_a_host_back_that_was_admitted_a_moment_ago) {
  start(kGold);
  segment_.publish(0, lab::client(77), 1, 1);
  credits_->poll(lab::kSecondNs);
  follow();
  segment::DesiredStateWriter wanted(layout().reactors[0].wanted);
  wanted.admit(0, segment_.incarnation(0), HostName("a"), 2);
  // The table does not show the admission yet when the grant changes.
  config_ = config::live_part(config_, lab::configuration(kGold + "[policy]\nslots = 2\n"));
  credits_->reconfigure(config_.credit_settings());
  credits_->poll(2 * lab::kSecondNs);
  ASSERT_NE(segment_.grant(0).credits, 3u);
  EXPECT_EQ(segment_.grant(0).client_class, 2u);
}

TEST_F(Keeper, a_control_plane_that_takes_over_leaves_hosts_in_their_class) {
  start(kGold);
  segment_.publish(0, lab::client(77), 2, 9, segment::ConnectionState::Open, "a");
  credits_->poll(lab::kSecondNs);
  credits_->reconfigure(config_.credit_settings());
  credits_->poll(2 * lab::kSecondNs);
  EXPECT_TRUE(follow().empty());
}

TEST_F(Keeper, the_next_connection_in_a_place_is_no_longer_that_of_the_host) {
  start(kGold);
  segment_.publish(0, lab::client(77), 2, 9, segment::ConnectionState::Open, "a");
  credits_->poll(lab::kSecondNs);
  segment_.publish(0, lab::client(77), 1, 3, segment::ConnectionState::Unused);
  credits_->poll(2 * lab::kSecondNs);
  segment_.publish(0, lab::client(77), 1, 3);
  credits_->poll(3 * lab::kSecondNs);
  credits_->reconfigure(config_.credit_settings());
  credits_->poll(4 * lab::kSecondNs);
  EXPECT_TRUE(follow().empty());
}

TEST_F(Keeper, a_round_takes_one_reactor_in_each_pass) {
  start("[reactor]\ncount = 3\n[policy]\ninterval_ms = 500\n");
  const auto looks = [this] {
    std::string text;
    for (std::uint32_t reactor = 0; reactor < 3; ++reactor)
      text += std::to_string(layout().reactors[reactor].peaks_read.load()) + ' ';
    return text;
  };
  const std::uint64_t at = lab::kSecondNs;
  for (const char* expected : {"1 0 0 ", "1 1 0 ", "1 1 1 ", "1 1 1 "}) {
    credits_->poll(at);
    EXPECT_EQ(looks(), expected);
    EXPECT_EQ(credits_->statistics().recomputations, looks() == "1 1 1 " ? 1u : 0u);
  }
  credits_->poll(at + 499'999'999);
  EXPECT_EQ(looks(), "1 1 1 ") << "the interval is between the beginnings of rounds";
  credits_->poll(at + 500'000'000);
  EXPECT_EQ(looks(), "2 1 1 ");
  credits_->reconfigure(config_.credit_settings());
  for (int pass = 0; pass < 3; ++pass) credits_->poll(at + 500'000'001);
  EXPECT_EQ(looks(), "3 2 2 ") << "a new configuration begins a round of all";
}

}  // namespace
}  // namespace sluice::policy
