// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/control_plane_monitor.h"

#include <gtest/gtest.h>

#include <cstring>

#include "dataplane/log/log.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

class ConfigWatchTest : public testing::Test {
 protected:
  ConfigWatchTest() { config_.generation = 3; }
  ~ConfigWatchTest() override { log::set_level(log::Level::Info); }

  void publish(std::uint64_t generation) {
    config_.generation = generation;
    segment_.layout().config.write(config_);
  }
  std::uint64_t applied() { return segment_.layout().generation_applied.load(); }

  MemorySegment segment_;
  segment::ConfigBlock config_;
  ExportUpdate update_;
  UpstreamChanges upstreams_{config_, {}, segment_.layout().upstream_places};
  std::uint64_t slow_call_ns_ = 0;
  const ConfigMonitor::SetSlowCall set_slow_call_ = [this](std::uint64_t ns) { slow_call_ns_ = ns; };
};

TEST_F(ConfigWatchTest, what_the_data_plane_was_built_from_is_in_force_at_once) {
  config_.log_level = static_cast<std::uint32_t>(log::Level::Error);
  ConfigMonitor watch(segment_.layout(), {&update_}, upstreams_, set_slow_call_, config_);
  EXPECT_EQ(applied(), 3u);
  EXPECT_EQ(log::level(), log::Level::Error);
  publish(3);
  watch.poll();
  EXPECT_EQ(update_.take(), nullptr);
}

TEST_F(ConfigWatchTest, a_change_is_in_force_when_the_reactor_has_taken_the_exports) {
  ConfigMonitor watch(segment_.layout(), {&update_}, upstreams_, set_slow_call_, config_);
  config_.exports[0].in_use = 1;
  std::strcpy(config_.exports[0].path, "/more");
  publish(4);
  watch.poll();
  ExportUpdate::List* const offered = update_.take();
  ASSERT_NE(offered, nullptr);
  ASSERT_EQ(offered->size(), 1u);
  EXPECT_EQ((*offered)[0].path, "/more");
  watch.poll();
  EXPECT_EQ(applied(), 3u);
  update_.give_back(*offered);
  watch.poll();
  EXPECT_EQ(applied(), 4u);
}

TEST_F(ConfigWatchTest, one_change_at_a_time_is_with_the_reactor) {
  ConfigMonitor watch(segment_.layout(), {&update_}, upstreams_, set_slow_call_, config_);
  publish(4);
  watch.poll();
  publish(5);
  publish(6);
  watch.poll();
  ExportUpdate::List* const first = update_.take();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(update_.take(), nullptr);
  update_.give_back(*first);
  watch.poll();
  EXPECT_EQ(applied(), 4u);
  ExportUpdate::List* const last = update_.take();
  ASSERT_NE(last, nullptr);
  update_.give_back(*last);
  watch.poll();
  EXPECT_EQ(applied(), 6u);
}

TEST_F(ConfigWatchTest, the_limit_of_slow_calls_changes_at_once) {
  ConfigMonitor watch(segment_.layout(), {&update_}, upstreams_, set_slow_call_, config_);
  EXPECT_EQ(slow_call_ns_, 1'000'000'000u);
  config_.slow_call_ms = 0;
  publish(4);
  watch.poll();
  EXPECT_EQ(slow_call_ns_, 0u);
}

TEST_F(ConfigWatchTest, the_log_level_changes_and_one_that_is_none_is_off) {
  ConfigMonitor watch(segment_.layout(), {&update_}, upstreams_, set_slow_call_, config_);
  config_.log_level = static_cast<std::uint32_t>(log::Level::Debug);
  publish(4);
  watch.poll();
  EXPECT_EQ(log::level(), log::Level::Debug);
  update_.give_back(*update_.take());
  config_.log_level = 1000;
  publish(5);
  watch.poll();
  EXPECT_EQ(log::level(), log::Level::Off);
}

}  // namespace
}  // namespace sluice::process
