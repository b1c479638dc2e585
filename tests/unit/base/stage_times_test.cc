// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/clock.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice {
namespace {

std::uint64_t now_ns;
std::uint64_t clock() noexcept {
  return now_ns;
}

TEST(StageTimes, each_stage_has_the_time_since_the_last_one_and_none_is_lost) {
  now_ns = 777;
  StageTimes times;
  times.measure(&clock);
  times.start();
  std::mt19937 random{1};
  std::uint64_t expected[kStageCount]{};
  for (int i = 0; i < 10'000; ++i) {
    const auto stage = random() % kStageCount;
    const std::uint64_t took = random() % 1000;
    now_ns += took;
    expected[stage] += took;
    EXPECT_EQ(times.end(static_cast<Stage>(stage)), now_ns);
  }
  std::uint64_t all = 0;
  for (std::size_t stage = 0; stage < kStageCount; ++stage) {
    EXPECT_EQ(times.sum_ns(static_cast<Stage>(stage)), expected[stage]) << stage;
    all += expected[stage];
  }
  EXPECT_EQ(all, now_ns - 777);
}

TEST(StageTimes, what_was_before_the_loop_is_no_part_of_it) {
  now_ns = 1000;
  StageTimes times;
  times.measure(&clock);
  now_ns = 5000;
  times.start();
  now_ns = 5001;
  times.end(Stage::Calls);
  EXPECT_EQ(times.sum_ns(Stage::Calls), 1u);
}

TEST(StageTimes, without_a_clock_there_is_no_time) {
  StageTimes times;
  times.start();
  EXPECT_EQ(times.end(Stage::Idle), 0u);
  EXPECT_EQ(times.sum_ns(Stage::Idle), 0u);
}

}  // namespace
}  // namespace sluice
