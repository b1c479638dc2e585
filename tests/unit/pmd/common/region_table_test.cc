// SPDX-License-Identifier: Apache-2.0
#include "pmd/common/region_table.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string>

#include "dataplane/base/setup_error.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::rdma {
namespace {

TEST(SteeringTags, two_devices_draw_different_ones_and_none_twice) {
  SteeringTags a;
  SteeringTags b;
  std::set<std::uint64_t> drawn;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(drawn.insert(a.next()).second);
    EXPECT_TRUE(drawn.insert(b.next()).second);
  }
}

TEST(Pages, are_whole_zeroed_and_their_end_is_that_of_the_object) {
  EXPECT_EQ(page_bytes(0), kPageBytes);
  EXPECT_EQ(page_bytes(kPageBytes), kPageBytes);
  EXPECT_EQ(page_bytes(kPageBytes + 1), 2 * kPageBytes);
  Pages pages;
  const auto memory = pages.allocate(kPageBytes + 1);
  ASSERT_EQ(memory.size(), 2 * kPageBytes);
  memory.back() = std::byte{0};  // the memory is writable
  EXPECT_TRUE(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_THROW(pages.allocate(std::size_t{1} << 60), SetupError);
}

TEST(Pages, go_with_the_object) {
  const auto mapped = [](const std::byte* at) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      std::size_t dash = 0;
      const std::uint64_t begin = std::stoull(line, &dash, 16);
      const std::uint64_t end = std::stoull(line.substr(dash + 1), nullptr, 16);
      const auto address = reinterpret_cast<std::uintptr_t>(at);
      if (begin <= address && address < end) return true;
    }
    return false;
  };
  const std::byte* at;
  {
    Pages pages;
    at = pages.allocate(64 << 20).data();
    EXPECT_TRUE(mapped(at));
  }
  EXPECT_FALSE(mapped(at));
}

/// Returns the VmFlags line of /proc/self/smaps for the mapping that contains an address.
std::string flags_of(const std::byte* at) {
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uint64_t begin = 0, end = 0;
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) here = begin <= address && address < end;
    if (here && line.starts_with("VmFlags:")) return line + ' ';
  }
  return {};
}

TEST(Pages, of_a_device_are_whole_huge_pages) {
  Pages pages;
  for (const std::size_t bytes : {kHugePageBytes, 5 * kHugePageBytes + 1}) {
    const auto memory = pages.allocate_for_device(bytes, -1);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % kHugePageBytes, 0u);
    EXPECT_EQ(memory.size() % kHugePageBytes, 0u);
    EXPECT_GE(memory.size(), bytes);
    for (std::size_t at = 0; at < memory.size(); at += kPageBytes) {
      ASSERT_EQ(memory[at], std::byte{0});
      memory[at] = std::byte{1};
    }
    const std::string flags = flags_of(memory.data());
    // The mapping has preallocated huge pages, or advice to use huge pages.
    EXPECT_TRUE(flags.find(" ht ") != flags.npos || flags.find(" hg ") != flags.npos) << flags;
  }
  EXPECT_EQ(pages.allocate_for_device(4, -1).size(), kPageBytes) << "little takes little";
  EXPECT_THROW(pages.allocate_for_device(std::size_t{1} << 60, -1), SetupError);
}

TEST(Pages, of_a_device_prefer_its_numa_node) {
  Pages pages;
  for (const std::size_t bytes : {kPageBytes, kHugePageBytes}) {
    const auto memory = pages.allocate_for_device(bytes, 0);
    int mode = -1;
    unsigned long nodes[16] = {};
    if (::syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof nodes, memory.data(), MPOL_F_ADDR) != 0)
      GTEST_SKIP() << "this kernel has no NUMA policies";
    EXPECT_EQ(mode, MPOL_PREFERRED);
    EXPECT_EQ(nodes[0], 1u);
  }
}

class Regions : public testing::Test {
 protected:
  bool covers(std::byte* at, std::size_t bytes, Lkey lkey) const {
    return table_.covers({at, static_cast<std::uint32_t>(bytes), lkey});
  }
  SteeringTags tags_;
  RegionTable table_{"test", tags_};
};

TEST_F(Regions, an_lkey_covers_its_own_region_and_no_byte_more) {
  std::byte memory[300];
  const MemoryRegion before = table_.add(std::span(memory).first(100));
  const MemoryRegion region = table_.add(std::span(memory).subspan(100, 100));
  EXPECT_NE(before.lkey, region.lkey);
  EXPECT_TRUE(covers(memory + 100, 100, region.lkey));
  EXPECT_TRUE(covers(memory + 199, 1, region.lkey));
  EXPECT_TRUE(covers(memory + 200, 0, region.lkey));
  EXPECT_FALSE(covers(memory + 201, 0, region.lkey));
  EXPECT_FALSE(covers(memory + 199, 2, region.lkey));
  EXPECT_FALSE(covers(memory + 100, 101, region.lkey));
  EXPECT_FALSE(covers(memory + 100, 0xFFFFFFFF, region.lkey));
  EXPECT_FALSE(covers(memory + 99, 1, region.lkey));
  EXPECT_FALSE(covers(memory + 100, 1, before.lkey));
  EXPECT_FALSE(covers(memory + 100, 1, static_cast<Lkey>(static_cast<std::uint32_t>(region.lkey) ^ 0x1000)));
  EXPECT_FALSE(covers(memory + 100, 1, static_cast<Lkey>(static_cast<std::uint32_t>(region.lkey) + 1)));
}

TEST_F(Regions, there_are_at_most_4096_and_a_sentence_names_the_device) {
  std::byte byte{};
  for (int i = 0; i < 4096; ++i) table_.add({&byte, 1});
  try {
    table_.add({&byte, 1});
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_STREQ(error.what(), "Too many memory regions on the test device.");
  }
}

TEST_F(Regions, memory_that_is_not_there_is_a_failed_invariant) {
  const CountedInvariants counted;
  table_.add({static_cast<std::byte*>(nullptr), 1});
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 1u);
}

}  // namespace
}  // namespace sluice::rdma
