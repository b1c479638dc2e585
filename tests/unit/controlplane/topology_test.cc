// SPDX-License-Identifier: Apache-2.0
#include "controlplane/topology.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(Topology, cores_of_their_own_and_the_first_left_free) {
  using topology::Processor;
  const std::vector<Processor> four = {{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {3, 3, 0}};
  const auto two = topology::choose(four, 2);
  EXPECT_EQ(two[0].cpu, 1u);
  EXPECT_EQ(two[1].cpu, 2u);
  const std::vector<Processor> threads = {{0, 0, 0}, {2, 0, 0}, {1, 1, 0}, {3, 1, 0}};
  EXPECT_EQ(topology::choose(threads, 1)[0].cpu, 1u);
  EXPECT_EQ(topology::choose(threads, 2)[0].cpu, 1u);
  EXPECT_THROW(topology::choose(four, 5), SetupError);
  EXPECT_FALSE(topology::processors().empty());
}

}  // namespace
}  // namespace sluice
