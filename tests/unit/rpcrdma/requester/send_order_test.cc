// SPDX-License-Identifier: Apache-2.0
//
// Completed Sends of a requester, derived from a queue pair that reports few completions.
#include "dataplane/rpcrdma/requester/requester.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::rpcrdma {
namespace {

class SendOrderTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSlots = 4;

  /// Completes Send `number`. Returns the slots that were visited; those in `waiting` were waiting.
  std::vector<std::uint16_t> complete(std::uint64_t number, std::vector<std::uint16_t> waiting = {}) {
    std::vector<std::uint16_t> looked_at;
    order.complete(number, [&](std::uint16_t slot) {
      looked_at.push_back(slot);
      return std::erase(waiting, slot) > 0;
    });
    return looked_at;
  }

  SendOrder order{kSlots};
};

TEST_F(SendOrderTest, a_completion_stands_for_all_before_it) {
  const std::uint64_t first = order.add(2);
  const std::uint64_t second = order.add(0);
  const std::uint64_t third = order.add(1);
  EXPECT_FALSE(order.is_done(first));
  complete(second);
  EXPECT_TRUE(order.is_done(first));
  EXPECT_TRUE(order.is_done(second));
  EXPECT_FALSE(order.is_done(third));
  EXPECT_FALSE(order.all_done());
  complete(third);
  EXPECT_TRUE(order.all_done());
}

TEST_F(SendOrderTest, a_slot_that_has_sent_nothing_waits_for_nothing) {
  EXPECT_TRUE(order.is_done(0));
  EXPECT_TRUE(order.all_done());
}

TEST_F(SendOrderTest, no_slot_is_looked_at_while_none_waits) {
  order.add(3);
  EXPECT_TRUE(complete(order.add(1)).empty());
}

TEST_F(SendOrderTest, slots_are_looked_at_in_order_until_none_waits) {
  order.add(3);
  order.add(1);
  const std::uint64_t last = order.add(0);
  order.await();
  EXPECT_EQ(complete(last, {1}), (std::vector<std::uint16_t>{3, 1}));
  EXPECT_TRUE(order.is_done(last)) << "what nobody waits for is done as well";
}

TEST_F(SendOrderTest, one_that_waits_for_a_later_completion_is_found_by_that) {
  const std::uint64_t first = order.add(3);
  const std::uint64_t second = order.add(1);
  order.await();
  EXPECT_EQ(complete(first, {1}), (std::vector<std::uint16_t>{3}));
  EXPECT_EQ(complete(second, {1}), (std::vector<std::uint16_t>{1}));
}

/// A flushed Send has a completion even if it was unsignaled.
TEST_F(SendOrderTest, a_completion_that_tells_nothing_new_changes_nothing) {
  const std::uint64_t first = order.add(0);
  const std::uint64_t second = order.add(1);
  order.await();
  complete(second, {0});
  order.add(2);
  order.await();
  EXPECT_TRUE(complete(first, {0, 1, 2}).empty());
  EXPECT_TRUE(complete(second, {0, 1, 2}).empty());
  EXPECT_FALSE(order.all_done());
}

/// The completion handler of a slot may send the next call.
TEST_F(SendOrderTest, a_slot_that_is_found_may_send_again_at_once) {
  const std::uint64_t first = order.add(0);
  order.await();
  std::uint64_t again = 0;
  order.complete(first, [&](std::uint16_t slot) {
    again = order.add(slot);
    return true;
  });
  EXPECT_EQ(again, first + 1);
  EXPECT_FALSE(order.is_done(again));
  order.await();
  EXPECT_EQ(complete(again, {0}), (std::vector<std::uint16_t>{0}));
}

}  // namespace
}  // namespace sluice::rpcrdma
