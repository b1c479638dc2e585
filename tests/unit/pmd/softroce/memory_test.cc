// SPDX-License-Identifier: Apache-2.0
//
// Memory of the softroce device that its peers may access: bounds of windows and steering tags.
// tests/unit/pmd/common tests regions and their lkeys.
#include "pmd/softroce/memory.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice::rdma::softroce {
namespace {

class Memory : public testing::Test {
 protected:
  /// Never dereferenced: owners are distinguished by address only.
  const QueuePair& owner(int number) const { return *reinterpret_cast<const QueuePair*>(&owners_[number]); }
  static std::uint64_t address_of(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

  alignas(16) std::byte owners_[2][16]{};
  MemoryTable table_;
};

TEST_F(Memory, a_window_exposes_what_it_was_bound_to_and_no_byte_more) {
  const MemoryRegion region = table_.allocate(4096);
  const MemoryWindow window = table_.allocate_window();
  const auto bytes = region.bytes.subspan(1000, 100);
  const auto rkey = table_.bind(window, bytes, region.lkey, kRemoteRead, owner(0));
  ASSERT_TRUE(rkey);
  EXPECT_NE(*rkey, Rkey{});
  const std::uint64_t base = address_of(bytes.data());
  const auto remote = [&](std::uint64_t at, std::uint64_t length) {
    return table_.remote(*rkey, at, length, kRemoteRead, owner(0));
  };
  EXPECT_EQ(remote(base, 100), bytes.data());
  EXPECT_EQ(remote(base + 99, 1), bytes.data() + 99);
  EXPECT_EQ(remote(base + 100, 0), bytes.data() + 100);
  EXPECT_EQ(remote(base + 101, 0), nullptr);
  EXPECT_EQ(remote(base, 101), nullptr);
  EXPECT_EQ(remote(base + 99, 2), nullptr);
  EXPECT_EQ(remote(base - 1, 1), nullptr);
  EXPECT_EQ(remote(base + 50, ~std::uint64_t{0}), nullptr);
}

TEST_F(Memory, rights_owners_and_tags_have_to_be_right) {
  const MemoryRegion region = table_.allocate(4096);
  const auto rkey = table_.bind(table_.allocate_window(), region.bytes, region.lkey, kRemoteRead, owner(0));
  const std::uint64_t base = address_of(region.bytes.data());
  const auto number = static_cast<std::uint32_t>(*rkey);
  EXPECT_NE(table_.remote(*rkey, base, 1, kRemoteRead, owner(0)), nullptr);
  EXPECT_EQ(table_.remote(*rkey, base, 1, kRemoteWrite, owner(0)), nullptr);
  EXPECT_EQ(table_.remote(*rkey, base, 1, kRemoteRead | kRemoteWrite, owner(0)), nullptr);
  EXPECT_EQ(table_.remote(*rkey, base, 1, kRemoteRead, owner(1)), nullptr);
  EXPECT_EQ(table_.remote(static_cast<Rkey>(number ^ 0x80000000), base, 1, kRemoteRead, owner(0)), nullptr);
  EXPECT_EQ(table_.remote(static_cast<Rkey>(number + 1), base, 1, kRemoteRead, owner(0)), nullptr);
}

TEST_F(Memory, an_invalidated_tag_opens_nothing_and_its_window_can_be_bound_again) {
  const MemoryRegion region = table_.allocate(4096);
  const MemoryWindow window = table_.allocate_window();
  const auto bind = [&] { return table_.bind(window, region.bytes, region.lkey, kRemoteRead, owner(0)); };
  const auto first = bind();
  ASSERT_TRUE(first);
  EXPECT_FALSE(bind());  // the window is already bound
  EXPECT_FALSE(table_.invalidate(*first, owner(1)));
  EXPECT_FALSE(
      table_.invalidate(static_cast<Rkey>(static_cast<std::uint32_t>(*first) ^ 0x80000000), owner(0)));
  EXPECT_FALSE(table_.invalidate(static_cast<Rkey>(static_cast<std::uint32_t>(*first) + 1), owner(0)));
  EXPECT_TRUE(table_.invalidate(*first, owner(0)));
  EXPECT_FALSE(table_.invalidate(*first, owner(0)));
  EXPECT_EQ(table_.remote(*first, address_of(region.bytes.data()), 1, kRemoteRead, owner(0)), nullptr);
  const auto second = bind();
  ASSERT_TRUE(second);
  EXPECT_NE(*second, *first);
}

TEST_F(Memory, a_queue_pair_that_goes_takes_its_windows_and_nobody_elses) {
  const MemoryRegion region = table_.allocate(4096);
  const auto bind = [&](int number) {
    return *table_.bind(table_.allocate_window(), region.bytes, region.lkey, kRemoteRead, owner(number));
  };
  const Rkey mine = bind(0);
  const Rkey others = bind(1);
  table_.unbind_all(owner(0));
  const std::uint64_t base = address_of(region.bytes.data());
  EXPECT_EQ(table_.remote(mine, base, 1, kRemoteRead, owner(0)), nullptr);
  EXPECT_NE(table_.remote(others, base, 1, kRemoteRead, owner(1)), nullptr);
}

TEST_F(Memory, windows_bind_to_registered_memory_only_and_have_to_be_there) {
  const MemoryRegion region = table_.allocate(4096);
  std::byte other[16];
  const MemoryWindow window = table_.allocate_window();
  EXPECT_FALSE(table_.bind(window, other, region.lkey, kRemoteRead, owner(0)));
  EXPECT_FALSE(table_.bind({window.number + 1}, region.bytes, region.lkey, kRemoteRead, owner(0)));
}

/// Steering tags have 20 random bits, so a few of a thousand may repeat.
TEST_F(Memory, tags_hardly_ever_come_twice) {
  const MemoryRegion region = table_.allocate(4096);
  const MemoryWindow window = table_.allocate_window();
  std::set<Rkey> seen;
  for (int time = 0; time < 1000; ++time) {
    const auto rkey = table_.bind(window, region.bytes, region.lkey, kRemoteRead, owner(0));
    seen.insert(*rkey);
    table_.invalidate(*rkey, owner(0));
  }
  EXPECT_GT(seen.size(), 980u);
}

}  // namespace
}  // namespace sluice::rdma::softroce
