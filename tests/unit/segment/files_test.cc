// SPDX-License-Identifier: Apache-2.0
//
// The segment's file: existing ones, invalid ones, leftovers, and the heartbeat of its owner.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"
#include "dataplane/segment/version.h"

namespace sluice::segment {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

class SegmentFiles : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(path_); }

  /// The sentence of the exception; empty when there is none.
  template <typename Action>
  static std::string refusal(Action action) {
    try {
      action();
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  }
  std::string open_refusal() {
    return refusal([&] { ControlOwnership(name_).take(); });
  }
  std::string attach_refusal() {
    return refusal([&] { Segment::attach(name_); });
  }
  static std::size_t open_files() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
  }
  bool mapped() const {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      if (line.find(name_) != std::string::npos) return true;
    return false;
  }
  /// A file of `bytes` with the header of a segment, except for what `spoil` changes.
  template <typename Spoil>
  void make_file(off_t bytes, Spoil spoil) {
    struct {
      std::uint64_t magic = kMagic;
      std::uint32_t version = kLayoutVersion;
      std::uint32_t counters = kCounterCount;
    } head;
    spoil(head);
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(::ftruncate(fd, bytes), 0);
    ASSERT_EQ(::pwrite(fd, &head, 16, 0), 16);
    ::close(fd);
  }

  std::string name_ = "sluice-files-test-" + std::to_string(::getpid());
  std::string path_ = Segment::path_of(name_);
};

TEST_F(SegmentFiles, a_fresh_one_has_its_head_its_mode_and_nothing_else) {
  const mode_t before = ::umask(0);
  const auto segment = Segment::open_or_create(name_);
  ::umask(before);
  const Layout& layout = segment->layout();
  EXPECT_EQ(layout.magic, kMagic);
  EXPECT_EQ(layout.layout_version, kLayoutVersion);
  EXPECT_EQ(layout.counter_count, kCounterCount);
  EXPECT_EQ(layout.total_bytes, sizeof(Layout));
  EXPECT_EQ(layout.data_plane.pid, 0u);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
  EXPECT_EQ(status.st_size, static_cast<off_t>(sizeof(Layout)));
}

TEST_F(SegmentFiles, descriptors_and_memory_are_let_go_of) {
  const std::size_t before = open_files();
  {
    const auto owner = Segment::open_or_create(name_);
    const auto again = Segment::open_or_create(name_);
    const auto other = Segment::attach(name_);
    EXPECT_EQ(open_files(), before + 3);
    EXPECT_TRUE(mapped());
  }
  EXPECT_EQ(open_files(), before);
  EXPECT_FALSE(mapped());
}

TEST_F(SegmentFiles, one_that_is_being_made_has_no_name_that_could_stay_behind) {
  const auto names = [] {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) all.insert(entry.path());
    return all;
  };
  const std::set<std::string> before = names();
  const auto made = Segment::make(name_);
  for (const std::string& name : names())
    EXPECT_TRUE(before.count(name) > 0 || name.find(std::to_string(::getpid())) == std::string::npos) << name;
  EXPECT_NE(attach_refusal().find("There is no shared segment"), std::string::npos);
  EXPECT_TRUE(made->show(name_));
  EXPECT_EQ(attach_refusal(), "");
  EXPECT_FALSE(Segment::make(name_)->show(name_));
}

TEST_F(SegmentFiles, all_of_its_memory_is_there_before_it_is_shown) {
  const auto made = Segment::make(name_);
  struct stat status {};
  ASSERT_EQ(::fstat(made->descriptor(), &status), 0);
  EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, sizeof(Layout));
}

TEST_F(SegmentFiles, a_removed_one_is_gone) {
  Segment::open_or_create(name_);
  Segment::remove(name_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_NE(attach_refusal().find("There is no shared segment " + path_), std::string::npos);
}

TEST_F(SegmentFiles, each_defect_has_its_sentence) {
  make_file(sizeof(Layout) - 1, [](auto&) {});
  EXPECT_NE(attach_refusal().find("it has another size"), std::string::npos) << attach_refusal();
  make_file(sizeof(Layout) + 1, [](auto&) {});
  EXPECT_NE(attach_refusal().find("it has another size"), std::string::npos) << attach_refusal();
  make_file(sizeof(Layout), [](auto& head) { head.magic += 1; });
  EXPECT_NE(attach_refusal().find("it is not a Sluice segment"), std::string::npos) << attach_refusal();
  make_file(sizeof(Layout), [](auto& head) { head.version += 1; });
  EXPECT_NE(attach_refusal().find("it has another layout"), std::string::npos) << attach_refusal();
  make_file(sizeof(Layout), [](auto& head) { head.counters += 1; });
  EXPECT_NE(attach_refusal().find("it has another layout"), std::string::npos) << attach_refusal();
  make_file(sizeof(Layout), [](auto&) {});
  EXPECT_EQ(attach_refusal(), "");
  EXPECT_FALSE(Segment::open_or_create(name_)->created());
}

TEST_F(SegmentFiles, a_pipe_is_refused_by_both_planes_and_left_alone) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(attach_refusal().find("it is not a file"), std::string::npos);
  EXPECT_NE(open_refusal().find("it is not a file"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(SegmentFiles, a_folder_is_refused_and_left_alone) {
  std::filesystem::create_directory(path_);
  EXPECT_NE(open_refusal().find("Cannot use the shared segment"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(path_));
}

TEST_F(SegmentFiles, where_no_file_can_be_made_a_sentence_says_so) {
  const std::string said = refusal([&] { ControlOwnership(name_ + "/in-no-folder").take(); });
  EXPECT_NE(said.find("Cannot create the shared segment"), std::string::npos) << said;
}

/// The owner replaces the file of another release unless a plane lives with it.
class OtherRelease : public SegmentFiles {
 protected:
  void SetUp() override {
    owner_ = Segment::open_or_create(name_);
    owner_->layout().layout_version = kLayoutVersion + 1;
  }
  std::unique_ptr<Segment> owner_;
};

TEST_F(OtherRelease, whose_data_plane_lives_is_left_alone) {
  const DataPlaneOwnership lives(*owner_, name_);
  start_heartbeat(owner_->layout().data_plane, monotonic_ns() - 2 * kHeartbeatTimeoutNs, wall_ns());
  EXPECT_NE(open_refusal().find("A data plane of another release (process " + std::to_string(::getpid())),
            std::string::npos)
      << open_refusal();
}
TEST_F(OtherRelease, whose_control_plane_lives_is_left_alone) {
  owner_->layout().layout_version = kLayoutVersion;
  ControlOwnership lives(name_);
  lives.take();
  owner_->layout().layout_version = kLayoutVersion + 1;
  EXPECT_NE(open_refusal().find("A control plane of another release"), std::string::npos) << open_refusal();
}
TEST_F(OtherRelease, whose_planes_are_gone_is_replaced_however_young_their_last_beats) {
  start_heartbeat(owner_->layout().data_plane, monotonic_ns() + 60'000'000'000, wall_ns());
  start_heartbeat(owner_->layout().control_plane, monotonic_ns() + 60'000'000'000, wall_ns());
  ControlOwnership next(name_);
  next.take();
  EXPECT_EQ(attach_refusal(), "");
  EXPECT_EQ(epoch_of(Segment::attach(name_)->layout().control_plane.owner), 1u);
}
TEST_F(OtherRelease, that_is_about_to_be_replaced_gets_no_data_plane) {
  ControlOwnership next(name_);
  EXPECT_NE(refusal([&] { const DataPlaneOwnership late(*owner_, name_); }), "");
}
TEST_F(OtherRelease, that_is_no_segment_at_all_is_replaced_whatever_stands_in_it) {
  const DataPlaneOwnership lives(*owner_, name_);
  owner_->layout().magic = kMagic + 1;
  EXPECT_EQ(open_refusal(), "");
}
TEST_F(OtherRelease, that_is_cut_short_before_its_heartbeat_is_replaced) {
  ASSERT_EQ(::truncate(path_.c_str(), offsetof(Layout, data_plane) + sizeof(Heartbeat) - 1), 0);
  EXPECT_EQ(open_refusal(), "");
}

/// Of a release whose planes hold no locks: the heart decides.
class ReleaseWithoutLocks : public SegmentFiles {
 protected:
  void SetUp() override {
    owner_ = Segment::open_or_create(name_);
    start_heartbeat(owner_->layout().data_plane, monotonic_ns(), wall_ns());
    owner_->layout().layout_version = 17;
  }
  std::unique_ptr<Segment> owner_;
};

TEST_F(ReleaseWithoutLocks, whose_data_plane_lives_is_left_alone) {
  EXPECT_NE(open_refusal().find("of another release (process " + std::to_string(::getpid())),
            std::string::npos);
}
TEST_F(ReleaseWithoutLocks, whose_data_plane_has_a_beat_from_later_lives) {
  beat(owner_->layout().data_plane, monotonic_ns() + 60'000'000'000);
  EXPECT_NE(open_refusal().find("of another release"), std::string::npos);
}
TEST_F(ReleaseWithoutLocks, whose_heart_stands_still_is_replaced) {
  beat(owner_->layout().data_plane, monotonic_ns() - kHeartbeatTimeoutNs - 1'000'000);
  EXPECT_EQ(open_refusal(), "");
}
TEST_F(ReleaseWithoutLocks, whose_data_plane_has_ended_is_replaced) {
  owner_->layout().data_plane.pid = 0;
  EXPECT_EQ(open_refusal(), "");
}

TEST(Hearts, age_is_that_of_the_last_beat) {
  Heartbeat heart{};
  EXPECT_EQ(heartbeat_age_ns(heart, 5), kNever);
  EXPECT_EQ(version_of(heart), "");
  start_heartbeat(heart, 1000, 77);
  EXPECT_EQ(heart.started_ns, 77u);
  EXPECT_EQ(version_of(heart), kVersion);
  EXPECT_EQ(heart.beats, 1u);
  EXPECT_EQ(heart.pid, static_cast<std::uint32_t>(::getpid()));
  EXPECT_EQ(heartbeat_age_ns(heart, 1003), 3u);
  EXPECT_EQ(heartbeat_age_ns(heart, 1000), 0u);
  EXPECT_EQ(heartbeat_age_ns(heart, 999), 0u);
  beat(heart, 2000);
  EXPECT_EQ(heart.beats, 2u);
  EXPECT_EQ(heartbeat_age_ns(heart, 2001), 1u);
}

TEST(Hearts, a_version_without_an_end_is_read_to_the_end_of_its_field) {
  Heartbeat heart{};
  for (auto& character : heart.version) character = 'x';
  EXPECT_EQ(version_of(heart), std::string(heart.version.size(), 'x'));
}

TEST(Hearts, one_is_alive_until_the_timeout_is_over) {
  Heartbeat heart{};
  start_heartbeat(heart, 1000, 77);
  EXPECT_TRUE(alive(heart, 1000 + kHeartbeatTimeoutNs));
  EXPECT_FALSE(alive(heart, 1001 + kHeartbeatTimeoutNs));
}

}  // namespace
}  // namespace sluice::segment
