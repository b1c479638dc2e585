// SPDX-License-Identifier: Apache-2.0
//
// Resource usage of the own process, compared with what the test consumes.
#include "dataplane/segment/heartbeat.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <vector>

#include "dataplane/base/file_descriptor.h"

namespace sluice::segment {
namespace {

TEST(ProcessUse, descriptors_are_counted_and_their_limit_is_told) {
  ProcessUse before{};
  measure_process(before);
  std::vector<FileDescriptor> files;
  for (int i = 0; i < 7; ++i) files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ProcessUse after{};
  measure_process(after);
  EXPECT_EQ(after.open_descriptors.load(), before.open_descriptors.load() + 7);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(after.max_descriptors.load(), limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur);
}

TEST(ProcessUse, when_no_descriptor_is_left_all_are_counted) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit low{.rlim_cur = 64, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<FileDescriptor> files;
  do files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  while (files.back());
  ProcessUse use{};
  measure_process(use);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(use.open_descriptors.load(), low.rlim_cur);
  EXPECT_EQ(use.max_descriptors.load(), low.rlim_cur);
}

TEST(ProcessUse, processor_time_grows_with_work) {
  ProcessUse use{};
  measure_process(use);
  const std::uint64_t before_ns = use.cpu_ns;
  ASSERT_GT(before_ns, 0u);
  while (use.cpu_ns == before_ns) measure_process(use);
  EXPECT_GT(use.cpu_ns.load(), before_ns);
}

TEST(ProcessUse, memory_that_is_touched_is_resident) {
  ProcessUse before{};
  measure_process(before);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::vector<std::byte> touched(kBytes, std::byte{1});
  ProcessUse after{};
  measure_process(after);
  EXPECT_GE(after.resident_bytes.load() + kBytes / 8, before.resident_bytes.load() + kBytes);
  EXPECT_GE(after.virtual_bytes.load(), after.resident_bytes.load());
}

TEST(ProcessUse, the_start_is_in_the_past_and_stays_the_same) {
  ProcessUse one{};
  ProcessUse other{};
  measure_process(one);
  measure_process(other);
  EXPECT_EQ(one.started_ns.load(), other.started_ns.load());
  EXPECT_LE(one.started_ns.load(), wall_ns());
  EXPECT_GT(one.started_ns.load(), 0u);
}

}  // namespace
}  // namespace sluice::segment
