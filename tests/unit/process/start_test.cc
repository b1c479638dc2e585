// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "dataplane/base/setup_error.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

class StartTest : public testing::Test {
 protected:
  ~StartTest() override { segment::Segment::remove(name_); }

  static segment::ConfigBlock of_port(std::uint32_t port) {
    segment::ConfigBlock block;
    block.generation = 6;
    block.port = port;
    return block;
  }
  std::string problem(std::chrono::milliseconds limit = std::chrono::milliseconds(0)) {
    try {
      start_.reset();
      start_.emplace(wait_for_start(name_, limit, stop_));
    } catch (const SetupError& error) {
      return error.what();
    }
    return "none";
  }
  /// Calls wait_for_start while a control plane answers the start with `config`.
  std::string answered(segment::Segment& control, const segment::ConfigBlock& config) {
    std::atomic<bool> done{false};
    segment::Layout& layout = control.layout();
    const std::uint64_t before = layout.start_asked;
    std::thread control_plane([&] {
      while (!done && layout.start_asked == before) std::this_thread::yield();
      layout.config.write(config);
      layout.start_answered = layout.start_asked.load();
    });
    const std::string said = problem(std::chrono::minutes(1));
    done = true;
    control_plane.join();
    return said;
  }

  const std::string name_ = unique_name("segment");
  StopSignal stop_;
  std::optional<Start> start_;
};

TEST_F(StartTest, without_a_segment_it_says_what_to_start) {
  const std::string said = problem();
  EXPECT_NE(said.find("There is no shared segment /dev/shm/" + name_), std::string::npos) << said;
  EXPECT_NE(said.find("Start it with: sluice-controlplane --config FILE."), std::string::npos) << said;
}

TEST_F(StartTest, what_a_dead_control_plane_has_published_is_not_enough) {
  const auto segment = segment::Segment::open_or_create(name_);
  segment->layout().config.write(of_port(4711));
  const std::string said = problem();
  EXPECT_NE(said.find("No control plane has published a configuration in segment '" + name_ + "'"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("Start it with: sluice-controlplane --config FILE."), std::string::npos) << said;
}

TEST_F(StartTest, it_returns_what_is_published_for_it) {
  const auto segment = segment::Segment::open_or_create(name_);
  segment->layout().config.write(of_port(4711));
  ASSERT_EQ(answered(*segment, of_port(4712)), "none");
  EXPECT_EQ(start_->config->port, 4712u);
  EXPECT_TRUE(segment->data_plane_runs());
}

TEST_F(StartTest, the_answer_to_its_predecessor_is_none_for_it) {
  const auto segment = segment::Segment::open_or_create(name_);
  ASSERT_EQ(answered(*segment, of_port(4711)), "none");
  start_.reset();
  EXPECT_FALSE(segment->data_plane_runs());
  EXPECT_NE(problem(), "none");
  EXPECT_EQ(answered(*segment, of_port(4712)), "none");
  EXPECT_EQ(start_->config->port, 4712u);
}

TEST_F(StartTest, a_configuration_that_is_none_is_refused) {
  const auto segment = segment::Segment::open_or_create(name_);
  segment::ConfigBlock bad = of_port(4711);
  bad.reactors = 99;
  const std::string said = answered(*segment, bad);
  EXPECT_NE(said.find("cannot be used"), std::string::npos) << said;
  EXPECT_FALSE(segment->data_plane_runs());
}

TEST_F(StartTest, a_signal_ends_it) {
  const auto segment = segment::Segment::open_or_create(name_);
  stop_.request();
  EXPECT_NE(problem(std::chrono::minutes(1)), "none");
}

}  // namespace
}  // namespace sluice::process
