// SPDX-License-Identifier: Apache-2.0
//
// Buffers that the connections of an engine share: the number of small ones, and the limits of accounts.
#include "dataplane/rpcrdma/link/shared_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "pmd/loopback/loopback.h"

namespace sluice::rpcrdma {
namespace {

constexpr std::uint32_t kSmall = 256;
constexpr std::uint32_t kLarge = 4096;

class SharedMemoryTest : public ::testing::Test {
 protected:
  void provide(std::uint32_t small_bytes, std::uint32_t large) {
    memory.provide(*device,
                   {.accounts = 3, .small_bytes = small_bytes, .large_bytes = kLarge, .large = large});
  }
  /// Acquires buffers of this size until none is free. Returns their number.
  std::uint32_t take_all(SharedMemory::Account& account, std::size_t bytes) {
    std::uint32_t count = 0;
    while (std::byte* const buffer = memory.acquire(account, bytes)) {
      EXPECT_GE(memory.bytes_of(buffer), bytes);
      taken.push_back(buffer);
      ++count;
    }
    return count;
  }

  std::shared_ptr<rdma::loopback::Fabric> fabric = rdma::loopback::Fabric::in_process({.links = 1});
  std::unique_ptr<rdma::Device> device = rdma::loopback::make_device(fabric, {.name = "shared"});
  SharedMemory memory;
  std::array<SharedMemory::Account, 3> accounts;
  std::vector<std::byte*> taken;
};

TEST_F(SharedMemoryTest, each_account_has_a_small_buffer_and_32_are_lent_to_at_most_half_of_them_each) {
  provide(kSmall, 2);
  EXPECT_EQ(memory.buffers(), 3u + 32 + 2);
  EXPECT_EQ(take_all(accounts[0], kSmall), 17u);
  EXPECT_EQ(take_all(accounts[1], kSmall), 17u);
  EXPECT_EQ(take_all(accounts[2], 1), 1u) << "what it is guaranteed, and nothing is left to be lent";
  EXPECT_EQ(memory.available(), 2u);
  memory.release(nullptr);
  for (std::byte* const buffer : taken) memory.release(buffer);
  EXPECT_EQ(memory.available(), memory.buffers());
}

TEST_F(SharedMemoryTest, more_small_buffers_may_be_lent) {
  memory.provide(
      *device, {.accounts = 3, .small_bytes = kSmall, .large_bytes = kLarge, .large = 2, .lent_small = 100});
  EXPECT_EQ(memory.buffers(), 3u + 100 + 2);
  EXPECT_EQ(take_all(accounts[0], kSmall), 51u);
}

TEST_F(SharedMemoryTest, what_is_longer_than_a_small_buffer_gets_a_large_one) {
  provide(kSmall, 8);
  std::byte* const small = memory.acquire(accounts[0], kSmall);
  std::byte* const large = memory.acquire(accounts[0], kSmall + 1);
  EXPECT_EQ(memory.bytes_of(small), kSmall);
  EXPECT_EQ(memory.bytes_of(large), kLarge);
  EXPECT_EQ(memory.most_bytes(), kLarge);
  memory.release(small);
  memory.release(large);
  EXPECT_EQ(take_all(accounts[0], kLarge), 4u) << "nobody holds more than half";
}

TEST_F(SharedMemoryTest, without_small_buffers_all_get_large_ones) {
  provide(0, 2);
  EXPECT_EQ(memory.buffers(), 2u);
  EXPECT_EQ(memory.bytes_of(memory.acquire(accounts[0], 1)), kLarge);
  EXPECT_EQ(take_all(accounts[0], 1), 1u);
}

}  // namespace
}  // namespace sluice::rpcrdma
