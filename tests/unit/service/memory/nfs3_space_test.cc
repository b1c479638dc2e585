// SPDX-License-Identifier: Apache-2.0
//
// READ and WRITE: freed memory never shows in another file, and space is limited and released.
#include "dataplane/service/memory/blocks.h"
#include "tests/unit/service/memory/nfs3_data_fixture.h"

#include "tests/unit/base/counted_invariants.h"

namespace sluice::service::test {
namespace {

// --- No stale data

TEST_F(Data, freed_memory_never_shows_in_another_file) {
  Lab tight({.arena_bytes = 4 << 20});
  const Handle dir = tight.root();
  for (int round = 0; round < 4; ++round) {
    const bool scrub_in_background = round % 2 == 0;
    const Handle secret = tight.file(dir, "secret");
    std::uint64_t at = 0;
    while (tight.write(secret, at, pattern(kLargeBytes, 5)).ok()) at += kLargeBytes;
    ASSERT_TRUE(tight.remove(dir, "secret").ok());
    if (scrub_in_background) tight.settle();
    // Writes one byte in each block. The remainder of the block must not show earlier contents.
    const Handle probe = tight.file(dir, "probe");
    for (std::uint64_t offset = 0; offset < (3 << 20); offset += kLargeBytes)
      ASSERT_TRUE(tight.write(probe, offset + 1000, Bytes(1)).ok()) << offset;
    EXPECT_TRUE(all_zero(tight.read_all(probe)));
    for (int i = 0; i < 100; ++i) {
      const Handle small = tight.file(dir, numbered("s", static_cast<unsigned>(i)));
      if (!tight.write(small, 4000, Bytes(1)).ok()) continue;
      EXPECT_TRUE(all_zero(tight.read_all(small)));
      EXPECT_TRUE(tight.write(small, 0, pattern(4096, 6)).ok());
    }
    for (int i = 0; i < 100; ++i)
      ASSERT_TRUE(tight.remove(dir, numbered("s", static_cast<unsigned>(i))).ok());
    ASSERT_TRUE(tight.remove(dir, "probe").ok());
  }
}

TEST_F(Data, scrubbing_leaves_the_arena_zero) {
  ASSERT_TRUE(lab.write(f, 0, pattern(1 << 20, 1)).ok());
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(lab.write(lab.file(root, numbered("g", static_cast<unsigned>(i))), 0, pattern(4096, 1)).ok());
  ASSERT_TRUE(lab.remove(root, "f").ok());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(lab.remove(root, numbered("g", static_cast<unsigned>(i))).ok());
  lab.settle();
  EXPECT_TRUE(
      std::all_of(lab.arena().begin(), lab.arena().end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(lab.fsstat(root).numbers[0], lab.fsstat(root).numbers[1]);
}

TEST_F(Data, holes_are_never_written_to) {
  ASSERT_TRUE(lab.setattr(f, {.size = 1 << 20}).ok());
  PendingRead read(lab, f, 0, 1 << 20);
  PlacedWrite write(lab, f, 1, 65535, 1);
  write.pull(pattern(65536, 1));
  ASSERT_TRUE(write.commit().ok());
  EXPECT_TRUE(all_zero(read.data())) << "a hole that is filled while it is read stays a hole in that reply";
  const auto zeros = lab.zeros().first(kLargeBytes);
  EXPECT_TRUE(std::all_of(zeros.begin(), zeros.end(), [](std::byte b) { return b == std::byte{0}; }));
}

// --- Space

TEST_F(Data, quota_ends_with_nospc_and_is_given_back_at_once) {
  Lab two({.exports = {{.path = "/a", .root_squash = false, .quota_bytes = 2 << 20},
                       {.path = "/b", .root_squash = false}}});
  const Handle g = two.file(two.root(0), "g");
  ASSERT_TRUE(two.write(g, 0, pattern(1 << 20, 1)).ok());
  EXPECT_EQ(two.write(g, 1 << 20, pattern(1 << 20, 1)).status, Status::NoSpc) << "map pages count, too";
  EXPECT_LE(two.service().file_system().use(0).used_bytes, 2u << 20);
  EXPECT_EQ(two.fsstat(two.root(0)).numbers[0], 2u << 20);
  const Handle h = two.file(two.root(1), "h");
  ASSERT_TRUE(two.write(h, 0, pattern(1 << 20, 1)).ok());
  ASSERT_TRUE(two.write(h, 1 << 20, pattern(1 << 20, 1)).ok());
  ASSERT_TRUE(two.write(h, 2 << 20, pattern(1 << 20, 1)).ok());
  ASSERT_TRUE(two.remove(two.root(0), "g").ok());
  EXPECT_EQ(two.service().file_system().use(0).used_bytes, 0u);
  EXPECT_TRUE(two.write(two.file(two.root(0), "i"), 0, pattern(1 << 20, 1)).ok());
}

TEST_F(Data, what_was_removed_is_there_again_without_waiting_for_the_background) {
  Lab tight({.arena_bytes = 8 << 20});
  for (int round = 0; round < 5; ++round) {
    const Handle g = tight.file(tight.root(), "g");
    std::uint64_t blocks = 0;
    while (tight.write(g, blocks * kLargeBytes, pattern(kLargeBytes, 1)).ok()) ++blocks;
    EXPECT_GE(blocks, 126u) << "of 128, in round " << round;
    ASSERT_TRUE(tight.remove(tight.root(), "g").ok());
  }
}

TEST_F(Data, background_work_comes_in_bounded_slices) {
  Lab big({.arena_bytes = 256 << 20});
  const Handle g = big.file(big.root(), "g");
  for (std::uint64_t at = 0; at < 200; ++at) ASSERT_TRUE(big.write(g, at << 20, pattern(1 << 20, 1)).ok());
  ASSERT_TRUE(big.remove(big.root(), "g").ok());
  std::uint64_t slices = 1;
  if (big.reader() != nullptr) {
    big.settle();
  } else {
    while (big.service().background(0)) ++slices;
    EXPECT_GE(slices, 3200u) << "one block of 64 KiB at a time";
  }
  EXPECT_EQ(big.fsstat(big.root()).numbers[1], big.capacity());
}

TEST_F(Data, cutting_a_file_of_several_map_pages) {
  Lab big({.arena_bytes = 300 << 20});
  const Handle g = big.file(big.root(), "g");
  const std::uint64_t page = std::uint64_t{memory::kMapEntries} * kLargeBytes;
  for (std::uint64_t at = 0; at < 5; ++at)
    for (const std::uint64_t block : {0ull, 9ull, 500ull, 1021ull})
      ASSERT_TRUE(
          big.write(g, at * page + block * kLargeBytes + 77, pattern(100, static_cast<unsigned>(block)))
              .ok());
  const std::uint64_t whole = big.getattr(g).attr->used;
  ASSERT_TRUE(big.setattr(g, {.size = 2 * page + 9 * kLargeBytes + 100}).ok());
  EXPECT_LT(big.getattr(g).attr->used, whole);
  EXPECT_EQ(big.read(g, 2 * page + 9 * kLargeBytes + 77, 100).data, part(pattern(100, 9), 0, 23));
  EXPECT_EQ(big.read(g, page + 1021 * kLargeBytes + 77, 100).data, pattern(100, 1021));
  ASSERT_TRUE(big.setattr(g, {.size = 6 * page}).ok());
  EXPECT_TRUE(all_zero(big.read(g, 2 * page + 500 * kLargeBytes, 1 << 20).data));
  EXPECT_TRUE(all_zero(big.read(g, 4 * page, 1 << 20).data));
  ASSERT_TRUE(big.setattr(g, {.size = 0}).ok());
  EXPECT_EQ(big.getattr(g).attr->used, 0u);
  big.settle();
  EXPECT_EQ(big.fsstat(big.root()).numbers[1], big.capacity());
}

TEST_F(Data, set_id_bits_go_when_another_than_root_changes_the_file) {
  ASSERT_TRUE(lab.setattr(f, {.mode = 06777, .uid = 1000}).ok());
  ASSERT_TRUE(lab.write(f, 0, bytes_of("x"), kRoot).ok());
  EXPECT_EQ(lab.getattr(f).attr->mode, 06777u);
  ASSERT_TRUE(lab.write(f, 0, bytes_of("x"), kBob).ok());
  EXPECT_EQ(lab.getattr(f).attr->mode, 0777u);
  ASSERT_TRUE(lab.setattr(f, {.mode = 06777}).ok());
  PlacedWrite w(lab, f, 0, 4, 0, kBob);
  w.pull(bytes_of("data"));
  EXPECT_EQ(w.commit().wcc.after->mode, 0777u);
}

TEST(BlockPool, a_block_that_nothing_has_pinned_is_not_unpinned) {
  if (!kAbortOnInvariant) GTEST_SKIP() << "a release does not evaluate this condition";
  constexpr std::size_t kBytes = 4 * memory::kLargeBytes;
  const auto bytes = std::make_unique<std::byte[]>(kBytes);
  memory::BlockPool pool({{bytes.get(), kBytes}, rdma::Lkey{1}});
  const memory::Block block = pool.allocate_small();
  pool.pin(block);
  const CountedInvariants counted;
  pool.unpin(block);
  EXPECT_EQ(counted.failed(Invariant::file_storage), 0u);
  pool.unpin(block);
  EXPECT_EQ(counted.failed(Invariant::file_storage), 1u);
}

}  // namespace
}  // namespace sluice::service::test
