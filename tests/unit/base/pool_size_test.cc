// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/pool_size.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

static_assert(pool_size({{"calls", 3}, {"replies", 4}}) == 7);
static_assert(pool_size({}) == 0);

TEST(PoolSize, a_pool_that_is_large_enough_is_taken_as_it_is) {
  EXPECT_EQ(require_pool("buffers", 3, {{"one", 1}, {"two", 2}}), 3u);
  EXPECT_EQ(require_pool("buffers", 9, {{"one", 1}, {"two", 2}}), 9u);
}

TEST(PoolSize, one_that_is_too_small_is_refused_with_its_holders) {
  try {
    require_pool("buffers", 2, {{"a record", 1}, {"its replies", 2}});
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_STREQ(error.what(), "buffers is 2, less than the sum of 1 for a record, 2 for its replies.");
  }
}

}  // namespace
}  // namespace sluice
