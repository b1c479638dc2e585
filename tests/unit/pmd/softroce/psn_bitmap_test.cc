// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/psn_bitmap.h"

#include <gtest/gtest.h>

namespace sluice::rdma::softroce {
namespace {

TEST(PsnBitmap, holds_what_was_added_until_it_is_taken_also_where_numbers_wrap) {
  PsnBitmap map(300);
  EXPECT_EQ(map.capacity(), 512u);
  for (std::uint32_t i = 0; i < map.capacity(); i += 3) map.add(psn_add(0xFFFF00, i));
  for (std::uint32_t i = 0; i < map.capacity(); ++i)
    EXPECT_EQ(map.holds(psn_add(0xFFFF00, i)), i % 3 == 0) << i;
  for (std::uint32_t i = 0; i < map.capacity(); ++i)
    EXPECT_EQ(map.take(psn_add(0xFFFF00, i)), i % 3 == 0) << i;
  for (std::uint32_t i = 0; i < map.capacity(); ++i) EXPECT_FALSE(map.take(psn_add(0xFFFF00, i))) << i;
}

TEST(PsnBitmap, the_smallest_has_a_word) {
  PsnBitmap map(1);
  EXPECT_EQ(map.capacity(), 64u);
  map.add(63);
  EXPECT_TRUE(map.take(63));
}

}  // namespace
}  // namespace sluice::rdma::softroce
