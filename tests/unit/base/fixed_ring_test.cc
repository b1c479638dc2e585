// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/fixed_containers.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>

namespace sluice {
namespace {

TEST(FixedRing, a_full_one_takes_nothing) {
  FixedRing<int> ring(2);
  EXPECT_EQ(ring.capacity(), 2u);
  EXPECT_TRUE(ring.push_back(1));
  EXPECT_FALSE(ring.full());
  EXPECT_TRUE(ring.push_back(2));
  EXPECT_TRUE(ring.full());
  EXPECT_FALSE(ring.push_back(3));
  EXPECT_EQ(ring.pop_front(), 1);
  EXPECT_TRUE(ring.push_back(4));
  EXPECT_EQ(ring.pop_front(), 2);
  EXPECT_EQ(ring.pop_front(), 4);
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(FixedRing<int>().push_back(1));
}

TEST(FixedRing, growing_keeps_what_is_in_it_and_its_order) {
  FixedRing<int> ring(3);
  for (const int i : {1, 2, 3}) ring.push_back(i);
  ring.pop_front();
  ring.push_back(4);  // wraps around
  ring.grow(1);
  EXPECT_EQ(ring.capacity(), 3u);
  ring.grow(5);
  EXPECT_EQ(ring.capacity(), 5u);
  for (const int i : {2, 3, 4}) EXPECT_EQ(ring.pop_front(), i);
}

TEST(FixedRing, it_does_what_a_deque_does) {
  FixedRing<unsigned> ring(7);
  std::deque<unsigned> model;
  std::mt19937 random(1);
  for (int step = 0; step < 20000; ++step) {
    const auto value = static_cast<unsigned>(random() % 5);
    switch (random() % 4) {
      case 0:
      case 1: {
        const bool room = model.size() < 7;
        ASSERT_EQ(ring.push_back(value), room);
        if (room) model.push_back(value);
        break;
      }
      case 2: {
        std::array<unsigned, 3> popped{};
        const std::size_t count = ring.pop_front(std::span(popped).first(value % 4));
        ASSERT_EQ(count, std::min<std::size_t>(model.size(), value % 4));
        for (std::size_t i = 0; i < count; ++i, model.pop_front()) ASSERT_EQ(popped[i], model.front());
        break;
      }
      case 3:
        ring.erase_if([&](unsigned other) { return other == value; });
        std::erase(model, value);
        break;
    }
    ASSERT_EQ(ring.size(), model.size());
    for (std::size_t i = 0; i < model.size(); ++i) ASSERT_EQ(ring[i], model[i]);
  }
  ring.clear();
  EXPECT_TRUE(ring.empty());
}

}  // namespace
}  // namespace sluice
