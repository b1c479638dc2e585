// SPDX-License-Identifier: Apache-2.0
#include "controlplane/locks/table.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "tests/unit/base/counted_invariants.h"

namespace sluice::locks {
namespace {

using All = std::vector<Range>;

TEST(LockRanges, a_length_of_zero_is_to_the_end) {
  EXPECT_EQ(range_of(7, 0, true), (Range{7, kEndOfFile, true}));
  EXPECT_EQ(range_of(7, 1, true), (Range{7, 7, true}));
  EXPECT_EQ(range_of(7, kEndOfFile, false), (Range{7, kEndOfFile, false})) << "beyond the end";
  EXPECT_EQ(range_of(kEndOfFile, 1, false), (Range{kEndOfFile, kEndOfFile, false}));
}

TEST(LockRanges, neighbours_of_one_kind_are_one_and_others_split) {
  Ranges ranges;
  ranges.hold({0, 9, true});
  ranges.hold({10, 19, true});
  EXPECT_EQ(ranges.all(), (All{{0, 19, true}}));
  ranges.hold({5, 6, false});
  EXPECT_EQ(ranges.all(), (All{{0, 4, true}, {5, 6, false}, {7, 19, true}}));
  EXPECT_TRUE(ranges.covers({0, 19, false}));
  EXPECT_FALSE(ranges.covers({0, 19, true}));
  ranges.free({3, 15, false});
  EXPECT_EQ(ranges.all(), (All{{0, 2, true}, {16, 19, true}}));
  EXPECT_FALSE(ranges.covers({0, 19, false}));
  EXPECT_TRUE(ranges.overlaps({15, 16, false}));
  EXPECT_FALSE(ranges.overlaps({3, 15, false}));
  ranges.free({});
  EXPECT_TRUE(ranges.all().empty());
}

/// Compares ranges with a model of one entry per byte. The last byte of the model is the end of the file.
TEST(LockRanges, is_the_same_as_one_entry_per_byte) {
  constexpr std::uint64_t kBytes = 24;
  std::mt19937 random(4711);
  const auto real = [](std::uint64_t byte) { return byte == kBytes - 1 ? kEndOfFile : byte; };
  for (int round = 0; round < 200; ++round) {
    Ranges ranges;
    std::array<int, kBytes> model{};  // 0: free, 1: shared, 2: exclusive
    for (int step = 0; step < 40; ++step) {
      std::uint64_t first = random() % (kBytes - 1);
      std::uint64_t last = random() % (kBytes - 1);
      if (first > last) std::swap(first, last);
      if (random() % 4 == 0) last = kBytes - 1;
      const int kind = static_cast<int>(random() % 3);
      const Range range{first, real(last), kind == 2};
      if (kind == 0)
        ranges.free(range);
      else
        ranges.hold(range);
      for (std::uint64_t byte = first; byte <= last; ++byte) model[byte] = kind;
      for (std::uint64_t byte = 0; byte < kBytes; ++byte) {
        const Range one{real(byte), real(byte), false};
        ASSERT_EQ(ranges.overlaps(one), model[byte] != 0);
        ASSERT_EQ(ranges.covers({one.first, one.last, true}), model[byte] == 2);
      }
      for (std::size_t i = 1; i < ranges.all().size(); ++i) {
        const Range& before = ranges.all()[i - 1];
        const Range& after = ranges.all()[i];
        ASSERT_TRUE(before.last < after.first);
        ASSERT_TRUE(before.last + 1 < after.first || before.exclusive != after.exclusive) << "not merged";
      }
    }
  }
}

TEST(LockShares, more_than_a_network_has_is_not_removed) {
  const CountedInvariants failures;
  const PeerAddress one = PeerAddress::from_ipv4(192, 0, 2, 1),
                    other = PeerAddress::from_ipv4(198, 51, 100, 1);
  Shares shares(10, 5);
  shares.add(one, 2);
  shares.add(other, 3);
  shares.remove(one, 3);
  EXPECT_EQ(failures.failed(Invariant::pool_balance), 1u);
  EXPECT_EQ(shares.total(), 5u);
  shares.remove(one, 2);
  EXPECT_EQ(shares.total(), 3u);
  EXPECT_EQ(failures.failed(Invariant::pool_balance), 1u);
}

}  // namespace
}  // namespace sluice::locks
