// SPDX-License-Identifier: Apache-2.0
//
// Answers to health probes. The test plays both planes in the segment.
#include "telemetry/health.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "tests/unit/controlplane/lab.h"

namespace sluice::telemetry {
namespace {

constexpr std::uint64_t kNowNs = 100 * lab::kSecondNs;
constexpr std::uint64_t kTooLateNs = kNowNs + segment::kHeartbeatTimeoutNs + 1;

class HealthOfPlanes : public testing::Test {
 protected:
  HealthOfPlanes() {
    segment::ConfigBlock config;
    config.generation = 1;
    config.reactors = 2;
    layout().config.write(config);
    segment::start_heartbeat(layout().control_plane, kNowNs, kNowNs);
    segment::start_heartbeat(layout().data_plane, kNowNs, kNowNs);
    run(0, segment::ReactorState::Running);
    run(1, segment::ReactorState::Running);
  }
  segment::Layout& layout() { return segment_.layout(); }
  void run(std::uint32_t reactor, segment::ReactorState state) {
    layout().reactors[reactor].info.write({.state = state});
  }
  void expect_unready(const std::string& part, std::uint64_t now_ns = kNowNs) {
    const Health health = readiness(layout(), now_ns);
    EXPECT_FALSE(health.good);
    EXPECT_NE(health.text.find(part), std::string::npos) << health.text;
  }

  lab::TestSegment segment_{"health"};
};

TEST_F(HealthOfPlanes, a_control_plane_is_alive_while_its_loop_turns_whatever_the_data_plane_does) {
  layout().data_plane.pid = 0;
  EXPECT_TRUE(liveness(layout(), kNowNs).good);
  const Health late = liveness(layout(), kTooLateNs);
  EXPECT_FALSE(late.good);
  EXPECT_NE(late.text.find("control plane"), std::string::npos) << late.text;
  segment::beat(layout().control_plane, kTooLateNs);
  EXPECT_TRUE(liveness(layout(), kTooLateNs).good);
}

TEST_F(HealthOfPlanes, it_is_ready_when_all_reactors_run_and_both_planes_beat) {
  const Health ready = readiness(layout(), kNowNs);
  EXPECT_TRUE(ready.good) << ready.text;
  run(1, segment::ReactorState::Starting);
  expect_unready("reactor 1");
  run(1, segment::ReactorState::Stopped);
  expect_unready("reactor 1");
}

TEST_F(HealthOfPlanes, reactors_beyond_those_of_the_configuration_do_not_count) {
  segment::ConfigBlock config;
  config.reactors = 1;
  layout().config.write(config);
  run(1, segment::ReactorState::Unused);
  EXPECT_TRUE(readiness(layout(), kNowNs).good);
}

TEST_F(HealthOfPlanes, it_is_not_ready_when_no_device_has_a_link) {
  const auto set = [&](std::uint32_t reactor, segment::DeviceCondition condition) {
    layout().reactors[reactor].info.write({.state = segment::ReactorState::Running, .condition = condition});
  };
  set(0, segment::DeviceCondition::NoLink);
  EXPECT_TRUE(readiness(layout(), kNowNs).good) << "clients are reached through the other reactor's device";
  set(1, segment::DeviceCondition::NoLink);
  expect_unready("has no link");
  set(1, segment::DeviceCondition::Gone);
  expect_unready("was removed");
  set(1, segment::DeviceCondition::Broken);
  expect_unready("failed and is opened again");
  set(1, segment::DeviceCondition::Up);
  EXPECT_TRUE(readiness(layout(), kNowNs).good);
}

TEST_F(HealthOfPlanes, it_is_ready_for_the_client_that_is_the_other_end_of_its_link) {
  segment::ConfigBlock config;
  config.driver = segment::Driver::SoftRoce;
  config.reactors = 1;
  layout().reactors[0].info.write(
      {.state = segment::ReactorState::Running, .condition = segment::DeviceCondition::NoLink});
  for (const char* const ethdev : {"net_memif0,role=server", "net_vhost0,iface=/run/card.sock"}) {
    std::strcpy(config.ethdev, ethdev);
    layout().config.write(config);
    EXPECT_TRUE(readiness(layout(), kNowNs).good) << ethdev;
  }
  std::strcpy(config.ethdev, "net_af_packet0,iface=eth0");
  layout().config.write(config);
  expect_unready("has no link");
}

TEST_F(HealthOfPlanes, it_is_not_ready_while_it_is_being_drained) {
  layout().draining = 1;
  expect_unready("draining");
}

TEST_F(HealthOfPlanes, a_data_plane_that_is_silent_or_ended_makes_it_unready) {
  segment::beat(layout().control_plane, kTooLateNs);
  expect_unready("the data plane has sent no heartbeat", kTooLateNs);
  segment::beat(layout().data_plane, kTooLateNs);
  EXPECT_TRUE(readiness(layout(), kTooLateNs).good);
  layout().data_plane.pid = 0;
  expect_unready("no data plane", kTooLateNs);
}

TEST_F(HealthOfPlanes, a_control_plane_that_does_not_own_the_segment_is_not_ready) {
  layout().control_plane.pid = static_cast<std::uint32_t>(::getpid()) + 1;
  expect_unready("own the segment");
}

TEST_F(HealthOfPlanes, a_loop_that_stands_still_makes_it_unready_too) {
  segment::beat(layout().data_plane, kTooLateNs);
  expect_unready("loop of the control plane", kTooLateNs);
}

}  // namespace
}  // namespace sluice::telemetry
