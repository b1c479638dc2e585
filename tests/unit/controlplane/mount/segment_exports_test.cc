// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/segment_exports.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/controlplane/lab.h"

namespace sluice::mount {
namespace {

/// Exports of a segment, which answer at once.
class SegmentExportsTest : public testing::Test {
 protected:
  MountAnswer mount(const std::string& path, std::uint8_t client) {
    MountAnswer result;
    exports_.mount(path, {lab::client(client)}, [&](const MountAnswer& answer) { result = answer; });
    return result;
  }
  std::vector<std::string> list(std::uint8_t client) {
    std::vector<std::string> result;
    exports_.list({lab::client(client)}, [&](const std::vector<std::string>* paths) { result = *paths; });
    return result;
  }

  lab::TestSegment segment_{"exports"};
  SegmentExports exports_{segment_.layout()};
};

TEST_F(SegmentExportsTest, handles_come_from_the_data_plane_and_permission_from_the_configuration) {
  EXPECT_EQ(mount("/a", 1).status, MountStatus::NoEnt) << "no configuration is published";
  const config::Config config = config::parse(
      "[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/28\"]\n[[export]]\npath = \"/b\"\n", "f");
  segment_.layout().config.write(config.block);
  EXPECT_EQ(mount("/a", 1).status, MountStatus::ServerFault) << "no handle yet";
  segment::ExportInfo info{};
  info.in_use = 1;
  info.root_handle_bytes = 3;
  std::memset(info.root_handle, 0x42, 3);
  segment_.layout().exports[0].write(info);
  const MountAnswer answer = mount("/a", 1);
  EXPECT_EQ(answer.status, MountStatus::Ok);
  EXPECT_EQ(answer.handle, std::vector(3, std::byte{0x42}));
  EXPECT_EQ(mount("/a", 16).status, MountStatus::Acces);
  EXPECT_EQ(mount("/c", 1).status, MountStatus::NoEnt);
}

TEST_F(SegmentExportsTest, each_client_is_shown_what_it_may_mount) {
  const config::Config config = config::parse(
      "[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/28\"]\n[[export]]\npath = \"/b\"\n", "f");
  segment_.layout().config.write(config.block);
  EXPECT_EQ(list(1), (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(list(16), std::vector<std::string>{"/b"});
}

TEST_F(SegmentExportsTest, an_export_for_hosts_by_name_is_mounted_by_address) {
  config::Config config = config::parse("[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/28\"]\n", "f");
  config.block.exports[0].host_count = 1;
  config.block.exports[0].hosts[0] = HostName("a");
  segment_.layout().config.write(config.block);
  segment_.layout().exports[0].write({.in_use = 1, .root_handle_bytes = 1});
  EXPECT_EQ(mount("/a", 1).status, MountStatus::Ok) << "whoever asks by TCP has no name";
  EXPECT_EQ(mount("/a", 16).status, MountStatus::Acces);
}

}  // namespace
}  // namespace sluice::mount
