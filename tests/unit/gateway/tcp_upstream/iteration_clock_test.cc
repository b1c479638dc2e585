// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"

#include <gtest/gtest.h>

namespace sluice::tcp_upstream {
namespace {

std::uint64_t reads = 0;

std::uint64_t read_clock() noexcept {
  return 1000 * reads++;
}

TEST(IterationClock, is_read_once_until_time_passes) {
  reads = 0;
  IterationClock clock(&read_clock);
  EXPECT_EQ(clock.now_ns(), 0u);
  EXPECT_EQ(clock.now_ns(), 0u);
  EXPECT_EQ(reads, 1u);
  clock.pass();
  EXPECT_EQ(reads, 1u) << "nobody has asked";
  EXPECT_EQ(clock.now_ns(), 1000u);
  EXPECT_EQ(clock.now_ns(), 1000u);
}

}  // namespace
}  // namespace sluice::tcp_upstream
