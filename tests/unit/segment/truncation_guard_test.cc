// SPDX-License-Identifier: Apache-2.0
//
// A plane that truncates its own file does not crash the readers of the file.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"

namespace sluice::segment {
namespace {

class CutSegment : public testing::Test {
 protected:
  CutSegment() { owner_->layout().data_plane.pid = 77; }
  ~CutSegment() override { Segment::remove(name_); }

  void cut(Part part, std::uintmax_t bytes) { std::filesystem::resize_file(path_of(name_, part), bytes); }

  const std::string name_ = "sluice-cut-test-" + std::to_string(::getpid());
  const Owned<Segment> owner_ = Segment::open_or_create(name_);
  const Owned<Segment> reader_ = Segment::attach(name_);
};

TEST_F(CutSegment, reads_as_zeros_to_others) {
  EXPECT_EQ(reader_->layout().data_plane.pid, 77u);
  EXPECT_FALSE(reader_->was_truncated(Part::Data));
  cut(Part::Data, 0);
  EXPECT_EQ(reader_->layout().data_plane.pid, 0u);
  EXPECT_TRUE(reader_->was_truncated(Part::Data));
  EXPECT_FALSE(reader_->was_truncated(Part::Control));
  ConfigBlock config;
  config.generation = 9;
  owner_->layout().config.write(config);
  EXPECT_EQ(reader_->layout().config.read_copy()->generation, 9u);
}

TEST_F(CutSegment, is_no_longer_believed_where_it_was_left) {
  cut(Part::Data, sizeof(PartHead));
  EXPECT_EQ(reader_->layout().reactors[kMaxReactors - 1].info.sequence(), 0u);
  EXPECT_EQ(reader_->layout().data_plane.pid, 0u);
  cut(Part::Data, bytes_of(Part::Data));
  EXPECT_EQ(reader_->layout().data_plane.pid, 0u);
  EXPECT_EQ(reader_->refresh(Part::Data), Segment::Found::Unusable);
  EXPECT_NE(reader_->problem().find("was truncated. Restart sluice-dataplane"), std::string::npos)
      << reader_->problem();
}

TEST_F(CutSegment, of_the_control_plane_too) {
  cut(Part::Control, 0);
  EXPECT_EQ(reader_->layout().config.sequence(), 0u);
  EXPECT_TRUE(reader_->was_truncated(Part::Control));
  EXPECT_EQ(reader_->layout().data_plane.pid, 77u);
}

TEST_F(CutSegment, goes_on_with_the_file_that_a_new_plane_makes) {
  cut(Part::Data, 0);
  EXPECT_EQ(reader_->layout().data_plane.pid, 0u);
  const auto segment = Segment::attach(name_);
  const DataPlaneOwnership next(*segment);
  segment->layout().data_plane.pid = 78;
  EXPECT_EQ(reader_->refresh(Part::Data), Segment::Found::Replaced);
  EXPECT_FALSE(reader_->was_truncated(Part::Data));
  EXPECT_EQ(reader_->layout().data_plane.pid, 78u);
  cut(Part::Data, 0);
  EXPECT_EQ(reader_->layout().data_plane.pid, 0u);
  EXPECT_TRUE(reader_->was_truncated(Part::Data));
}

TEST_F(CutSegment, is_survived_by_all_threads_that_read_there) {
  std::atomic<int> reading{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i)
    readers.emplace_back([&] {
      const std::atomic<std::uint32_t>& pid = reader_->layout().data_plane.pid;
      ++reading;
      while (pid != 0) continue;
    });
  while (reading < 4) continue;
  cut(Part::Data, 0);
  for (std::thread& thread : readers) thread.join();
  EXPECT_TRUE(reader_->was_truncated(Part::Data));
}

void dump_no_core() {
  const rlimit none{};
  ::setrlimit(RLIMIT_CORE, &none);
}

TEST_F(CutSegment, ends_the_plane_that_cuts_its_own) {
  const auto cut_own = [&] {
    dump_no_core();
    cut(Part::Data, 0);
    owner_->layout().data_plane.pid = 1;
  };
  EXPECT_DEATH(cut_own(), "");
}

TEST_F(CutSegment, leaves_other_bus_errors_as_they_were) {
  const auto raise_it = [] {
    dump_no_core();
    ::raise(SIGBUS);
  };
  EXPECT_DEATH(raise_it(), "");
  const auto read_elsewhere = [&] {
    dump_no_core();
    const auto file = PartFile::open(name_, Part::Data, PartFile::Access::Read);
    const auto* const memory = static_cast<const volatile char*>(
        ::mmap(nullptr, sizeof(PartHead), PROT_READ, MAP_SHARED, file->descriptor(), 0));
    cut(Part::Data, 0);
    [[maybe_unused]] const char read = memory[0];
  };
  EXPECT_DEATH(read_elsewhere(), "");
}

}  // namespace
}  // namespace sluice::segment
