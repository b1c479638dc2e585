// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/reactor.h"

#include <gtest/gtest.h>

#include "tests/unit/reactor/fake_device.h"

namespace sluice::reactor {
namespace {

std::uint64_t idle_now_ns;
std::uint64_t idle_clock() noexcept {
  return idle_now_ns;
}

class IdleTest : public testing::Test {
 protected:
  IdleTest() { idle_now_ns = 5'000'000'000; }
  FakeDevice device_;
  Idle idle_{segment::IdlePolicy::Backoff, device_, &idle_clock};
};

TEST_F(IdleTest, the_spin_policy_never_gives_the_core_away) {
  Idle spin(segment::IdlePolicy::Spin, device_, &idle_clock);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(spin.on_no_work(true));
    idle_now_ns += 1'000'000'000;
  }
  EXPECT_TRUE(device_.waits.empty());
}

TEST_F(IdleTest, a_device_that_does_not_wake_is_slept_on_after_the_long_spin) {
  EXPECT_FALSE(idle_.on_no_work(true));
  idle_now_ns += kSpinBeforeSleepNs - 1;
  EXPECT_FALSE(idle_.on_no_work(true));
  EXPECT_TRUE(device_.waits.empty());
  idle_now_ns += 1;
  EXPECT_TRUE(idle_.on_no_work(true));
  EXPECT_EQ(device_.waits, std::vector<std::uint64_t>{kSleepNs});
}

TEST_F(IdleTest, a_device_that_wakes_is_waited_on_for_as_long_as_it_was_idle) {
  device_.can_wake = true;
  EXPECT_FALSE(idle_.on_no_work(true));
  idle_now_ns += kSpinBeforeWaitNs - 1;
  EXPECT_FALSE(idle_.on_no_work(true));
  idle_now_ns += 1;
  EXPECT_TRUE(idle_.on_no_work(true));
  idle_now_ns += 3 * kSpinBeforeWaitNs;
  EXPECT_TRUE(idle_.on_no_work(true));
  idle_now_ns += 100 * kMaxWaitNs;
  EXPECT_TRUE(idle_.on_no_work(true));
  EXPECT_EQ(device_.waits,
            (std::vector<std::uint64_t>{kSpinBeforeWaitNs, 4 * kSpinBeforeWaitNs, kMaxWaitNs}));
}

TEST_F(IdleTest, work_that_the_device_does_not_announce_is_slept_for) {
  device_.can_wake = true;
  EXPECT_FALSE(idle_.on_no_work(false));
  idle_now_ns += kSpinBeforeWaitNs;
  EXPECT_FALSE(idle_.on_no_work(false));
  idle_now_ns += kSpinBeforeSleepNs;
  EXPECT_TRUE(idle_.on_no_work(false));
  EXPECT_EQ(device_.waits, std::vector<std::uint64_t>{kSleepNs});
}

TEST_F(IdleTest, work_starts_the_idle_time_anew) {
  EXPECT_FALSE(idle_.on_no_work(true));
  idle_now_ns += kSpinBeforeSleepNs;
  idle_.on_work();
  EXPECT_FALSE(idle_.on_no_work(true));
  idle_now_ns += kSpinBeforeSleepNs;
  EXPECT_TRUE(idle_.on_no_work(true));
}

}  // namespace
}  // namespace sluice::reactor
