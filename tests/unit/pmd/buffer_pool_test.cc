// SPDX-License-Identifier: Apache-2.0
//
// Compiled twice: like tests, where a failed invariant aborts, and like a release, where it is counted.
#include "pmd/buffer_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::rdma {
namespace {

TEST(BufferPool, each_buffer_is_there_once) {
  std::vector<std::byte> bytes(1000);
  BufferPool pool({bytes, Lkey{3}}, 300);
  EXPECT_EQ(pool.available(), 3u);
  EXPECT_EQ(pool.buffer_bytes(), 300u);
  EXPECT_EQ(pool.lkey(), Lkey{3});
  std::vector<std::byte*> taken;
  for (std::size_t i = 0; i < 3; ++i) {
    taken.push_back(pool.acquire());
    EXPECT_EQ(taken.back(), bytes.data() + 300 * i);
    EXPECT_EQ(pool.available(), 2 - i);
  }
  EXPECT_EQ(pool.acquire(), nullptr);
  EXPECT_EQ(pool.available(), 0u);
  pool.release(taken[1]);
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_EQ(pool.acquire(), taken[1]);
  EXPECT_EQ(pool.acquire(), nullptr);
  EXPECT_EQ(BufferPool{}.acquire(), nullptr);
}

TEST(BufferPool, takes_back_only_what_it_gave) {
  std::vector<std::byte> bytes(1000);
  BufferPool pool({bytes, Lkey{3}}, 300);
  std::byte* const buffer = pool.acquire();
  std::byte other{};
  const auto expect_refused = [&](BufferPool& by, std::byte* wrong) {
    if constexpr (kAbortOnInvariant) {
      EXPECT_DEATH(by.release(wrong), "invariant pool_balance does not hold");
    } else {
      const auto& failures = invariant_failures()[static_cast<std::size_t>(Invariant::pool_balance)];
      const std::uint64_t before = failures;
      by.release(wrong);
      EXPECT_EQ(failures, before + 1);
    }
  };
  expect_refused(pool, buffer + 300);  // already free
  expect_refused(pool, buffer + 1);
  expect_refused(pool, buffer + 900);  // the remainder, which is no buffer
  expect_refused(pool, buffer - 300);
  expect_refused(pool, &other);
  expect_refused(pool, nullptr);
  BufferPool none;
  expect_refused(none, buffer);
  EXPECT_EQ(pool.available(), 2u);
  pool.release(buffer);
  expect_refused(pool, buffer);  // a second time
  EXPECT_EQ(pool.available(), 3u);
  EXPECT_EQ(pool.acquire(), buffer);
}

}  // namespace
}  // namespace sluice::rdma
