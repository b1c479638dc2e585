// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/histogram.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/segment.h"

namespace sluice::segment {
namespace {

TEST(Histogram, percentiles_are_within_a_bucket_of_the_exact_ones) {
  auto histogram = std::make_unique<Histogram>();
  std::vector<std::uint64_t> values;
  std::mt19937_64 random(1);
  for (int i = 0; i < 50000; ++i) values.push_back(random() % (1ull << (random() % 38 + 1)));
  for (const std::uint64_t value : values) histogram->record(value);
  std::sort(values.begin(), values.end());
  for (const double quantile : {0.0, 0.1, 0.5, 0.9, 0.99, 0.999}) {
    const std::uint64_t exact =
        values[static_cast<std::size_t>(quantile * static_cast<double>(values.size()))];
    const std::uint64_t got = histogram->percentile(quantile);
    EXPECT_GE(got, exact);
    EXPECT_LE(got, exact + exact / 32 + 1);
  }
  for (std::uint32_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    EXPECT_EQ(Histogram::bucket_of(Histogram::upper_bound(bucket)), bucket);
    EXPECT_EQ(Histogram::bucket_of(Histogram::upper_bound(bucket) + 1), bucket + 1);
  }
}

class SegmentFile : public testing::Test {
 protected:
  void TearDown() override { Segment::remove(name_); }
  std::string name_ = "sluice-test-" + std::to_string(::getpid());
};

TEST_F(SegmentFile, what_one_process_writes_the_other_reads) {
  EXPECT_THROW(Segment::attach(name_), SetupError);
  const auto owner = Segment::open_or_create(name_);
  ConfigBlock config;
  config.generation = 4;
  config.credits = 17;
  owner->layout().config.write(config);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto other = Segment::open_or_create(name_);
    const auto read = other->layout().config.read_copy();
    other->layout().reactors[0].events.push({.type = EventType::ConnectionUp, .connection = 3, .peer = {}});
    ::_exit(read && read->generation == 4 && read->credits == 17 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  Event event;
  ASSERT_TRUE(owner->layout().reactors[0].events.pop(event));
  EXPECT_EQ(event.connection, 3u);
}

TEST_F(SegmentFile, files_that_are_no_segment_are_refused_with_a_sentence) {
  const auto write = [&](off_t size, std::uint64_t magic, std::uint32_t version) {
    const int fd = ::open(path_of(name_, Part::Control).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(::ftruncate(fd, size), 0);
    ASSERT_EQ(::pwrite(fd, &magic, 8, 0), 8);
    ASSERT_EQ(::pwrite(fd, &version, 4, 8), 4);
    ::close(fd);
  };
  for (const auto& [size, magic, version] :
       {std::tuple{off_t{100}, kMagic, kLayoutVersion},
        std::tuple{off_t{sizeof(ControlPart)}, kMagic + 1, kLayoutVersion},
        std::tuple{off_t{sizeof(ControlPart)}, kMagic, kLayoutVersion + 1}}) {
    write(size, magic, version);
    try {
      Segment::attach(name_);
      FAIL();
    } catch (const SetupError& error) {
      EXPECT_NE(std::string(error.what()).find("cannot be used"), std::string::npos);
    }
    ControlOwnership owner(name_);  // creates a new one
    owner.take();
    EXPECT_NO_THROW(Segment::attach(name_));
  }
}

TEST_F(SegmentFile, another_users_file_is_refused_and_left_alone) {
  Segment::open_or_create(name_);
  const std::string path = path_of(name_, Part::Control);
  if (::geteuid() != 0 || ::chown(path.c_str(), 12345, 12345) != 0)
    GTEST_SKIP() << "only root gives files away";
  for (const bool create : {true, false}) {
    try {
      if (create) ControlOwnership owner(name_);
      Segment::attach(name_);
      FAIL();
    } catch (const SetupError& error) {
      EXPECT_NE(std::string(error.what()).find("belongs to user 12345"), std::string::npos) << error.what();
    }
  }
  ::unlink(path.c_str());
  ASSERT_EQ(::symlink("/etc/hostname", path.c_str()), 0);
  EXPECT_THROW(ControlOwnership owner(name_), SetupError);
  EXPECT_THROW(Segment::attach(name_), SetupError);
}

/// Only files of root and of this user are accepted in a folder where any user can create files.
TEST_F(SegmentFile, another_users_data_is_taken_only_in_a_guarded_folder) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  char folder[] = "/dev/shm/sluice-guarded-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string name = std::string(folder) + "/segment";
  Segment::open_or_create(name);
  ASSERT_EQ(::chown(path_of(name, Part::Data).c_str(), 12345, 12345), 0);
  EXPECT_NE(Segment::attach(name)->file(Part::Data), nullptr);
  ASSERT_EQ(::chmod(folder, 01777), 0);
  EXPECT_EQ(Segment::attach(name)->file(Part::Data), nullptr);
  ASSERT_EQ(::chmod(folder, 0700), 0);
  ASSERT_EQ(::chown(folder, 12345, 12345), 0);
  EXPECT_EQ(Segment::attach(name)->file(Part::Data), nullptr);
  Segment::remove(name);
  ::rmdir(folder);
}

TEST_F(SegmentFile, heartbeats_tell_the_living_from_the_dead) {
  const auto owner = Segment::open_or_create(name_);
  Heartbeat& heart = owner->layout().data_plane;
  EXPECT_FALSE(alive(heart, 1));
  start_heartbeat(heart, 1000, 5);
  EXPECT_TRUE(alive(heart, 1000));
  EXPECT_FALSE(alive(heart, 1001 + kHeartbeatTimeoutNs));
  beat(heart, 2000 + kHeartbeatTimeoutNs);
  EXPECT_TRUE(alive(heart, 2000 + kHeartbeatTimeoutNs));
  heart.pid = 0;  // ended
  EXPECT_FALSE(alive(heart, 2000 + kHeartbeatTimeoutNs));
}

}  // namespace
}  // namespace sluice::segment
