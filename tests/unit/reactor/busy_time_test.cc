// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/busy_time.h"

#include <gtest/gtest.h>

#include <random>

namespace sluice::reactor {
namespace {

/// A loop whose turns take made-up times.
struct Loop {
  static constexpr std::uint64_t kIdleTurnNs = 200;
  Counters counters;
  std::uint64_t now_ns = 1'000'000;
  BusyTime time{counters};
  std::uint64_t busy_ns = 0, idle_ns = 0;  ///< as it was
  std::mt19937 random{1};

  Loop() { time.start(now_ns); }

  void busy_turn(std::uint64_t ns) {
    now_ns += ns;
    busy_ns += ns;
    time.on_busy_turn();
  }
  void idle_turn(std::uint64_t ns) {
    now_ns += ns;
    idle_ns += ns;
    time.on_idle_turn(now_ns);
  }
  /// With a tenth more or less.
  void idle_turn() { idle_turn(kIdleTurnNs * 9 / 10 + random() % (kIdleTurnNs / 5)); }
  double shown() const {
    return static_cast<double>(counters.busy_ns) / static_cast<double>(counters.busy_ns + counters.idle_ns);
  }
  double real() const { return static_cast<double>(busy_ns) / static_cast<double>(busy_ns + idle_ns); }
};

TEST(BusyTime, its_share_is_that_of_time_at_any_load) {
  for (const double load : {0.02, 0.25, 0.5, 0.9, 0.97}) {
    Loop loop;
    while (loop.busy_ns + loop.idle_ns < 50'000'000) {
      const bool behind = loop.real() < load || loop.busy_ns + loop.idle_ns == 0;
      if (!behind) {
        loop.idle_turn();
        continue;
      }
      // A burst of turns, each of one call or of many.
      for (auto turns = loop.random() % 5; turns-- > 0;) loop.busy_turn(300 + loop.random() % 3000);
      loop.idle_turn();
    }
    EXPECT_NEAR(loop.real(), load, 0.05);
    EXPECT_NEAR(loop.shown(), loop.real(), 0.05) << load;
  }
}

TEST(BusyTime, no_time_is_lost_or_counted_twice) {
  Loop loop;
  for (int i = 0; i < 10'000; ++i) {
    switch (loop.random() % 4) {
      case 0:
        loop.busy_turn(loop.random() % 1000);
        break;
      case 1:
        loop.time.settle(loop.now_ns);
        break;
      case 2:
        loop.idle_turn();
        loop.now_ns += 50'000;
        loop.idle_ns += 50'000;
        loop.time.on_back(loop.now_ns);
        break;
      default:
        loop.idle_turn();
    }
  }
  loop.idle_turn();
  EXPECT_EQ(loop.counters.busy_ns + loop.counters.idle_ns, loop.busy_ns + loop.idle_ns);
}

TEST(BusyTime, without_an_idle_turn_it_is_all_the_time) {
  Loop loop;
  for (int i = 0; i < 1000; ++i) {
    loop.busy_turn(500);
    if (i % 256 == 255) loop.time.settle(loop.now_ns);
  }
  EXPECT_EQ(loop.counters.busy_ns, 768u * 500);
  EXPECT_EQ(loop.counters.idle_ns, 0u);
}

TEST(BusyTime, without_a_busy_turn_it_is_none) {
  Loop loop;
  for (int i = 0; i < 1000; ++i) {
    loop.idle_turn();
    loop.now_ns += 50;
    if (i % 256 == 255) loop.time.settle(loop.now_ns);
  }
  EXPECT_EQ(loop.counters.busy_ns, 0u);
}

TEST(BusyTime, while_the_core_is_given_away_the_reactor_is_idle) {
  Loop loop;
  for (int i = 0; i < 100; ++i) loop.idle_turn();
  loop.now_ns += 10'000'000;
  loop.time.on_back(loop.now_ns);
  loop.busy_turn(5000);
  loop.idle_turn();
  EXPECT_NEAR(static_cast<double>(loop.counters.busy_ns), 5000, 100);
}

/// The kernel takes the core in the middle of an idle turn, once in a while.
TEST(BusyTime, a_turn_that_took_long_once_does_not_hide_work) {
  Loop loop;
  for (int i = 0; i < 1000; ++i) {
    loop.idle_turn();
    if (i % 10 == 0) loop.idle_turn(4'000'000);
    loop.busy_turn(2000);
    loop.idle_turn();
  }
  EXPECT_NEAR(static_cast<double>(loop.counters.busy_ns), static_cast<double>(loop.busy_ns),
              0.05 * static_cast<double>(loop.busy_ns));
}

/// Where turns that find none become longer, as with more connections to look at, they are still no work.
TEST(BusyTime, idle_turns_that_become_longer_are_learnt) {
  Loop loop;
  for (int i = 0; i < 100; ++i) loop.idle_turn();
  for (int i = 0; i < 200; ++i) loop.idle_turn(2000);
  loop.busy_turn(10);
  loop.idle_turn(2000);
  EXPECT_LT(loop.counters.busy_ns, 300u);
}

}  // namespace
}  // namespace sluice::reactor
