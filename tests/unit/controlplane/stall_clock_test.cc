// SPDX-License-Identifier: Apache-2.0
#include "controlplane/control_plane.h"

#include <gtest/gtest.h>

namespace sluice::controlplane {
namespace {

constexpr std::uint64_t kStart = 1'000'000'000'000;
constexpr std::uint64_t kPeriod = StallClock::kPeriodNs;

TEST(StallClock, the_longest_turn_is_kept_and_waits_do_not_count) {
  StallClock clock;
  clock.turned(0, kStart);
  EXPECT_EQ(clock.longest_ns(), 0u) << "it has not waited yet";
  clock.turned(kStart + 500, kStart + 700);
  clock.turned(kStart + 16'000, kStart + 16'100);
  EXPECT_EQ(clock.longest_ns(), 200u);
  EXPECT_EQ(clock.recent_ns(), 200u);
}

TEST(StallClock, a_recent_one_is_forgotten_after_one_to_two_periods_and_the_longest_is_not) {
  StallClock clock;
  clock.turned(kStart, kStart + 900);
  clock.turned(kStart + kPeriod + 1000, kStart + kPeriod + 1030);
  EXPECT_EQ(clock.recent_ns(), 900u);
  clock.turned(kStart + 2 * kPeriod + 2000, kStart + 2 * kPeriod + 2020);
  EXPECT_EQ(clock.recent_ns(), 30u);
  EXPECT_EQ(clock.longest_ns(), 900u);
}

TEST(StallClock, one_turn_that_is_longer_than_a_period_counts) {
  StallClock clock;
  clock.turned(kStart, kStart + 1);
  clock.turned(kStart + 2, kStart + 3 * kPeriod);
  EXPECT_EQ(clock.recent_ns(), 3 * kPeriod - 2);
  EXPECT_EQ(clock.longest_ns(), 3 * kPeriod - 2);
}

}  // namespace
}  // namespace sluice::controlplane
