// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/completion_gate.h"

#include <gtest/gtest.h>

namespace sluice::rdma::softroce {
namespace {

struct Card {
  std::uint64_t done = 0;
  bool operator()(std::uint64_t mark) const { return mark <= done; }
};

TEST(CompletionGate, is_open_where_nothing_is_waited_for) {
  const CompletionGate gate;
  EXPECT_FALSE(gate.closed());
}

TEST(CompletionGate, all_wait_for_the_greatest_mark_and_then_none_does) {
  CompletionGate gate;
  Card card;
  gate.need(9);
  gate.need(4);
  EXPECT_TRUE(gate.closed());
  card.done = 8;
  EXPECT_EQ(gate.free(3, card), 0u);
  card.done = 9;
  EXPECT_EQ(gate.free(3, card), 3u);
  EXPECT_FALSE(gate.closed());
}

TEST(CompletionGate, marks_that_come_later_hold_up_only_what_comes_later) {
  CompletionGate gate;
  Card card;
  gate.need(5);
  EXPECT_EQ(gate.free(2, card), 0u);
  gate.need(8);
  card.done = 5;
  EXPECT_EQ(gate.free(6, card), 2u);
  gate.take(1);
  gate.need(20);
  EXPECT_EQ(gate.free(6, card), 1u) << "one of the first two is still there";
  gate.take(1);
  card.done = 8;
  EXPECT_EQ(gate.free(6, card), 4u);
  card.done = 20;
  EXPECT_EQ(gate.free(6, card), 6u);
  EXPECT_FALSE(gate.closed());
}

TEST(CompletionGate, what_is_left_of_those_that_wait_is_held_again_when_some_are_gone) {
  CompletionGate gate;
  Card card;
  gate.need(5);
  EXPECT_EQ(gate.free(4, card), 0u);
  gate.need(8);
  card.done = 5;
  EXPECT_EQ(gate.free(6, card), 4u);
  gate.recount();
  EXPECT_EQ(gate.free(3, card), 0u);
  card.done = 8;
  EXPECT_EQ(gate.free(3, card), 3u);
}

}  // namespace
}  // namespace sluice::rdma::softroce
