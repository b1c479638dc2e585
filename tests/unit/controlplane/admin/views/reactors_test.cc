// SPDX-License-Identifier: Apache-2.0
//
// Views of reactors and procedures, on a segment that the test fills.
#include "controlplane/admin/views/reactors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

class Reactors : public ::testing::Test {
 protected:
  void set(std::string_view name, std::uint64_t value) {
    for (std::size_t i = 0; i < segment::kReactorCounterCount; ++i)
      if (segment::kReactorCounters[i].name == name) segment.layout().reactors[0].counters[i] = value;
  }
  lab::TestSegment segment{"reactors"};
  config::Config config = lab::configuration("");
};

TEST_F(Reactors, time_is_shown_by_stage_and_control_passes_are_not_in_the_busy_share) {
  segment.layout().reactors[0].info.write({.state = segment::ReactorState::Running});
  set("device_ns", 100);
  set("calls_ns", 250);
  set("services_ns", 30);
  set("upstreams_ns", 20);
  set("control_ns", 500);
  set("idle_ns", 100);
  const Json shown = reactors(segment.layout(), config.block).at(0);
  EXPECT_EQ(shown["busy_ns"], 400);
  EXPECT_EQ(shown["idle_ns"], 100);
  EXPECT_DOUBLE_EQ(shown["busy_percent"].get<double>(), 80);
  const Json& stages = shown["stages_percent"];
  EXPECT_DOUBLE_EQ(stages["device"].get<double>(), 10);
  EXPECT_DOUBLE_EQ(stages["calls"].get<double>(), 25);
  EXPECT_DOUBLE_EQ(stages["control"].get<double>(), 50);
  EXPECT_DOUBLE_EQ(stages["idle"].get<double>(), 10);
}

TEST_F(Reactors, a_reactor_that_has_done_nothing_yet_is_not_busy) {
  segment.layout().reactors[0].info.write({.state = segment::ReactorState::Starting});
  EXPECT_EQ(reactors(segment.layout(), config.block).at(0)["busy_percent"], 0.0);
}

TEST_F(Reactors, procedures_show_calls_and_time_of_all_reactors_by_class) {
  config.block.reactors = 2;
  config.block.class_count = 2;
  std::strcpy(config.block.class_names[1].data(), "gold");
  for (std::uint32_t reactor = 0; reactor < 2; ++reactor) {
    segment::CallTable& table = segment.layout().reactors[reactor].calls;
    table.info[3] = {.program = 100003, .version = 3, .procedure = 6};
    std::strcpy(table.info[3].program_name, "nfs");
    std::strcpy(table.info[3].procedure_name, "read");
    table.use[1][3].calls[0] = 10;
    table.use[1][3].calls[1] = 2;
    table.use[1][3].time_ns = 36'000;
    table.procedures = 5;
  }
  const Json shown = procedures(segment.layout(), config.block);
  ASSERT_EQ(shown.size(), 1u) << shown;
  EXPECT_EQ(shown[0]["class"], "gold");
  EXPECT_EQ(shown[0]["program"], "nfs");
  EXPECT_EQ(shown[0]["procedure"], "read");
  EXPECT_EQ(shown[0]["calls"], 24);
  EXPECT_EQ(shown[0]["time_ns"], 72'000);
  EXPECT_DOUBLE_EQ(shown[0]["us_per_call"].get<double>(), 3);
}

}  // namespace
}  // namespace sluice::admin
