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
  EXPECT_TRUE(owner->created());
  ConfigBlock config;
  config.generation = 4;
  config.credits = 17;
  owner->layout().config.write(config);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto other = Segment::attach(name_);
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
  EXPECT_FALSE(Segment::open_or_create(name_)->created());
}

TEST_F(SegmentFile, files_that_are_no_segment_are_refused_with_a_sentence) {
  const auto write = [&](off_t size, std::uint64_t magic, std::uint32_t version) {
    const int fd = ::open(Segment::path_of(name_).c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600);
    ASSERT_EQ(::ftruncate(fd, size), 0);
    ASSERT_EQ(::pwrite(fd, &magic, 8, 0), 8);
    ASSERT_EQ(::pwrite(fd, &version, 4, 8), 4);
    ::close(fd);
  };
  for (const auto& [size, magic, version] : {std::tuple{off_t{100}, kMagic, kLayoutVersion},
                                             std::tuple{off_t{sizeof(Layout)}, kMagic + 1, kLayoutVersion},
                                             std::tuple{off_t{sizeof(Layout)}, kMagic, kLayoutVersion + 1}}) {
    write(size, magic, version);
    try {
      Segment::attach(name_);
      FAIL();
    } catch (const SetupError& error) {
      EXPECT_NE(std::string(error.what()).find("cannot be used"), std::string::npos);
    }
    ControlOwnership owner(name_);  // makes a fresh one
    owner.take();
    EXPECT_NO_THROW(Segment::attach(name_));
  }
}

TEST_F(SegmentFile, another_users_file_is_refused_and_left_alone) {
  Segment::open_or_create(name_);
  const std::string path = Segment::path_of(name_);
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

TEST_F(SegmentFile, a_data_plane_of_another_release_keeps_its_segment) {
  const auto owner = Segment::open_or_create(name_);
  auto data_plane = std::make_unique<DataPlaneOwnership>(*owner, name_);
  start_heartbeat(owner->layout().data_plane, monotonic_ns(), wall_ns());
  ConfigBlock config;
  config.generation = 7;
  owner->layout().config.write(config);
  owner->layout().layout_version = kLayoutVersion + 1;
  for (const off_t size : {off_t{sizeof(Layout)}, off_t{sizeof(Layout) / 2}}) {
    ASSERT_EQ(::truncate(Segment::path_of(name_).c_str(), size), 0);
    try {
      ControlOwnership next(name_);
      FAIL();
    } catch (const SetupError& error) {
      EXPECT_NE(std::string(error.what()).find("of another release (process " + std::to_string(::getpid())),
                std::string::npos)
          << error.what();
    }
  }
  ASSERT_EQ(::truncate(Segment::path_of(name_).c_str(), sizeof(Layout)), 0);
  EXPECT_EQ(owner->layout().config.read_copy()->generation, 7u);
  data_plane.reset();
  ControlOwnership next(name_);
  next.take();
  EXPECT_TRUE(next.segment().created());
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
  heart.pid = 0;  // it ended
  EXPECT_FALSE(alive(heart, 2000 + kHeartbeatTimeoutNs));
}

}  // namespace
}  // namespace sluice::segment
