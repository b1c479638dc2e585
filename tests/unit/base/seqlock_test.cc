// SPDX-License-Identifier: Apache-2.0
#include "dataplane/base/seqlock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>

#include "tests/unit/base/counted_invariants.h"

namespace sluice {
namespace {

TEST(SeqLock, readers_never_see_a_torn_value) {
  struct Wide {
    std::uint64_t words[12] = {};
  };
  SeqLock<Wide> lock{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop; ++i) {
      Wide value;
      std::fill(std::begin(value.words), std::end(value.words), i);
      lock.write(value);
    }
  });
  int seen = 0;
  while (seen < 20000) {
    const auto value = lock.read();
    if (!value) continue;
    ++seen;
    for (const std::uint64_t word : value->words) ASSERT_EQ(word, value->words[0]);
  }
  stop = true;
  writer.join();
}

struct Odd {
  char bytes[13] = {};
};

TEST(SeqLock, sizes_that_are_no_multiple_of_a_word_come_back_whole) {
  SeqLock<Odd> lock{};
  Odd value;
  std::memcpy(value.bytes, "twelve bytes", 13);
  const std::uint32_t before = lock.sequence();
  lock.write(value);
  EXPECT_NE(lock.sequence(), before);
  const auto read = lock.read();
  ASSERT_TRUE(read);
  EXPECT_STREQ(read->bytes, "twelve bytes");
}

TEST(SeqLock, what_a_writer_left_half_written_is_no_value_until_the_next_write) {
  SeqLock<Odd> lock{};
  lock.write({"first"});
  const std::uint32_t torn = lock.sequence() + 1;  // like a writer that died during a write
  static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof torn);
  std::memcpy(static_cast<void*>(&lock), &torn, sizeof torn);
  EXPECT_FALSE(lock.read());
  EXPECT_EQ(lock.read_copy(), nullptr);
  lock.write({"second"});
  ASSERT_TRUE(lock.read());
  EXPECT_STREQ(lock.read()->bytes, "second");
  EXPECT_EQ(lock.sequence() % 2, 0u);
}

struct Large {
  char bytes[100'000] = {};
};

template <typename Lock>
concept ReadByValue = requires(const Lock& lock) {
  {*lock.read()};
};

TEST(SeqLock, a_large_value_is_read_to_the_heap_only) {
  static_assert(ReadByValue<SeqLock<Odd>>);
  static_assert(!ReadByValue<SeqLock<Large>>);
  const auto lock = std::make_unique<SeqLock<Large>>();
  const auto value = std::make_unique<Large>();
  std::fill(std::begin(value->bytes), std::end(value->bytes), 'x');
  lock->write(*value);
  const auto read = lock->read_copy();
  ASSERT_TRUE(read);
  EXPECT_EQ(0, std::memcmp(read->bytes, value->bytes, sizeof value->bytes));
}

/// Value whose size lets the scheduler preempt a writer during a write.
struct Long {
  std::uint64_t words[1 << 16] = {};
};

TEST(SeqLock, a_second_writer_is_a_failed_invariant) {
  if (!kAbortOnInvariant) GTEST_SKIP() << "a release does not evaluate this condition";
  const auto lock = std::make_unique<SeqLock<Long>>();
  const auto value = std::make_unique<Long>();
  std::atomic<bool> failed{false};
  const auto write = [&] {
    const CountedInvariants counted;
    while (!failed) {
      lock->write(*value);
      if (counted.failed(Invariant::sequence_lock) > 0) failed = true;
    }
  };
  std::thread other(write);
  write();
  other.join();
}

}  // namespace
}  // namespace sluice
