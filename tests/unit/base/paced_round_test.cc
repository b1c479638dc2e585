// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/clock.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::uint64_t kPeriodNs = 200'000'000;
constexpr std::uint32_t kMost = PacedRound::kMostInATurn;

/// Returns the number of elements visited from `begin_ns` on for `for_ns`, with one call of due() every
/// `turn_ns` nanoseconds. Sets `most` to the largest number due in one call.
std::uint32_t looked_at(PacedRound& round, std::uint32_t count, std::uint64_t begin_ns, std::uint64_t turn_ns,
                        std::uint64_t for_ns, std::uint32_t& most) {
  std::uint32_t sum = 0;
  most = 0;
  for (std::uint64_t now_ns = begin_ns; now_ns < begin_ns + for_ns; now_ns += turn_ns) {
    const std::uint32_t due = round.due(now_ns, count);
    sum += due;
    most = std::max(most, due);
  }
  return sum;
}

TEST(PacedRound, all_are_looked_at_once_in_a_period_whatever_their_number) {
  for (const std::uint32_t count : {1u, 3u, 64u, 1000u, 16384u}) {
    PacedRound round(kPeriodNs);
    std::uint32_t most = 0;
    looked_at(round, count, kPeriodNs, 1000, kPeriodNs, most);  // everything is due at the first call
    const std::uint32_t in_ten = looked_at(round, count, 2 * kPeriodNs, 1000, 10 * kPeriodNs, most);
    EXPECT_NEAR(in_ten, 10 * count, count / 50 + 1) << count;
    EXPECT_EQ(most, 1u) << count;
  }
}

TEST(PacedRound, a_turn_that_comes_late_looks_at_a_few) {
  PacedRound round(kPeriodNs);
  round.due(kPeriodNs, 1000);
  std::uint32_t most = 0;
  const std::uint32_t in_ten = looked_at(round, 1000, 2 * kPeriodNs, 2'000'000, 10 * kPeriodNs, most);
  EXPECT_NEAR(in_ten, 11'000, 200) << "with the round that was late at first";
  EXPECT_LE(most, kMost);
  EXPECT_EQ(round.due(20 * kPeriodNs, 1000), kMost);
}

TEST(PacedRound, few_are_all_looked_at_by_a_turn_that_comes_late) {
  PacedRound round(kPeriodNs);
  EXPECT_EQ(round.due(5 * kPeriodNs, 12), 12u);
  EXPECT_EQ(round.due(5 * kPeriodNs, 12), 0u) << "each of them once";
  EXPECT_EQ(round.due(6 * kPeriodNs, 12), 12u);
}

TEST(PacedRound, what_was_missed_is_not_made_up_for) {
  PacedRound round(kPeriodNs);
  round.due(kPeriodNs, 1000);
  std::uint32_t sum = 0;
  for (std::uint32_t turn = 0; turn < 1000; ++turn) sum += round.due(1000 * kPeriodNs, 1000);
  EXPECT_LE(sum, 1000u);
  EXPECT_EQ(PacedRound(kPeriodNs).due(kPeriodNs, 0), 0u);
}

}  // namespace
}  // namespace sluice
