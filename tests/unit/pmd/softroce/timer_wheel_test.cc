// SPDX-License-Identifier: Apache-2.0
//
// The timer wheel compared with a sorted list, and its cost.
#include "pmd/softroce/timer_wheel.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::rdma::softroce {
namespace {

struct Owner {
  TimerWheel<Owner>::Timer timer{*this};
  std::uint64_t at_ns = 0;  ///< zero: no deadline
};
using Wheel = TimerWheel<Owner>;

constexpr std::uint64_t kTickNs = 1024;
constexpr std::uint32_t kPlenty = 1'000'000;

std::vector<Owner*> due(Wheel& wheel, std::uint64_t now_ns, std::uint32_t steps = kPlenty) {
  std::vector<Owner*> result;
  while (auto* timer = wheel.take_due(now_ns, steps)) result.push_back(timer->owner);
  return result;
}

TEST(TimerWheel, a_timer_comes_up_when_it_is_due_and_once) {
  Wheel wheel;
  Owner one;
  for (const std::uint64_t at : {1'000'000ull, 1'010'000ull, 70'000'000ull, 5'000'000'000ull,
                                 3'000'000'000'000ull, 3'900'000'000'000ull}) {
    wheel.schedule(one.timer, at);
    EXPECT_TRUE(due(wheel, at).empty()) << at;
    EXPECT_EQ(due(wheel, at + kTickNs).size(), 1u) << at;
    EXPECT_TRUE(due(wheel, at + 2 * kTickNs).empty()) << at;
  }
}

TEST(TimerWheel, what_is_cancelled_or_put_off_does_not_come_up) {
  Wheel wheel;
  Owner one, two, three;
  for (Owner* each : {&one, &two, &three}) wheel.schedule(each->timer, 1'000'000);
  wheel.cancel(two.timer);
  wheel.cancel(two.timer);
  wheel.schedule(three.timer, 2'000'000);
  EXPECT_EQ(due(wheel, 1'500'000), std::vector<Owner*>{&one});
  EXPECT_EQ(due(wheel, 2'500'000), std::vector<Owner*>{&three});
}

TEST(TimerWheel, no_later_moves_a_timer_only_to_an_earlier_time) {
  Wheel wheel;
  Owner one;
  wheel.schedule(one.timer, 2'000'000);
  wheel.schedule_no_later(one.timer, 9'000'000);
  wheel.schedule_no_later(one.timer, 1'000'000);
  EXPECT_TRUE(due(wheel, 900'000).empty());
  EXPECT_EQ(due(wheel, 1'100'000).size(), 1u);
  wheel.schedule_no_later(one.timer, 9'000'000);
  EXPECT_EQ(due(wheel, 9'100'000).size(), 1u);
}

/// Sets, postpones and cancels deadlines of all lengths at random, while time advances in steps of all
/// lengths.
TEST(TimerWheel, every_timer_comes_up_between_its_time_and_a_tick_later) {
  for (std::uint32_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 random(seed);
    const auto upto = [&](std::uint64_t most) { return random() % most; };
    Wheel wheel;
    std::vector<std::unique_ptr<Owner>> owners;
    for (int i = 0; i < 100; ++i) owners.push_back(std::make_unique<Owner>());
    std::uint64_t now = (std::uint64_t{1} << 46) - 3'000'000'000;  // digits of all levels change soon
    due(wheel, now);
    for (int turn = 0; turn < 5'000; ++turn) {
      Owner& one = *owners[upto(owners.size())];
      if (upto(8) == 0) {
        wheel.cancel(one.timer);
        one.at_ns = 0;
      } else {
        one.at_ns = now + upto(std::uint64_t{1} << upto(42));
        wheel.schedule(one.timer, one.at_ns);
      }
      now += upto(std::uint64_t{1} << upto(turn % 100 == 0 ? 36 : 24));
      for (Owner* each : due(wheel, now)) {
        ASSERT_NE(each->at_ns, 0u);
        ASSERT_GE(now, each->at_ns);
        each->at_ns = 0;
      }
      for (const auto& each : owners) ASSERT_TRUE(each->at_ns == 0 || each->at_ns + kTickNs > now);
    }
    for (const auto& each : owners) wheel.cancel(each->timer);
  }
}

TEST(TimerWheel, the_steps_of_a_call_are_bounded_and_nothing_is_lost_by_that) {
  Wheel wheel;
  std::vector<std::unique_ptr<Owner>> owners;
  for (int i = 0; i < 1000; ++i) {
    owners.push_back(std::make_unique<Owner>());
    wheel.schedule(owners.back()->timer, 70'000'000);
  }
  std::size_t seen = 0;
  int calls = 0;
  for (; seen < owners.size(); ++calls) {
    const std::size_t now = due(wheel, 80'000'000, 64).size();
    ASSERT_LE(now, 64u);
    seen += now;
    ASSERT_LT(calls, 1000);
  }
  EXPECT_GT(calls, 15);
}

/// A call with nothing due takes as many steps with ten thousand deadlines as with one.
TEST(TimerWheel, a_call_costs_the_same_however_many_deadlines_there_are) {
  const auto steps_of = [](std::size_t count) {
    Wheel wheel;
    std::vector<std::unique_ptr<Owner>> owners;
    std::uint32_t before = kPlenty;
    wheel.take_due(1'000'000'000, before);
    for (std::size_t i = 0; i < count; ++i) {
      owners.push_back(std::make_unique<Owner>());
      wheel.schedule(owners.back()->timer, 2'000'000'000 + i * 1'000'000);
    }
    std::uint32_t steps = kPlenty;
    for (int call = 0; call < 1000; ++call) wheel.take_due(1'000'000'000 + call * 10'000u, steps);
    for (const auto& each : owners) wheel.cancel(each->timer);
    return kPlenty - steps;
  };
  EXPECT_LE(steps_of(10'000), steps_of(1) + 10);
}

TEST(TimerWheel, an_owner_that_ends_with_a_deadline_is_a_failed_invariant) {
  const CountedInvariants counted;
  Wheel wheel;
  {
    Owner one, two;
    wheel.schedule(one.timer, 1'000'000);
    wheel.schedule(two.timer, 1'000'000);
    wheel.cancel(two.timer);
  }
  EXPECT_EQ(counted.failed(Invariant::timer_state), 1u);
}

}  // namespace
}  // namespace sluice::rdma::softroce
