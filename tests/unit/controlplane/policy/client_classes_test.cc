// SPDX-License-Identifier: Apache-2.0
#include "controlplane/policy/credit_policy.h"

#include <gtest/gtest.h>

namespace sluice::policy {
namespace {

TEST(ClientClasses, the_longest_prefix_decides) {
  const auto v4 = [](std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
    return PeerAddress::from_ipv4(a, b, c, d);
  };
  const std::vector<ClientClass> classes = {
      {.name = "default", .clients = {}, .credits = {}},
      {.name = "wide", .clients = {{v4(10, 0, 0, 0), 96 + 8}}, .credits = {}},
      {.name = "narrow", .clients = {{v4(10, 1, 0, 0), 96 + 16}, {v4(192, 0, 2, 7), 128}}, .credits = {}},
  };
  EXPECT_EQ(class_of(classes, v4(10, 2, 3, 4)), 1u);
  EXPECT_EQ(class_of(classes, v4(10, 1, 3, 4)), 2u);
  EXPECT_EQ(class_of(classes, v4(192, 0, 2, 7)), 2u);
  EXPECT_EQ(class_of(classes, v4(192, 0, 2, 8)), 0u);
}

}  // namespace
}  // namespace sluice::policy
