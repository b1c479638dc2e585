// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/segment_exports.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/controlplane/lab.h"

namespace sluice::mount {
namespace {

TEST(SegmentExports, handles_come_from_the_data_plane_and_permission_from_the_configuration) {
  lab::TestSegment segment("exports");
  SegmentExports exports(segment.layout());
  EXPECT_EQ(exports.mount("/a", lab::client(1)).status, MountStatus::NoEnt)
      << "no configuration is published";
  const config::Config config = config::parse(
      "[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/28\"]\n[[export]]\npath = \"/b\"\n", "f");
  segment.layout().config.write(config.block);
  EXPECT_EQ(exports.list(), (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(exports.mount("/a", lab::client(1)).status, MountStatus::ServerFault) << "no handle yet";
  segment::ExportInfo info{};
  info.in_use = 1;
  info.root_handle_bytes = 3;
  std::memset(info.root_handle, 0x42, 3);
  segment.layout().exports[0].write(info);
  const MountAnswer answer = exports.mount("/a", lab::client(1));
  EXPECT_EQ(answer.status, MountStatus::Ok);
  EXPECT_EQ(answer.handle, std::vector(3, std::byte{0x42}));
  EXPECT_EQ(exports.mount("/a", lab::client(16)).status, MountStatus::Acces);
  EXPECT_EQ(exports.mount("/c", lab::client(1)).status, MountStatus::NoEnt);
}

TEST(SegmentExports, an_export_for_hosts_by_name_is_mounted_by_address) {
  lab::TestSegment segment("exports");
  config::Config config = config::parse("[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/28\"]\n", "f");
  config.block.exports[0].host_count = 1;
  config.block.exports[0].hosts[0] = HostName("a");
  segment.layout().config.write(config.block);
  segment.layout().exports[0].write({.in_use = 1, .root_handle_bytes = 1});
  SegmentExports exports(segment.layout());
  EXPECT_EQ(exports.mount("/a", lab::client(1)).status, MountStatus::Ok) << "whoever asks by TCP has no name";
  EXPECT_EQ(exports.mount("/a", lab::client(16)).status, MountStatus::Acces);
}

}  // namespace
}  // namespace sluice::mount
