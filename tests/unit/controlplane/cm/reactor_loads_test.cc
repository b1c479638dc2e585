// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/reactor_loads.h"

#include <gtest/gtest.h>

namespace sluice::cm {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

/// Three reactors with a number of connections each.
struct Reactors {
  std::uint32_t choose() {
    std::uint32_t best = 0;
    for (std::uint32_t i = 1; i < counts.size(); ++i)
      if (expected(i) < expected(best)) best = i;
    loads.placed(best);
    ++counts[best];
    return best;
  }
  double expected(std::uint32_t reactor) const { return loads.expected(reactor, counts[reactor], all()); }
  std::uint64_t all() const { return counts[0] + counts[1] + counts[2]; }
  void measure(std::uint64_t now_ns, std::array<std::uint64_t, 3> busy_ns) {
    ReactorLoads::PerReactor of_all{};
    for (std::size_t i = 0; i < busy_ns.size(); ++i) of_all[i] = busy_ns[i];
    loads.measure(now_ns, of_all, all());
  }

  ReactorLoads loads;
  std::array<std::uint64_t, 3> counts{};
};

TEST(ReactorLoads, idle_reactors_get_connections_in_turn) {
  Reactors idle;
  idle.measure(10 * kSecond, {});
  for (int i = 0; i < 9; ++i) idle.choose();
  EXPECT_EQ(idle.counts, (std::array<std::uint64_t, 3>{3, 3, 3}));
  idle.measure(12 * kSecond, {});
  for (int i = 0; i < 3; ++i) idle.choose();
  EXPECT_EQ(idle.counts, (std::array<std::uint64_t, 3>{4, 4, 4}));
}

TEST(ReactorLoads, a_connection_goes_to_the_reactor_that_was_busy_for_the_least_time) {
  Reactors some;
  some.counts = {1, 40, 1};
  some.measure(10 * kSecond, {});
  some.measure(12 * kSecond, {1'800'000'000, 20'000'000, 600'000'000});  // 90 %, 1 %, 30 %
  EXPECT_EQ(some.choose(), 1u) << "the many connections of the second reactor do nothing";
}

TEST(ReactorLoads, a_storm_of_connections_does_not_all_go_to_one_reactor) {
  Reactors some;
  some.counts = {10, 10, 10};
  some.measure(10 * kSecond, {});
  some.measure(12 * kSecond, {1'000'000'000, 1'000'000'000, 400'000'000});  // 50 %, 50 %, 20 %
  for (int i = 0; i < 300; ++i) some.choose();
  EXPECT_GT(some.counts[2], some.counts[0]);
  EXPECT_GT(some.counts[0], 90u);
  EXPECT_GT(some.counts[1], 90u);
}

TEST(ReactorLoads, only_the_last_window_counts) {
  Reactors some;
  some.counts = {1, 1, 1};
  some.measure(10 * kSecond, {});
  some.measure(12 * kSecond, {2'000'000'000, 0, 0});
  EXPECT_GT(some.expected(0), 0.9);
  some.measure(14 * kSecond, {2'000'000'000, 1'000'000'000, 0});
  EXPECT_LT(some.expected(0), some.expected(1));
  EXPECT_FALSE(some.loads.is_due(16 * kSecond - 1));
  EXPECT_TRUE(some.loads.is_due(16 * kSecond));
}

TEST(ReactorLoads, what_was_counted_before_the_first_measurement_and_by_another_data_plane_is_no_load) {
  Reactors some;
  some.counts = {1, 1, 1};
  some.measure(10 * kSecond, {9'000'000'000, 0, 0});
  EXPECT_EQ(some.expected(0), some.expected(1)) << "it belongs to no window";
  some.measure(12 * kSecond, {1'000'000'000, 0, 0});
  EXPECT_EQ(some.expected(0), some.expected(1)) << "the counter has started again";
}

}  // namespace
}  // namespace sluice::cm
