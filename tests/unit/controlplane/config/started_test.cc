// SPDX-License-Identifier: Apache-2.0
#include "controlplane/config/changes.h"

#include <gtest/gtest.h>

namespace sluice::config {
namespace {

using Keys = std::vector<std::string>;

Config of(const std::string& text) {
  return parse(text, "test");
}

TEST(BesideDataPlane, the_same_file_changes_nothing) {
  const std::string text = "[reactor]\ncount = 2\ncpus = [0, 1]\n[transport]\ncredits = 32\n";
  const BesideDataPlane beside = beside_data_plane(of(text), of(text).block, {});
  EXPECT_EQ(beside.later, Keys{});
  EXPECT_EQ(beside.config.block.credits, 32u);
}

TEST(BesideDataPlane, what_a_start_brings_into_force_stays_as_it_was) {
  const Config before = of("[reactor]\ncount = 1\n[transport]\ncredits = 64\nport = 20049\n");
  const Config read =
      of("log_level = \"debug\"\n[reactor]\ncount = 2\n[transport]\ncredits = 32\nport = 20050\n"
         "[[export]]\npath = \"/more\"\n");
  const BesideDataPlane beside = beside_data_plane(read, before.block, {});
  EXPECT_EQ(beside.later, (Keys{"reactor.count", "transport.credits", "transport.port"}));
  EXPECT_EQ(beside.config.block.reactors, 1u);
  EXPECT_EQ(beside.config.block.credits, 64u);
  EXPECT_EQ(beside.config.block.port, 20049u);
}

TEST(BesideDataPlane, the_rest_is_as_the_file_has_it) {
  const Config before = of("[[export]]\npath = \"/one\"\n");
  const Config read = of(
      "log_level = \"debug\"\n[transport]\ncredits = 32\n[mount]\nport = 7\n[[export]]\npath = \"/two\"\n");
  const BesideDataPlane beside = beside_data_plane(read, before.block, {});
  EXPECT_EQ(beside.config.log_level, "debug");
  EXPECT_EQ(beside.config.block.log_level, read.block.log_level);
  EXPECT_EQ(beside.config.mount_port, 7);
  EXPECT_STREQ(beside.config.block.exports[0].path, "/two");
}

}  // namespace
}  // namespace sluice::config
