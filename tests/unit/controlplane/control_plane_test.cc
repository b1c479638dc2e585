// SPDX-License-Identifier: Apache-2.0
//
// Tests of a complete control plane, without a data plane.
#include "controlplane/control_plane.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::controlplane {
namespace {

class Loop : public ::testing::Test {
 protected:
  ~Loop() override {
    for (const char* ending : {"", ".lock"}) ::unlink((socket_ + ending).c_str());
  }
  config::Config configuration() const {
    config::Config config = lab::configuration("[metrics]\naddress = \"\"\n[mount]\nenabled = false\n");
    config.segment = "sluice-loop-test-" + std::to_string(::getpid());
    config.admin_socket = socket_;
    return config;
  }

  const lab::TestSegment segment_{"loop"};
  const std::string socket_ = testing::TempDir() + "sluice-loop-test-" + std::to_string(::getpid());
};

TEST_F(Loop, a_control_plane_belongs_to_the_thread_that_polls_it) {
  ControlPlane plane(configuration());
  EXPECT_NE(plane.poll(0), ControlPlane::Pass::NotOurs);
  std::thread([&plane] {
    const CountedInvariants counted;
    plane.set_draining(false);
    EXPECT_EQ(counted.failed(Invariant::object_owner), 1u);
    plane.set_log_level("info");
    EXPECT_EQ(counted.failed(Invariant::object_owner), 2u);
    EXPECT_FALSE(plane.close_connection(0, 0));
    EXPECT_EQ(counted.failed(Invariant::object_owner), 3u);
  }).join();
  const CountedInvariants counted;
  plane.set_draining(false);
  EXPECT_NE(plane.poll(0), ControlPlane::Pass::NotOurs);
  EXPECT_EQ(counted.failed(Invariant::object_owner), 0u);
}

}  // namespace
}  // namespace sluice::controlplane
