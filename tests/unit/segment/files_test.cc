// SPDX-License-Identifier: Apache-2.0
//
// Files of the segment: existing, invalid and obsolete files, and the heartbeat of the owner.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/layout.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/part_file.h"
#include "dataplane/segment/segment.h"
#include "dataplane/segment/version.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::segment {
namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

class SegmentFiles : public testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& path : {path_, data_path_, base_path_of(name_)})
      std::filesystem::remove_all(path);
  }

  /// Returns the message of the exception; empty if there is none.
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
  /// Creates a file of `bytes` with the head of the control plane's part, modified by `spoil`.
  template <typename Spoil>
  void make_file(off_t bytes, Spoil spoil) {
    PartHead head{};
    head.magic = kMagic;
    head.layout_version = kLayoutVersion;
    head.part = Part::Control;
    head.sections = sections_of(Part::Control);
    spoil(head);
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(::ftruncate(fd, bytes), 0);
    ASSERT_EQ(::pwrite(fd, static_cast<const void*>(&head), sizeof head, 0),
              static_cast<ssize_t>(sizeof head));
    ::close(fd);
  }

  std::string name_ = "sluice-files-test-" + std::to_string(::getpid());
  std::string path_ = path_of(name_, Part::Control);
  std::string data_path_ = path_of(name_, Part::Data);
};

TEST_F(SegmentFiles, a_fresh_one_has_its_head_its_mode_and_nothing_else) {
  const mode_t before = ::umask(0);
  const auto segment = Segment::open_or_create(name_);
  ::umask(before);
  EXPECT_EQ(segment->data_part().head.part, Part::Data);
  EXPECT_EQ(segment->layout().data_plane.pid, 0u);
  for (const Part part : {Part::Control, Part::Data}) {
    const PartHead& head = part == Part::Control ? segment->control_part().head : segment->data_part().head;
    EXPECT_EQ(head.magic, kMagic);
    EXPECT_EQ(head.layout_version, kLayoutVersion);
    EXPECT_EQ(head.part, part);
    EXPECT_EQ(head.total_bytes, bytes_of(part));
    struct stat status {};
    ASSERT_EQ(::stat(path_of(name_, part).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0640u);
    EXPECT_EQ(status.st_size, static_cast<off_t>(bytes_of(part)));
  }
}

TEST_F(SegmentFiles, descriptors_and_memory_are_let_go_of) {
  const std::size_t before = open_files();
  {
    const auto owner = Segment::open_or_create(name_);
    const auto again = Segment::open_or_create(name_);
    const auto other = Segment::attach(name_);
    EXPECT_EQ(open_files(), before + 6);
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
  PartFile made = PartFile::make(name_, Part::Control);
  for (const std::string& name : names())
    EXPECT_TRUE(before.count(name) > 0 || name.find(std::to_string(::getpid())) == std::string::npos) << name;
  EXPECT_NE(attach_refusal().find("There is no shared segment"), std::string::npos);
  EXPECT_TRUE(made.show());
  EXPECT_EQ(attach_refusal(), "");
  EXPECT_FALSE(PartFile::make(name_, Part::Control).show());
}

TEST_F(SegmentFiles, all_of_its_memory_is_there_before_it_is_shown) {
  for (const Part part : {Part::Control, Part::Data}) {
    const PartFile made = PartFile::make(name_, part);
    struct stat status {};
    ASSERT_EQ(::fstat(made.descriptor(), &status), 0);
    EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, bytes_of(part));
  }
}

TEST_F(SegmentFiles, a_removed_one_is_gone) {
  Segment::open_or_create(name_);
  Segment::remove(name_);
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_NE(attach_refusal().find("There is no shared segment " + path_), std::string::npos);
}

TEST_F(SegmentFiles, each_defect_has_its_sentence) {
  make_file(sizeof(ControlPart) / 2, [](auto&) {});
  EXPECT_NE(attach_refusal().find("it is truncated"), std::string::npos) << attach_refusal();
  make_file(sizeof(ControlPart), [](auto& head) { head.magic += 1; });
  EXPECT_NE(attach_refusal().find("it is not a Sluice segment"), std::string::npos) << attach_refusal();
  make_file(sizeof(ControlPart), [](auto& head) { head.layout_version += 1; });
  EXPECT_NE(attach_refusal().find("it has another layout"), std::string::npos) << attach_refusal();
  make_file(sizeof(ControlPart), [](auto& head) { head.part = Part::Data; });
  EXPECT_NE(attach_refusal().find("it is not a Sluice segment"), std::string::npos) << attach_refusal();
  make_file(sizeof(ControlPart), [](auto&) {});
  EXPECT_EQ(attach_refusal(), "");
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

/// A plane replaces its file of another release, unless a plane of that release runs.
class OtherRelease : public SegmentFiles {
 protected:
  void SetUp() override {
    owner_ = Segment::open_or_create(name_);
    owner_->control_part().head.layout_version = kLayoutVersion + 1;
    owner_->data_part().head.layout_version = kLayoutVersion + 1;
  }
  std::string data_refusal() {
    return refusal([&] {
      Segment segment(name_);
      const DataPlaneOwnership ownership(segment);
    });
  }
  Owned<Segment> owner_;
};

TEST_F(OtherRelease, whose_data_plane_lives_is_left_alone) {
  owner_->layout().data_plane.pid = static_cast<std::uint32_t>(::getpid());
  file_lock::take(owner_->file(Part::Data)->descriptor(), kDataPlaneLock);
  EXPECT_NE(open_refusal().find("A data plane of another release (process " + std::to_string(::getpid())),
            std::string::npos)
      << open_refusal();
  EXPECT_NE(data_refusal().find("Another data plane (process " + std::to_string(::getpid())),
            std::string::npos)
      << data_refusal();
}
TEST_F(OtherRelease, whose_control_plane_lives_is_left_alone) {
  owner_->control_part().head.layout_version = kLayoutVersion;
  ControlOwnership lives(name_);
  lives.take();
  owner_->control_part().head.layout_version = kLayoutVersion + 1;
  EXPECT_NE(open_refusal().find("A control plane of another release"), std::string::npos) << open_refusal();
}
TEST_F(OtherRelease, whose_planes_are_gone_is_replaced_however_young_their_last_beats) {
  start_heartbeat(owner_->layout().data_plane, monotonic_ns() + 60'000'000'000, wall_ns());
  start_heartbeat(owner_->layout().control_plane, monotonic_ns() + 60'000'000'000, wall_ns());
  ControlOwnership next(name_);
  next.take();
  EXPECT_EQ(attach_refusal(), "");
  EXPECT_EQ(epoch_of(Segment::attach(name_)->layout().control_plane.owner), 1u);
  EXPECT_EQ(next.segment().refresh(Part::Data), Segment::Found::Unusable);
  EXPECT_NE(next.segment().problem().find(data_path_), std::string::npos) << next.segment().problem();
  EXPECT_EQ(data_refusal(), "");
  EXPECT_EQ(next.segment().refresh(Part::Data), Segment::Found::Appeared);
}
TEST_F(OtherRelease, that_is_about_to_be_replaced_gets_no_data_plane) {
  ControlOwnership next(name_);
  EXPECT_NE(data_refusal(), "");
  next.take();
  EXPECT_EQ(data_refusal(), "");
}
TEST_F(OtherRelease, that_is_no_segment_at_all_is_replaced_whatever_stands_in_it) {
  file_lock::take(owner_->file(Part::Data)->descriptor(), kDataPlaneLock);
  owner_->control_part().head.magic = kMagic + 1;
  owner_->data_part().head.magic = kMagic + 1;
  EXPECT_EQ(open_refusal(), "");
}
TEST_F(OtherRelease, that_is_cut_short_is_replaced) {
  ASSERT_EQ(::truncate(path_.c_str(), 60), 0);
  ASSERT_EQ(::truncate(data_path_.c_str(), 60), 0);
  EXPECT_EQ(open_refusal(), "");
  EXPECT_EQ(data_refusal(), "");
}

/// A running data plane started with a file of the control plane, and cannot use another one.
TEST_F(SegmentFiles, one_that_is_gone_while_its_data_plane_runs_is_not_made_anew) {
  ControlOwnership(name_).take();
  const auto segment = Segment::attach(name_);
  {
    const DataPlaneOwnership runs(*segment);
    std::filesystem::remove(path_);
    EXPECT_NE(open_refusal().find("whose file " + path_ + " is gone. Stop it first"), std::string::npos)
        << open_refusal();
  }
  EXPECT_EQ(open_refusal(), "");
}

TEST_F(SegmentFiles, of_the_other_plane_cannot_be_written) {
  ControlOwnership control(name_);
  control.take();
  const auto segment = Segment::attach(name_);
  const DataPlaneOwnership data(*segment);
  control.segment().refresh(Part::Data);
  EXPECT_DEATH(segment->layout().reading_epoch = 1, "");
  EXPECT_DEATH(control.layout().generation_applied = 1, "");
  for (Segment* const of : {segment.get(), &control.segment()})
    for (const Part part : {Part::Control, Part::Data}) {
      const bool own = (part == Part::Data) == (of == segment.get());
      EXPECT_EQ(::ftruncate(of->file(part)->descriptor(), static_cast<off_t>(bytes_of(part))) == 0, own);
    }
}

/// After one part is recreated, previous entries are neither repeated nor block new ones.
TEST_F(SegmentFiles, a_new_part_goes_on_where_the_older_one_is) {
  auto control = std::make_unique<ControlOwnership>(name_);
  control->take();
  DesiredStateWriter(control->layout().reactors[2].wanted).grant(7, 4711, {.credits = 3});
  Command command;
  command.id = 1;
  for (int round = 0; round < 3; ++round) {
    std::filesystem::remove(data_path_);
    const auto segment = Segment::attach(name_);
    const DataPlaneOwnership data(*segment);
    control->segment().refresh(Part::Data);
    ReactorArea& of_control = control->layout().reactors[2];
    ReactorArea& of_data = segment->layout().reactors[2];
    EXPECT_EQ(of_data.incarnations, 4711u);
    EXPECT_EQ(of_data.commands.size(), 0u);
    EXPECT_EQ(of_data.wanted.hints.size(), 0u);
    EXPECT_TRUE(of_control.commands.push(command));
    EXPECT_TRUE(of_data.commands.pop(command));
    EXPECT_TRUE(of_control.commands.push(command));  // remains in the ring
    Event event;
    for (int i = 0; i < 5; ++i)
      EXPECT_TRUE(of_data.events.push({.type = EventType::ConnectionUp, .peer = {}}));
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(of_control.events.pop(event));
    EXPECT_EQ(of_control.events.size(), 1u);
  }
  control.reset();
  std::filesystem::remove(path_);
  ControlOwnership next(name_);
  next.take();
  ReactorArea& area = next.layout().reactors[2];
  EXPECT_EQ(area.events.size(), 0u);
  EXPECT_EQ(area.commands.size(), 0u);
  EXPECT_TRUE(area.commands.push(command));
  EXPECT_EQ(area.commands.size(), 1u);
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

TEST_F(SegmentFiles, a_file_that_is_open_for_reading_is_not_given_its_name) {
  ControlOwnership(name_).take();
  auto file = PartFile::open(name_, Part::Control, PartFile::Access::Read);
  ASSERT_TRUE(file);
  const CountedInvariants counted;
  EXPECT_FALSE(file->show());
  EXPECT_EQ(counted.failed(Invariant::segment_state), 1u);
}

}  // namespace
}  // namespace sluice::segment
