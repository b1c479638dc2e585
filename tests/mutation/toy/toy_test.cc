// SPDX-License-Identifier: Apache-2.0
#include "toy.h"

#include <gtest/gtest.h>

namespace toy {
namespace {

TEST(Toy, limits) {
  EXPECT_EQ(limited(10), 10);
  EXPECT_EQ(limited(11), 10);
  EXPECT_EQ(limited(9), 9);
}

TEST(Toy, drains) {
  EXPECT_EQ(drained(3), 0);
}

TEST(Toy, doubles) {
  int value = 21;
  EXPECT_EQ(doubled(value), 42);
}

TEST(Toy, closes) {
  int open = 1;
  { const Handle handle{&open}; }
  EXPECT_EQ(open, 0);
}

TEST(Toy, fails_by_itself) {
  EXPECT_EQ(limited(1), 2);
}

}  // namespace
}  // namespace toy
