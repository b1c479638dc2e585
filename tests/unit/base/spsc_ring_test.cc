// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/spsc_ring.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

namespace sluice {
namespace {

TEST(SpscRing, two_threads_see_every_item_once_and_in_order) {
  auto ring = std::make_unique<SpscRing<std::uint64_t, 64>>();
  constexpr std::uint64_t kItems = 200'000;
  std::thread producer([&] {
    for (std::uint64_t i = 0; i < kItems;) i += ring->push(i) ? 1 : 0;
  });
  for (std::uint64_t expected = 0; expected < kItems;) {
    std::uint64_t item;
    if (!ring->pop(item)) continue;
    ASSERT_EQ(item, expected++);
  }
  producer.join();
}

TEST(SpscRing, a_full_ring_takes_nothing) {
  SpscRing<int, 4> ring{};
  int item = 0;
  EXPECT_FALSE(ring.pop(item));
  for (int round = 0; round < 1000; ++round) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(ring.push(i));
    EXPECT_FALSE(ring.push(9));
    EXPECT_EQ(ring.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(ring.pop(item));
      EXPECT_EQ(item, i);
    }
  }
}

TEST(SpscRing, its_size_is_what_was_pushed_and_not_popped) {
  SpscRing<int, 4> ring{};
  int item = 0;
  EXPECT_EQ(ring.size(), 0u);
  for (std::uint32_t pushed = 1; pushed <= 4; ++pushed) {
    ASSERT_TRUE(ring.push(1));
    EXPECT_EQ(ring.size(), pushed);
  }
  ASSERT_TRUE(ring.pop(item));
  EXPECT_EQ(ring.size(), 3u);
}

/// Head and tail are read one after the other, so a third thread may read a head that is behind the tail by
/// more than the capacity.
TEST(SpscRing, its_size_is_never_more_than_it_holds) {
  SpscRing<int, 4> ring{};
  const std::uint32_t tail = 9;  // the first member
  std::memcpy(static_cast<void*>(&ring), &tail, sizeof tail);
  EXPECT_EQ(ring.size(), 4u);
}

/// The other plane may write invalid indices, and a truncated segment reads as zeros.
TEST(SpscRing, indices_that_cannot_be_are_counted_and_neither_read_nor_written_by) {
  const auto producer = std::make_unique<RingOfProducer<int, 4>>();
  RingOfConsumer consumer{};
  const Ring<int, 4> ring(*producer, consumer);
  std::uint64_t& counted = invariant_failures()[static_cast<std::size_t>(Invariant::ring_index)];
  const std::uint64_t before = counted;
  consumer.head = 7;
  int item = 3;
  EXPECT_FALSE(ring.pop(item));
  EXPECT_FALSE(ring.push(9));
  EXPECT_EQ(item, 3);
  EXPECT_EQ(counted, before + 2);
  producer->tail = 8;
  EXPECT_TRUE(ring.push(9));
  EXPECT_EQ(counted, before + 2);
}

}  // namespace
}  // namespace sluice
