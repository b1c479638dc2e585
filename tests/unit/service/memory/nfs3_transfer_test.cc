// SPDX-License-Identifier: Apache-2.0
//
// READ and WRITE: blocks under transfer while their file is truncated, removed or written again, and
// abandoned WRITEs.
#include "tests/unit/service/memory/nfs3_data_fixture.h"

namespace sluice::service::test {
namespace {

TEST_F(Data, a_read_keeps_its_bytes_while_the_file_goes_and_its_memory_is_wanted) {
  Lab tight({.arena_bytes = 4 << 20});
  const Bytes data = pattern(1 << 20, 1);
  const Handle g = tight.file(tight.root(), "g");
  ASSERT_TRUE(tight.write(g, 0, data).ok());
  PendingRead read(tight, g, 0, 1 << 20);
  ASSERT_TRUE(tight.remove(tight.root(), "g").ok());
  tight.settle();
  // Uses up all free memory.
  const Handle h = tight.file(tight.root(), "h");
  std::uint64_t written = 0;
  while (tight.write(h, written, pattern(kLargeBytes, 2)).ok()) written += kLargeBytes;
  EXPECT_EQ(read.data(), data);
  EXPECT_EQ(tight.write(h, written, pattern(kLargeBytes, 2)).status,
            tight.reader() != nullptr ? Status::Jukebox : Status::NoSpc);
  read.end();
  tight.settle();
  EXPECT_TRUE(tight.write(h, written, pattern(kLargeBytes, 2)).ok()) << "the blocks are free now";
}

TEST_F(Data, a_read_keeps_its_bytes_while_the_file_is_cut_and_written_again) {
  const Bytes data = pattern(200000, 1);
  ASSERT_TRUE(lab.write(f, 0, data).ok());
  for (const std::uint64_t keep : {0ull, 100ull, 65536ull, 70000ull}) {
    ASSERT_TRUE(lab.write(f, 0, data).ok());
    PendingRead read(lab, f, 0, 200000);
    ASSERT_TRUE(lab.setattr(f, {.size = keep}).ok());
    lab.settle();
    const Handle other = lab.file(root, numbered("other", keep));
    ASSERT_TRUE(lab.write(other, 0, pattern(1 << 20, 5)).ok());
    EXPECT_EQ(read.data(), data) << keep;
  }
}

TEST_F(Data, a_small_file_that_grows_under_a_read_keeps_its_bytes) {
  ASSERT_TRUE(lab.write(f, 0, pattern(4096, 1)).ok());
  PendingRead read(lab, f, 0, 4096);
  ASSERT_TRUE(lab.write(f, 4096, pattern(100000, 2)).ok());
  lab.settle();
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(lab.write(lab.file(root, numbered("g", static_cast<unsigned>(i))), 0, pattern(4096, 7)).ok());
  EXPECT_EQ(read.data(), pattern(4096, 1));
}

TEST_F(Data, a_placed_write_survives_truncation_under_way) {
  for (const std::uint64_t cut : {0ull, 1000ull, 65536ull, 100000ull}) {
    ASSERT_TRUE(lab.setattr(f, {.size = 0}).ok());
    ASSERT_TRUE(lab.write(f, 0, pattern(150000, 1)).ok());
    PlacedWrite w(lab, f, 500, 140000);
    const Bytes data = pattern(140000, 2);
    w.pull(data);
    ASSERT_TRUE(lab.setattr(f, {.size = cut}).ok());
    lab.settle();
    ASSERT_TRUE(w.commit().ok());
    const Bytes all = lab.read_all(f);
    ASSERT_EQ(all.size(), 140500u);
    EXPECT_EQ(part(all, 500, 140000), data) << cut;
    const auto kept = static_cast<std::size_t>(std::min<std::uint64_t>(cut, 500));
    EXPECT_EQ(part(all, 0, kept), part(pattern(150000, 1), 0, kept)) << cut;
    EXPECT_TRUE(all_zero(part(all, kept, 500 - kept))) << cut;
  }
}

TEST_F(Data, a_placed_write_in_a_small_file_survives_its_growth) {
  ASSERT_TRUE(lab.write(f, 0, pattern(1000, 1)).ok());
  PlacedWrite w(lab, f, 1000, 2000);
  w.pull(pattern(2000, 2));
  ASSERT_TRUE(lab.write(f, 10000, pattern(10, 3)).ok());
  ASSERT_TRUE(w.commit().ok());
  const Bytes all = lab.read_all(f);
  EXPECT_EQ(part(all, 0, 1000), pattern(1000, 1));
  EXPECT_EQ(part(all, 1000, 2000), pattern(2000, 2));
  EXPECT_TRUE(all_zero(part(all, 3000, 7000)));
}

TEST_F(Data, a_placed_write_to_a_removed_file_is_stale) {
  PlacedWrite w(lab, f, 0, 100000);
  w.pull(pattern(100000, 1));
  ASSERT_TRUE(lab.remove(root, "f").ok());
  lab.file(root, "g");  // reuses the inode
  const Result late = w.commit();
  EXPECT_EQ(late.status, Status::Stale);
  EXPECT_EQ(size(lab.lookup(root, "g").handle), 0u);
  lab.settle();
  EXPECT_EQ(lab.fsstat(root).numbers[1], lab.fsstat(root).numbers[0]);
}

TEST_F(Data, placed_writes_may_be_committed_in_any_order) {
  PlacedWrite first(lab, f, 0, 65536);
  PlacedWrite second(lab, f, 65536, 65536);
  PlacedWrite third(lab, f, 131072, 1000);
  third.pull(pattern(1000, 3));
  ASSERT_TRUE(third.commit().ok());
  second.pull(pattern(65536, 2));
  first.pull(pattern(65536, 1));
  EXPECT_TRUE(second.commit().ok());
  EXPECT_TRUE(first.commit().ok());
  Bytes all = pattern(65536, 1);
  for (const Bytes& more : {pattern(65536, 2), pattern(1000, 3)})
    all.insert(all.end(), more.begin(), more.end());
  EXPECT_EQ(lab.read_all(f), all);
}

TEST_F(Data, an_abandoned_write_leaves_nothing_behind_the_end) {
  ASSERT_TRUE(lab.write(f, 0, pattern(100, 1)).ok());
  {
    PlacedWrite w(lab, f, 50, 300000);
    w.pull(pattern(300000, 2));
  }
  EXPECT_EQ(size(f), 100u);
  ASSERT_TRUE(lab.setattr(f, {.size = 400000}).ok());
  EXPECT_TRUE(all_zero(part(lab.read_all(f), 100, 399900)));
  ASSERT_TRUE(lab.setattr(f, {.size = 0}).ok());
  EXPECT_EQ(used(f), 0u);
}

/// Other clients and programs detect from the times that their data is out of date.
TEST_F(Data, an_abandoned_write_changes_times_and_set_id_bits_as_a_whole_one_does) {
  ASSERT_TRUE(lab.write(f, 0, pattern(65536, 1)).ok());
  for (const auto& [who, mode] : {std::pair{kAlice, 0775u}, std::pair{kRoot, 06775u}}) {
    ASSERT_TRUE(lab.setattr(f, {.mode = 06775, .uid = 1000}).ok());
    const Attr before = *lab.getattr(f).attr;
    {
      PlacedWrite w(lab, f, 0, 65536, 0, who);
      w.pull(pattern(30000, 2));
    }
    const Attr after = *lab.getattr(f).attr;
    EXPECT_GT(after.mtime, before.mtime);
    EXPECT_GT(after.ctime, before.ctime);
    EXPECT_EQ(after.mode, mode);
    EXPECT_EQ(after.size, before.size);
  }
}

TEST_F(Data, an_abandoned_write_behind_the_end_changes_no_attribute) {
  ASSERT_TRUE(lab.write(f, 0, pattern(100, 1)).ok());
  ASSERT_TRUE(lab.setattr(f, {.mode = 06775, .uid = 1000}).ok());
  const Attr before = *lab.getattr(f).attr;
  {
    PlacedWrite w(lab, f, 100, 2000, 0, kAlice);
    w.pull(pattern(2000, 2));
  }
  const Attr after = *lab.getattr(f).attr;
  EXPECT_EQ(after.mtime, before.mtime);
  EXPECT_EQ(after.ctime, before.ctime);
  EXPECT_EQ(after.mode, before.mode);
}

/// The file's new block contains the data that had arrived in the old one.
TEST_F(Data, an_abandoned_write_in_a_small_file_that_grew_under_it_changes_times) {
  ASSERT_TRUE(lab.write(f, 0, pattern(2000, 1)).ok());
  const Attr before = *lab.getattr(f).attr;
  auto broken = std::make_unique<PlacedWrite>(lab, f, 0, 1000);
  broken->pull(pattern(1000, 2));
  PlacedWrite(lab, f, 100000, 10).abandon();
  broken.reset();
  ASSERT_EQ(part(lab.read_all(f), 0, 1000), pattern(1000, 2));
  EXPECT_GT(lab.getattr(f).attr->mtime, before.mtime);
}

TEST_F(Data, an_abandoned_write_gives_back_what_it_asked_for) {
  {
    PlacedWrite w(lab, f, 5 << 20, 1 << 20);
    EXPECT_GE(used(f), 1u << 20);
  }
  EXPECT_LE(used(f), 2 * kSmallBytes) << "map pages may stay";
}

TEST_F(Data, an_abandoned_write_does_not_harm_its_repetition) {
  // The call is repeated before the old one is released, as happens after a lost connection.
  const Bytes data = pattern(200000, 4);
  auto broken = std::make_unique<PlacedWrite>(lab, f, 0, 200000);
  broken->pull(part(data, 0, 100000));
  PlacedWrite again(lab, f, 0, 200000);
  again.pull(data);
  broken.reset();
  ASSERT_TRUE(again.commit().ok());
  EXPECT_EQ(lab.read_all(f), data);
}

TEST_F(Data, an_abandoned_write_does_not_harm_its_repetition_in_a_block_with_data) {
  ASSERT_TRUE(lab.write(f, 0, pattern(6000, 1)).ok());
  const Bytes data = pattern(50000, 4);
  auto broken = std::make_unique<PlacedWrite>(lab, f, 5000, 50000);
  PlacedWrite again(lab, f, 5000, 50000);
  again.pull(data);
  broken.reset();
  ASSERT_TRUE(again.commit().ok());
  EXPECT_EQ(lab.read(f, 5000, 50000).data, data);
}

TEST_F(Data, an_abandoned_write_in_a_small_file_that_grew_leaves_nothing) {
  ASSERT_TRUE(lab.write(f, 0, pattern(100, 1)).ok());
  auto broken = std::make_unique<PlacedWrite>(lab, f, 100, 3000);
  broken->pull(pattern(3000, 2));
  ASSERT_TRUE(lab.setattr(f, {.size = 10000}).ok());
  broken.reset();
  const Bytes all = lab.read_all(f);
  EXPECT_EQ(part(all, 0, 100), pattern(100, 1));
  EXPECT_TRUE(all_zero(part(all, 100, 9900)));
}

TEST_F(Data, what_two_abandoned_writes_left_goes_with_the_last) {
  auto one = std::make_unique<PlacedWrite>(lab, f, 0, 60000);
  auto two = std::make_unique<PlacedWrite>(lab, f, 30000, 30000);
  one->pull(pattern(60000, 1));
  two->pull(pattern(30000, 2));
  one.reset();
  two.reset();
  EXPECT_EQ(used(f), 0u);
  ASSERT_TRUE(lab.setattr(f, {.size = 65536}).ok());
  EXPECT_TRUE(all_zero(lab.read_all(f)));
}

TEST_F(Data, a_read_that_ends_last_clears_what_an_abandoned_write_left) {
  ASSERT_TRUE(lab.write(f, 0, pattern(10000, 1)).ok());
  auto write = std::make_unique<PlacedWrite>(lab, f, 5000, 50000);
  PendingRead read(lab, f, 0, 10000);
  write->pull(pattern(50000, 2));
  write.reset();
  read.end();
  ASSERT_TRUE(lab.setattr(f, {.size = 65536}).ok());
  EXPECT_TRUE(all_zero(part(lab.read_all(f), 10000, 55536)));
}

TEST_F(Data, truncation_waits_with_jukebox_when_there_is_no_other_block) {
  Lab tight({.arena_bytes = 2 * kLargeBytes});
  const Handle g = tight.file(tight.root(), "g");
  ASSERT_TRUE(tight.write(g, 0, pattern(2 * kLargeBytes, 1)).ok());
  {
    PendingRead read(tight, g, 0, 10);
    if (tight.reader() == nullptr) {  // otherwise the reserved block replaces the one that is read
      EXPECT_EQ(tight.setattr(g, {.size = 100}).status, Status::Jukebox);
      EXPECT_EQ(tight.getattr(g).attr->size, 2 * kLargeBytes);
    }
  }
  EXPECT_TRUE(tight.setattr(g, {.size = 100}).ok());
}

}  // namespace
}  // namespace sluice::service::test
