// SPDX-License-Identifier: Apache-2.0
//
// One client that behaves, among as many hostile peers as the server accepts: its calls are answered, and
// within few iterations more than when it is alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "tests/isolation/victim.h"

namespace sluice::isolation {

namespace {

constexpr std::uint64_t kSpareTurns = 16;  ///< extra iterations of a call among other clients

class Isolation : public testing::TestWithParam<std::tuple<std::size_t, std::uint32_t>> {
 protected:
  const Attack& attack() const { return attacks()[std::get<0>(GetParam())]; }
  std::uint32_t version() const { return std::get<1>(GetParam()); }
  SiteOptions options() const { return {.hold_calls = attack().hold_calls, .callers = attack().callers}; }
};

TEST_P(Isolation, the_others_are_served) {
  std::vector<std::uint64_t> alone;
  {
    Site site(options());
    Victim victim(site, version());
    for (const auto operation : Victim::kOperations) alone.push_back(victim.run(operation));
  }
  Site site(options());
  Victim victim(site, version());
  Attackers attackers(site, attack());
  for (int i = 0; i < kTurnsToBegin; ++i) {
    site.turn(kTurnToBeginNs);
    attackers.turn();
  }
  std::uint64_t worst = 0;
  for (int round = 0; round < 5; ++round)
    for (std::size_t i = 0; i < std::size(Victim::kOperations); ++i) {
      const std::uint64_t turns = victim.run(Victim::kOperations[i], &attackers);
      EXPECT_LE(turns, alone[i] + kSpareTurns) << "operation " << i << " in round " << round;
      worst = std::max(worst, turns - std::min(turns, alone[i]));
      if (HasFailure()) return;
    }
  RecordProperty("most_turns_more_than_alone", std::to_string(worst));
  EXPECT_FALSE(victim.lost());
}

TEST_P(Isolation, who_holds_something_is_ended_and_everything_comes_back) {
  Site site(options());
  Victim victim(site, version());
  Attackers attackers(site, attack());
  constexpr std::uint64_t kStepNs = 40'000'000;
  for (std::uint64_t passed = 0; passed < 70 * kSecond; passed += kStepNs) {
    site.turn(kStepNs);
    attackers.turn();
    victim.turn();
  }
  if (attack().ends) {
    EXPECT_GE(site.ends().size(), site.options().connections - 1);
  }
  EXPECT_FALSE(victim.lost());
  attackers.leave();
  site.service().complete_later();
  for (int i = 0; i < 2000; ++i) victim.turn();
  EXPECT_EQ(site.open_connections(), 1u);
  victim.run(Victim::Operation::Write);
  site.victim()->close(rpcrdma::CloseReason::LocalClose);
  for (int i = 0; i < 100; ++i) victim.turn();
  EXPECT_TRUE(site.engine().all_closed());
  EXPECT_TRUE(site.engine().memory_balanced());
}

INSTANTIATE_TEST_SUITE_P(, Isolation,
                         testing::Combine(testing::Range(std::size_t{0}, attacks().size()),
                                          testing::Values(1u, 2u)),
                         [](const auto& parameter) {
                           return std::string(attacks()[std::get<0>(parameter.param)].name) + "_v" +
                                  std::to_string(std::get<1>(parameter.param));
                         });

}  // namespace
}  // namespace sluice::isolation
