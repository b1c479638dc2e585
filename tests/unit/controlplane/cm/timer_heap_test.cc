// SPDX-License-Identifier: Apache-2.0
#include "controlplane/cm/entry_table.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::cm {
namespace {

/// Compares the heap with a sorted set. Timers are set, moved to earlier and later deadlines, and stopped.
TEST(TimerHeap, the_first_is_always_the_earliest_of_those_that_are_set) {
  std::mt19937 random(11);
  std::deque<Timer> timers;
  for (std::uint32_t i = 0; i < 200; ++i) timers.emplace_back(i);
  TimerHeap heap;
  std::multiset<std::uint64_t> expected;
  for (int step = 0; step < 20'000; ++step) {
    Timer& timer = timers[random() % timers.size()];
    if (timer.deadline_ns() != 0) expected.erase(expected.find(timer.deadline_ns()));
    const std::uint64_t deadline_ns = random() % 3 == 0 ? 0 : 1 + random() % 1000;
    heap.set(timer, deadline_ns);
    if (deadline_ns != 0) expected.insert(deadline_ns);
    ASSERT_EQ(heap.size(), expected.size());
    ASSERT_EQ(heap.first() == nullptr, expected.empty());
    if (!expected.empty()) {
      ASSERT_EQ(heap.first()->deadline_ns(), *expected.begin()) << step;
    }
  }
  // Empties the heap in order.
  while (Timer* first = heap.first()) {
    ASSERT_EQ(first->deadline_ns(), *expected.begin());
    expected.erase(expected.begin());
    heap.set(*first, 0);
  }
  EXPECT_TRUE(expected.empty());
}

TEST(EntryQueue, an_entry_that_is_added_twice_is_a_failed_invariant) {
  const CountedInvariants failures;
  EntryQueue queue(1);
  queue.add(7, PeerAddress::from_ipv4(192, 0, 2, 1), 1);
  queue.add(7, PeerAddress::from_ipv4(192, 0, 2, 2), 2);
  EXPECT_EQ(failures.failed(Invariant::list_membership), 1u);
  EXPECT_EQ(queue.size(), 1u);
  queue.remove(7);
  EXPECT_EQ(queue.size(), 0u);
  EXPECT_EQ(failures.failed(Invariant::list_membership), 1u);
}

TEST(EntryTable, an_identifier_that_is_used_twice_is_a_failed_invariant) {
  const CountedInvariants failures;
  EntryTable table(4, 1);
  Entry& first = table.add(7, {});
  EXPECT_EQ(&table.add(7, {}), &first);
  EXPECT_EQ(failures.failed(Invariant::table_index), 1u);
}

}  // namespace
}  // namespace sluice::cm
