// SPDX-License-Identifier: Apache-2.0
//
// A start with more memory than the host has or the limits of control groups allow is refused. Folders of the
// test replace the kernel's files.
#include "dataplane/process/memory_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "dataplane/base/setup_error.h"
#include "tests/unit/process/process_lab.h"

namespace sluice::process {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

class MemoryRoomTest : public testing::Test {
 protected:
  MemoryRoomTest() {
    config_.memory_bytes = 4096 * kMiB;
    write("proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\nHugetlb:  0 kB\n");
    write("proc/self/cgroup", "0::/\n");
  }
  ~MemoryRoomTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ + '/' + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  KernelFolders folders() const { return {.proc = folder_ + "/proc", .cgroups = folder_ + "/cgroup"}; }
  std::string refusal() const {
    try {
      require_memory(config_, folders());
    } catch (const SetupError& error) {
      return error.what();
    }
    return "";
  }
  std::string bytes(std::uint64_t number) const { return std::to_string(number); }

  const std::string folder_ = "/tmp/" + unique_name("memory-room");
  segment::ConfigBlock config_;
};

TEST_F(MemoryRoomTest, the_need_is_the_sum_of_all_lines_that_sluicectl_shows) {
  std::uint64_t sum = 0;
  for (const segment::MemoryInfo& line : memory_table(config_)) sum += line.reserved_bytes;
  const MemoryNeed need = memory_need(config_);
  EXPECT_EQ(need.pages_bytes, sum);
  EXPECT_EQ(need.exports_bytes, 4096 * kMiB);
  EXPECT_GT(need.pages_bytes, need.exports_bytes);
}

TEST_F(MemoryRoomTest, more_than_the_machine_has_is_refused_with_both_numbers) {
  EXPECT_EQ(refusal(), "");
  config_.memory_bytes = 200000 * kMiB;
  const std::string said = refusal();
  EXPECT_NE(
      said.find("needs " + bytes(memory_need(config_).pages_bytes / kMiB) + " MiB of memory (200000 MiB"),
      std::string::npos)
      << said;
  EXPECT_NE(said.find("this machine has 16384 MiB. Lower size_mib"), std::string::npos) << said;
}

TEST_F(MemoryRoomTest, huge_pages_are_no_room_for_files_and_files_none_for_dpdk) {
  write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugetlb: 14680064 kB\n");
  EXPECT_NE(refusal().find("this machine has 2048 MiB beside its huge pages"), std::string::npos)
      << refusal();
  config_.memory_bytes = 16 * kMiB;
  EXPECT_EQ(refusal(), "");
  config_.driver = segment::Driver::Verbs;
  config_.memory_bytes = 15000 * kMiB;
  EXPECT_EQ(refusal(), "") << "the driver takes huge pages first";
  config_.memory_bytes = 16 * kMiB;
  config_.driver = segment::Driver::SoftRoce;
  config_.hugepages = 1;
  config_.dpdk_memory_mib = 14336;
  EXPECT_EQ(refusal(), "");
  config_.dpdk_memory_mib = 14337;
  EXPECT_EQ(refusal().find(
                "dpdk_memory_mib in [device] is 14337 MiB of huge pages, and this machine has 14336 MiB"),
            0u)
      << refusal();
}

TEST_F(MemoryRoomTest, the_least_limit_of_the_groups_of_version_2_counts) {
  write("proc/self/cgroup", "0::/system.slice/sluice.service\n");
  write("cgroup/system.slice/sluice.service/memory.max", "max\n");
  write("cgroup/memory.max", "max\n");
  EXPECT_EQ(refusal(), "");
  const std::string parent = "cgroup/system.slice/memory.max";
  write(parent, bytes(memory_need(config_).pages_bytes) + "\n");
  EXPECT_EQ(refusal(), "");
  write(parent, bytes(memory_need(config_).pages_bytes - 1) + "\n");
  const std::string said = refusal();
  EXPECT_NE(said.find("its control group may use " + bytes((memory_need(config_).pages_bytes - 1) / kMiB) +
                      " MiB (" + folder_ + '/' + parent + ')'),
            std::string::npos)
      << said;
  write("cgroup/system.slice/sluice.service/memory.max", bytes(256 * kMiB) + "\n");
  EXPECT_NE(refusal().find("may use 256 MiB"), std::string::npos) << refusal();
}

TEST_F(MemoryRoomTest, a_container_shows_its_limit_at_the_root) {
  write("cgroup/memory.max", bytes(512 * kMiB) + "\n");
  EXPECT_NE(refusal().find("may use 512 MiB"), std::string::npos) << refusal();
  write("proc/self/cgroup", "0::/not/mounted/here\n");
  EXPECT_NE(refusal().find("may use 512 MiB"), std::string::npos) << refusal();
}

TEST_F(MemoryRoomTest, limits_of_version_1_count_too) {
  write("proc/self/cgroup", "11:cpu,cpuacct:/a\n5:memory:/docker/b\n0::/c\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/docker/b/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(refusal(), "");
  write("cgroup/memory/docker/b/memory.limit_in_bytes", bytes(128 * kMiB) + "\n");
  EXPECT_NE(refusal().find("may use 128 MiB"), std::string::npos) << refusal();
}

TEST_F(MemoryRoomTest, what_others_use_at_the_moment_is_a_warning) {
  config_.memory_bytes = 10000 * kMiB;
  const std::string warning = require_memory(config_, folders());
  EXPECT_NE(warning.find("and 8192 MiB are currently unused"), std::string::npos) << warning;
  config_.memory_bytes = 16 * kMiB;
  EXPECT_EQ(require_memory(config_, folders()), "");
}

TEST_F(MemoryRoomTest, a_system_without_these_files_refuses_nothing) {
  config_.memory_bytes = 200000 * kMiB;
  EXPECT_EQ(require_memory(config_, {.proc = folder_ + "/none", .cgroups = folder_ + "/none"}), "");
}

}  // namespace
}  // namespace sluice::process
