// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/export_sources.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>

#include "tests/unit/controlplane/lab.h"

namespace sluice::mount {
namespace {

using namespace onc_rpc;

/// Exports of a segment, which answer immediately.
class SegmentExportsTest : public testing::Test {
 protected:
  MountAnswer mount(const std::string& path, std::uint8_t client) {
    MountAnswer result;
    exports_.mount(path, {sluice::lab::client(client)}, [&](const MountAnswer& answer) { result = answer; });
    return result;
  }
  std::vector<std::string> list(std::uint8_t client) {
    std::vector<std::string> result;
    exports_.list({sluice::lab::client(client)},
                  [&](const std::vector<std::string>* paths) { result = *paths; });
    return result;
  }

  sluice::lab::TestSegment segment_{"exports"};
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

/// Exports /a and /b/c for different clients. The test plays the data plane.
class MountedDirectoriesTest : public SegmentExportsTest {
 protected:
  MountedDirectoriesTest() {
    segment_.layout().config.write(
        config::parse("[[export]]\npath = \"/a\"\nclients = [\"192.0.2.0/28\"]\n"
                      "[[export]]\npath = \"/b/c\"\nclients = [\"192.0.2.16/28\"]\n",
                      "f")
            .block);
    segment::ExportInfo info{.in_use = 1, .root_handle_bytes = 1};
    info.root_handle[0] = std::byte{0x42};
    segment_.layout().exports[0].write(info);
  }
  /// Mounts a path. Returns the status; nothing while the client waits.
  std::optional<MountStatus> begin(const std::string& path, std::uint8_t client = 1) {
    last_ = std::make_shared<std::optional<MountAnswer>>();
    exports_.mount(path, {sluice::lab::client(client), now_ns_},
                   [at = last_](const MountAnswer& answer) { *at = answer; });
    return *last_ ? std::optional((*last_)->status) : std::nullopt;
  }
  segment::PathQuestion question() { return segment_.layout().path_question.read().value(); }
  void answer(std::uint32_t status, std::uint8_t handle = 0) {
    segment::PathAnswer answer{
        .number = question().number, .status = status, .handle_bytes = handle != 0 ? 1u : 0u};
    answer.handle[0] = std::byte{handle};
    segment_.layout().path_answer.write(answer);
    exports_.poll(PollSet(), now_ns_);
  }

  std::shared_ptr<std::optional<MountAnswer>> last_;
  std::uint64_t now_ns_ = 1'000;
};

TEST_F(MountedDirectoriesTest, the_root_has_many_spellings) {
  for (const char* path : {"/a", "/a/", "//a", "/a/.", "/./a//"})
    EXPECT_EQ(begin(path), MountStatus::Ok) << path;
  EXPECT_EQ(begin("a"), MountStatus::NoEnt);
  EXPECT_EQ(begin(""), MountStatus::NoEnt);
  EXPECT_EQ(begin("/ab"), MountStatus::NoEnt);
}

TEST_F(MountedDirectoriesTest, the_data_plane_answers_for_a_directory) {
  EXPECT_EQ(begin("/a//pvc-1234/./x/"), std::nullopt);
  EXPECT_STREQ(question().path, "/a/pvc-1234/x");
  EXPECT_EQ(question().export_number, 0u);
  answer(0, 0x17);
  ASSERT_TRUE(*last_);
  EXPECT_EQ((*last_)->status, MountStatus::Ok);
  EXPECT_EQ((*last_)->handle, std::vector{std::byte{0x17}});
  for (const std::uint32_t status : {2u, 20u, 63u}) {
    EXPECT_EQ(begin("/a/x"), std::nullopt);
    answer(status);
    EXPECT_EQ(static_cast<std::uint32_t>((*last_)->status), status);
  }
  EXPECT_EQ(begin("/a/x"), std::nullopt);
  answer(4711);
  EXPECT_EQ((*last_)->status, MountStatus::ServerFault);
}

TEST_F(MountedDirectoriesTest, the_export_decides_who_has_access) {
  EXPECT_EQ(begin("/a/x", 17), MountStatus::Acces);
  EXPECT_EQ(begin("/b/c/x", 1), MountStatus::Acces);
  EXPECT_EQ(begin("/b/c/x", 17), std::nullopt);
  EXPECT_EQ(question().export_number, 1u);
  EXPECT_EQ(begin("/b/cc", 17), MountStatus::NoEnt);
  EXPECT_EQ(begin("/b", 17), MountStatus::NoEnt);
}

TEST_F(MountedDirectoriesTest, parents_are_walked_in_the_export_that_the_path_begins_with) {
  EXPECT_EQ(begin("/.."), MountStatus::NoEnt);
  EXPECT_EQ(begin("/../a"), MountStatus::NoEnt);
  EXPECT_EQ(begin("/a/../b/c", 17), MountStatus::Acces) << "/a is not for this client";
  EXPECT_EQ(begin("/a/..x/in"), std::nullopt);
  answer(2);
  EXPECT_EQ(begin("/a/in/../../a"), std::nullopt);
  EXPECT_EQ(question().export_number, 0u);
  EXPECT_STREQ(question().path, "/a/in/../../a") << "the data plane refuses to leave the export";
}

TEST_F(MountedDirectoriesTest, clients_wait_in_a_queue_until_a_time_limit) {
  begin("/a/first");
  const auto first = last_;
  begin("/a/second");
  const auto second = last_;
  EXPECT_STREQ(question().path, "/a/first");
  exports_.poll(PollSet(), now_ns_);
  EXPECT_FALSE(*first);
  answer(2);
  EXPECT_TRUE(*first);
  EXPECT_FALSE(*second) << "the answer was for the other question";
  EXPECT_STREQ(question().path, "/a/second");
  exports_.poll(PollSet(), now_ns_ + kPathAnswerNs);
  ASSERT_TRUE(*second);
  EXPECT_EQ((*second)->status, MountStatus::ServerFault);
}

TEST_F(MountedDirectoriesTest, one_network_has_a_part_of_the_queue) {
  for (std::size_t i = 0; i < kMaxWaitingOfNetwork; ++i) EXPECT_EQ(begin("/a/x"), std::nullopt);
  EXPECT_EQ(begin("/a/x"), MountStatus::ServerFault);
  EXPECT_EQ(begin("/a/x", 2), std::nullopt);
}

}  // namespace
}  // namespace sluice::mount
