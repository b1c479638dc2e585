// SPDX-License-Identifier: Apache-2.0
//
// Receive buffers that are surplus after a reduction of the credit window.
#include "dataplane/rpcrdma/link/receives.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace sluice::rpcrdma {
namespace {

constexpr std::uint32_t kBuffers = 8;
constexpr std::uint32_t kBytes = 4096;

struct ReceivesTest : testing::Test {
  std::vector<std::byte> memory = std::vector<std::byte>(kBuffers * buffer_stride(kBytes));
  Receives receives{{memory, rdma::Lkey{}}, kBuffers, kBytes};

  void SetUp() override { receives.open(kBytes, kBuffers); }
  /// Returns the number of buffers that are kept when `count` buffers come back.
  std::uint32_t kept_of(std::uint16_t count) {
    std::uint32_t kept = 0;
    for (std::uint16_t i = 0; i < count; ++i) kept += receives.keep_surplus(i) ? 1 : 0;
    return kept;
  }
};

TEST_F(ReceivesTest, without_a_bound_none_is_kept) {
  EXPECT_EQ(kept_of(kBuffers), 0u);
  EXPECT_FALSE(receives.may_use_spare());
}

TEST_F(ReceivesTest, V2_037_what_is_in_use_beyond_the_bound_is_kept_as_it_comes_back) {
  receives.bound(5);
  EXPECT_EQ(kept_of(2), 2u);
  receives.bound(4);
  EXPECT_EQ(kept_of(kBuffers), 2u) << "one more than before";
  EXPECT_FALSE(receives.may_use_spare());
}

/// A credit for a buffer that will be kept would have no posted Receive.
TEST_F(ReceivesTest, V2_038_one_that_will_be_kept_is_not_counted_as_returning) {
  EXPECT_EQ(receives.returning(1), 1u);
  receives.bound(7);
  EXPECT_EQ(receives.returning(1), 0u);
  EXPECT_EQ(kept_of(1), 1u);
  EXPECT_EQ(receives.returning(1), 1u);
  EXPECT_EQ(receives.returning(0), 0u);
}

TEST_F(ReceivesTest, V2_037_spares_are_used_again_up_to_the_new_bound) {
  receives.bound(4);
  EXPECT_EQ(kept_of(4), 4u);
  receives.bound(6);
  std::uint32_t used = 0;
  for (; receives.may_use_spare(); ++used) receives.use_spare();
  EXPECT_EQ(used, 2u);
  receives.bound(Receives::kNoBound);
  for (; receives.may_use_spare(); ++used) receives.use_spare();
  EXPECT_EQ(used, 4u);
  EXPECT_EQ(kept_of(kBuffers), 0u);
}

TEST_F(ReceivesTest, a_wider_bound_forgets_what_has_not_come_back_yet) {
  receives.bound(4);
  EXPECT_EQ(kept_of(1), 1u);
  receives.bound(kBuffers);
  EXPECT_EQ(kept_of(kBuffers), 0u);
  EXPECT_TRUE(receives.may_use_spare());
}

TEST_F(ReceivesTest, the_next_connection_begins_without_spares_and_without_a_bound) {
  receives.bound(4);
  EXPECT_EQ(kept_of(2), 2u);
  receives.open(kBytes, kBuffers);
  EXPECT_FALSE(receives.may_use_spare());
  EXPECT_EQ(kept_of(kBuffers), 0u);
}

}  // namespace
}  // namespace sluice::rpcrdma
