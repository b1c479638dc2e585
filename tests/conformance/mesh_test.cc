// SPDX-License-Identifier: Apache-2.0
//
// After any sequence of events between two engines, every resource is free again and every call has ended
// once. The fuzz target connections_fuzz looks for sequences that these random ones do not contain.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/conformance/mesh_steps.h"

namespace sluice::conformance {
namespace {

constexpr std::uint32_t kRunsOfAMesh = 20;

class MeshTest : public testing::TestWithParam<std::uint32_t> {};

TEST_P(MeshTest, V1_143_V1_152_everything_is_back_after_any_run) {
  std::mt19937 random(GetParam());
  Mesh mesh(GetParam() % 2 == 0);
  for (std::uint32_t run = 0; run < kRunsOfAMesh; ++run) {
    std::vector<std::uint8_t> bytes(kStepBytes * 300);
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
    ASSERT_EQ(run_steps(mesh, bytes), "") << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MeshTest, testing::Range(1u, 21u));

TEST(MeshTest, without_disturbance_calls_of_every_shape_end) {
  Mesh mesh(false);
  for (std::uint32_t leg = 0; leg < Mesh::kLegs; ++leg) mesh.connect(leg, 1 + leg % 2);
  mesh.turns(20);
  for (std::uint32_t shape = 0; shape < kShapes; ++shape)
    for (const std::uint32_t bytes : {0u, 100u, 5000u, 59'999u})
      for (std::uint32_t leg = 0; leg < Mesh::kLegs; ++leg) {
        EXPECT_TRUE(mesh.submit(leg, Mesh::kClient, static_cast<Shape>(shape), bytes));
        mesh.turns(50);
        mesh.complete_later(Mesh::kServer);
        mesh.turns(50);
        EXPECT_EQ(mesh.under_way(leg, Mesh::kClient), 0u) << "shape " << shape << " bytes " << bytes;
      }
  EXPECT_EQ(mesh.finish(), "");
}

}  // namespace
}  // namespace sluice::conformance
