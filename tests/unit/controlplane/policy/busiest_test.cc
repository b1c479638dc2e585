// SPDX-License-Identifier: Apache-2.0
//
// The busiest connections of a round, and rounds that are spread over iterations.
#include "controlplane/policy/client_monitor.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/unit/controlplane/lab.h"

namespace sluice::policy {
namespace {

using lab::peer;

TEST(Busiest, the_busiest_are_kept_in_order_and_all_count_in_the_sums) {
  RoundSums sums;
  constexpr std::uint32_t kAll = 3 * kBusiestKept;
  for (std::uint32_t i = 0; i < kAll; ++i) {
    sums.add_open(4, 1);
    // The values are neither ascending nor descending.
    sums.add_busy({.number = i, .peer = peer(i / 3), .granted = 4, .busy = 1, .calls = 1 + i * 37 % kAll});
  }
  sums.add_open(4, 0);
  sums.add_busy({.number = kAll, .peer = peer(kAll), .calls = 1});  // the last one is not among the busiest
  const Round round = sums.end(lab::kSecondNs);
  EXPECT_EQ(round.connections, kAll + 1);
  EXPECT_EQ(round.granted, 4 * (kAll + 1));
  EXPECT_EQ(round.busy, kAll);
  EXPECT_EQ(round.calls, kAll * (kAll + 1) / 2 + 1);
  ASSERT_EQ(round.busiest.size(), kBusiestKept);
  for (std::uint32_t i = 0; i < kBusiestKept; ++i) EXPECT_EQ(round.busiest[i].calls, kAll - i);
  ASSERT_EQ(round.clients.size(), kBusiestKept);
  EXPECT_EQ(round.clients[0].connections, 3u);
  EXPECT_EQ(round.clients[0].granted, 12u);
  for (std::size_t i = 1; i < kBusiestKept; ++i)
    EXPECT_GE(round.clients[i - 1].calls, round.clients[i].calls);
  EXPECT_EQ(sums.end(1).calls, 0u) << "the next round begins with nothing";
}

TEST(Busiest, clients_beyond_the_limit_are_in_the_sums_only) {
  RoundSums sums;
  for (std::uint32_t i = 0; i < kMaxClientsOfRound; ++i) sums.add_busy({.peer = peer(i), .calls = 1});
  sums.add_busy({.peer = peer(kMaxClientsOfRound), .calls = 1000});
  sums.add_busy({.peer = peer(3), .calls = 5});
  const Round round = sums.end(1);
  EXPECT_EQ(round.clients[0].calls, 6u);
  EXPECT_EQ(round.busiest[0].calls, 1000u);
  EXPECT_EQ(round.calls, kMaxClientsOfRound + 1005);
}

TEST(Rounds, a_round_is_spread_over_iterations_and_counts_since_the_round_before) {
  lab::TestSegment segment("rounds");
  constexpr std::uint32_t kPolls = segment::kMaxConnections / kLookedPerPoll;
  ClientMonitor watch(segment.layout(), 1, segment::kMaxConnections);
  const auto serve = [&](std::uint32_t number, std::uint64_t calls) {
    segment.layout().reactors[0].use[number].served = calls;
  };
  std::uint64_t now_ns = 10 * lab::kSecondNs;
  const auto round = [&] {
    for (std::uint32_t i = 0; i < kPolls; ++i) {
      watch.poll(now_ns + i);
      EXPECT_EQ(watch.looked(), kLookedPerPoll);
    }
    watch.poll(now_ns + kPolls);
    EXPECT_EQ(watch.looked(), 0u) << "the next round begins a second after this one";
    now_ns += 2 * lab::kSecondNs;
    return watch.last_round();
  };
  segment.publish(1, lab::client(7), 0, 3);
  segment.publish(segment::kMaxConnections - 1, lab::client(8), 0, 5);
  serve(1, 100);
  EXPECT_EQ(round().calls, 100u);
  serve(1, 110);
  serve(segment::kMaxConnections - 1, 30);
  const Round second = round();
  EXPECT_EQ(second.interval_ns, 2 * lab::kSecondNs);
  EXPECT_EQ(second.connections, 2u);
  EXPECT_EQ(second.granted, 8u);
  ASSERT_EQ(second.busiest.size(), 2u);
  EXPECT_EQ(second.busiest[0].number, segment::kMaxConnections - 1);
  EXPECT_EQ(second.busiest[0].peer, lab::client(8));
  EXPECT_EQ(second.busiest[0].granted, 5u);
  EXPECT_EQ(second.busiest[1].calls, 10u);
  EXPECT_EQ(round().calls, 0u);
}

}  // namespace
}  // namespace sluice::policy
