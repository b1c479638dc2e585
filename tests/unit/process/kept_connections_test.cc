// SPDX-License-Identifier: Apache-2.0
//
// Channels of the kernel's connections, held for control planes that have exited.
#include "dataplane/process/control_plane_monitor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "dataplane/segment/ownership.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

class KeptConnectionsTest : public testing::Test {
 protected:
  KeptConnectionsTest() {
    EXPECT_EQ(::pipe2(pipe_, O_CLOEXEC | O_NONBLOCK), 0);
    start_control_plane();
    segment_.refresh(segment::Part::Control);
    data_plane_.emplace(segment_);
    kept_.emplace(segment_);
  }
  ~KeptConnectionsTest() override {
    segment::Segment::remove(name_);
    ::close(pipe_[0]);
  }

  void start_control_plane() {
    control_plane_ = std::make_unique<segment::ControlOwnership>(name_);
    control_plane_->take();
  }
  int send(const segment::KeptChannel& offer, int descriptor) {
    return segment::send_datagram(segment::kept_socket_of(name_), std::as_bytes(std::span(&offer, 1)),
                                  descriptor);
  }
  /// Passes the channel. Its only other descriptor is then the one in the datagram.
  void pass_channel(std::uint32_t epoch) {
    EXPECT_EQ(send({.epoch = epoch}, pipe_[1]), 0);
    ::close(pipe_[1]);
  }
  std::uint32_t confirmed() { return segment_.layout().kept_epoch; }
  /// Writes an entry for a connection that uses a channel into the table.
  void show_connection(std::uint32_t epoch, segment::ConnectionState state) {
    segment::ConnectionInfo info;
    info.state = state;
    info.queue_pair = 77;
    const segment::KeptConnection kept{epoch};
    std::memcpy(info.cm_state.data(), &kept, sizeof kept);
    segment_.layout().reactors[0].connections[0].write(info);
  }
  /// Returns the number of descriptors of the pipe's writing end in this process.
  int writing_ends() {
    const auto target = [](const std::filesystem::path& link) {
      std::error_code gone;  // the iterator's own descriptor may be closed
      return std::filesystem::read_symlink(link, gone);
    };
    const std::filesystem::path folder = "/proc/self/fd";
    const auto pipe = target(folder / std::to_string(pipe_[0]));
    int ends = -1;  // excludes the reading end
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      ends += target(entry.path()) == pipe;
    return ends;
  }
  /// Returns whether a descriptor of the writing end is open. The pipe's reader gets end-of-file when the
  /// last one is closed.
  bool is_held() {
    char byte;
    return ::read(pipe_[0], &byte, 1) != 0;
  }

  const std::string name_ = unique_name("kept");
  int pipe_[2];
  std::unique_ptr<segment::ControlOwnership> control_plane_;
  segment::Segment segment_{name_};
  std::optional<segment::DataPlaneOwnership> data_plane_;
  std::optional<KeptConnections> kept_;
};

TEST_F(KeptConnectionsTest, a_channel_that_was_passed_is_held_and_that_is_said) {
  kept_->poll();
  EXPECT_EQ(confirmed(), 0u);
  pass_channel(1);
  kept_->poll();
  EXPECT_EQ(confirmed(), 1u);
  kept_->poll();
  EXPECT_TRUE(is_held());
}

TEST_F(KeptConnectionsTest, a_channel_that_is_passed_twice_is_held_once) {
  EXPECT_EQ(send({.epoch = 1}, pipe_[1]), 0);
  pass_channel(1);
  kept_->poll();
  EXPECT_EQ(writing_ends(), 1);
  control_plane_.reset();
  kept_->poll();
  EXPECT_EQ(writing_ends(), 0);
}

TEST_F(KeptConnectionsTest, a_channel_whose_control_plane_is_gone_is_held_while_a_connection_needs_it) {
  show_connection(1, segment::ConnectionState::Open);
  pass_channel(1);
  kept_->poll();
  control_plane_.reset();
  kept_->poll();
  EXPECT_TRUE(is_held());
  show_connection(1, segment::ConnectionState::Closing);
  kept_->poll();
  EXPECT_TRUE(is_held());
  show_connection(1, segment::ConnectionState::Unused);
  kept_->poll();
  EXPECT_FALSE(is_held());
}

TEST_F(KeptConnectionsTest, a_channel_that_arrives_after_the_end_of_its_control_plane_is_held_too) {
  show_connection(1, segment::ConnectionState::Open);
  pass_channel(1);
  control_plane_.reset();
  kept_->poll();
  EXPECT_TRUE(is_held());
}

TEST_F(KeptConnectionsTest, a_successor_passes_its_own) {
  show_connection(1, segment::ConnectionState::Open);
  pass_channel(1);
  kept_->poll();
  control_plane_.reset();
  start_control_plane();
  kept_->poll();
  EXPECT_EQ(confirmed(), 0u);
  EXPECT_TRUE(is_held());
  EXPECT_EQ(send({.epoch = 2}, pipe_[0]), 0);
  kept_->poll();
  EXPECT_EQ(confirmed(), 2u);
  show_connection(2, segment::ConnectionState::Open);
  kept_->poll();
  EXPECT_FALSE(is_held());
}

TEST_F(KeptConnectionsTest,
       the_channel_of_one_that_is_stopped_goes_when_it_has_a_successor_and_nothing_needs_it) {
  pass_channel(1);
  kept_->poll();
  control_plane_->layout().control_plane.owner = std::uint64_t{2} << 32;  // whose lock is still held
  kept_->poll();
  EXPECT_FALSE(is_held());
}

TEST_F(KeptConnectionsTest, a_new_data_plane_holds_nothing_and_says_so) {
  pass_channel(1);
  kept_->poll();
  EXPECT_EQ(confirmed(), 1u);
  kept_.emplace(segment_);
  EXPECT_EQ(confirmed(), 0u);
}

TEST_F(KeptConnectionsTest, what_is_no_offer_is_dropped) {
  show_connection(0, segment::ConnectionState::Open);
  EXPECT_EQ(send({.magic = segment::kKeptChannelMagic + 1, .epoch = 1}, pipe_[1]), 0);
  EXPECT_EQ(send({.epoch = 0}, pipe_[1]), 0);
  EXPECT_EQ(send({.epoch = 1}, -1), 0);
  ::close(pipe_[1]);
  kept_->poll();
  EXPECT_EQ(confirmed(), 0u);
  EXPECT_FALSE(is_held());
}

TEST_F(KeptConnectionsTest, strangers_cannot_even_fill_the_socket) {
  if (::geteuid() != 0) GTEST_SKIP() << "Only root can become other users.";
  constexpr uid_t kStranger = 23453;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_stranger = ::setresgid(kStranger, kStranger, kStranger) == 0 &&
                             ::setresuid(kStranger, kStranger, kStranger) == 0;
    ::_exit(is_stranger && send({.epoch = 1}, pipe_[1]) == EACCES ? 0 : 1);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice::process
