// SPDX-License-Identifier: Apache-2.0
//
// READ and WRITE: direct placement, blocks under transfer, sparse files, quota, and that nobody sees old
// data.
#include <algorithm>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

using memory::kLargeBytes;
using memory::kSmallBytes;

Bytes part(const Bytes& bytes, std::size_t from, std::size_t count) {
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(from);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

bool all_zero(const Bytes& bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

/// A READ whose reply is still on its way out.
class PendingRead {
 public:
  PendingRead(Lab& lab, const Handle& file, std::uint64_t offset, std::uint32_t count) : lab_(lab) {
    arguments_ = encode([&](auto& out) {
      out.opaque(file);
      out.u64(offset);
      out.u32(count);
    });
    lab.prepare(call, ulb::kNfs3Read, kRoot);
    call.start(arguments_);
    EXPECT_EQ(call.execute(lab.service()), Execution::Started);
  }
  ~PendingRead() { end(); }
  Bytes data() const { return decode(ulb::kNfs3Read, call.results()).data; }
  void end() { call.release(lab_.service()); }
  TestCall call;

 private:
  Lab& lab_;
  Bytes arguments_;
};

/// A WRITE whose data comes by Read chunk.
class PlacedWrite {
 public:
  PlacedWrite(Lab& lab, const Handle& file, std::uint64_t offset, std::uint32_t count,
              std::uint32_t surplus = 0, const Caller& who = kRoot)
      : lab_(lab), arguments_(write_head(file, offset, count)) {
    lab.prepare(call, ulb::kNfs3Write, who);
    call.start(arguments_, count + surplus);
    placement = call.place(lab.service());
  }
  ~PlacedWrite() { abandon(); }
  void pull(const Bytes& data) { call.pull(data); }
  Result commit() {
    EXPECT_EQ(call.execute(lab_.service()), Execution::Started);
    Result result = answer();
    call.release(lab_.service());
    return result;
  }
  Result answer() const {
    EXPECT_EQ(call.completions(), 1);
    Result result;
    result.accepted = call.accepted();
    if (call.denied()) result.denied = call.auth_error();
    return !call.denied() && call.accepted() == rpc::AcceptStat::Success
               ? decode(ulb::kNfs3Write, call.results())
               : result;
  }
  void abandon() { call.release(lab_.service()); }
  TestCall call;
  Placement placement;

 private:
  Lab& lab_;
  Bytes arguments_;
};

class Data : public testing::Test {
 protected:
  std::uint64_t size(const Handle& object) { return lab.getattr(object).attr.value_or(Attr{}).size; }
  std::uint64_t used(const Handle& object) { return lab.getattr(object).attr.value_or(Attr{}).used; }
  Lab lab;
  const Handle root = lab.root();
  const Handle f = lab.file(root, "f");
};

// --- READ

TEST_F(Data, read_counts_and_eof) {
  const Bytes data = pattern(10000, 1);
  ASSERT_TRUE(lab.write(f, 0, data).ok());
  Result r = lab.read(f, 0, 10000);
  EXPECT_EQ(r.data, data);
  EXPECT_TRUE(r.eof);
  r = lab.read(f, 100, 9899);
  EXPECT_EQ(r.data, part(data, 100, 9899));
  EXPECT_FALSE(r.eof);
  r = lab.read(f, 9999, 100);
  EXPECT_EQ(r.count, 1u);
  EXPECT_TRUE(r.eof);
  r = lab.read(f, 10000, 1);
  EXPECT_EQ(r.count, 0u);
  EXPECT_TRUE(r.eof);
  r = lab.read(f, 0xffffffffffffffff, 0xffffffff);
  EXPECT_TRUE(r.ok());
  EXPECT_EQ(r.count, 0u);
  r = lab.read(f, 5, 0);
  EXPECT_EQ(r.count, 0u);
  EXPECT_FALSE(r.eof);
  EXPECT_EQ(lab.read(root, 0, 1).status, Status::IsDir);
}

TEST_F(Data, V1_093_a_read_names_the_blocks_of_the_file_itself) {
  ASSERT_TRUE(lab.write(f, 0, pattern(1 << 20, 1)).ok());
  ASSERT_TRUE(lab.write(f, 1 << 20, pattern(1 << 20, 2)).ok());
  PendingRead aligned(lab, f, 0, 1 << 20);
  EXPECT_EQ(aligned.call.pieces().size(), 16u);
  PendingRead unaligned(lab, f, 1000, 1 << 20);
  EXPECT_EQ(unaligned.call.pieces().size(), 17u);
  const auto arena = lab.arena();
  for (const rdma::Sge& piece : unaligned.call.pieces()) {
    EXPECT_GE(piece.address, arena.data());
    EXPECT_LE(piece.address + piece.length, arena.data() + arena.size());
    EXPECT_EQ(piece.lkey, lab.arena_lkey());
  }
}

TEST_F(Data, reads_longer_than_the_limit_are_cut) {
  ASSERT_TRUE(lab.setattr(f, {.size = 3 << 20}).ok());
  const Result r = lab.read(f, 0, 3 << 20);
  EXPECT_EQ(r.count, 1u << 20);
  EXPECT_FALSE(r.eof);
}

TEST_F(Data, V1_196_a_read_that_fails_has_no_item) {
  PendingRead read(lab, root, 0, 100);
  EXPECT_EQ(read.call.pieces().size(), 0u);
  EXPECT_EQ(decode(ulb::kNfs3Read, read.call.results()).status, Status::IsDir);
}

// --- Sparse files

TEST_F(Data, holes_read_as_zeros_and_take_no_room) {
  const Bytes data = pattern(3000, 1);
  const std::uint64_t far = 700ull << 20;
  ASSERT_TRUE(lab.write(f, far, data).ok());
  EXPECT_EQ(size(f), far + 3000);
  EXPECT_LE(used(f), 2 * kLargeBytes);
  EXPECT_TRUE(all_zero(lab.read(f, 0, 1 << 20).data));
  const Result edge = lab.read(f, far - 5000, 8000);
  EXPECT_TRUE(all_zero(part(edge.data, 0, 5000)));
  EXPECT_EQ(part(edge.data, 5000, 3000), data);
  EXPECT_TRUE(edge.eof);
}

TEST_F(Data, the_very_end_of_the_largest_file) {
  const Bytes data = pattern(5, 1);
  ASSERT_TRUE(lab.write(f, memory::kMaxFileBytes - 5, data).ok());
  EXPECT_EQ(lab.read(f, memory::kMaxFileBytes - 5, 10).data, data);
  EXPECT_EQ(lab.write(f, memory::kMaxFileBytes - 4, data).status, Status::FBig);
  EXPECT_EQ(lab.write(f, 0xffffffffffffffff, data).status, Status::FBig);
  ASSERT_TRUE(lab.setattr(f, {.size = 0}).ok());
  EXPECT_EQ(used(f), 0u);
}

TEST_F(Data, extending_shows_zeros_where_data_was_cut_off) {
  for (const std::uint64_t keep : {0ull, 1ull, 4095ull, 4096ull, 65535ull, 65536ull, 65537ull, 600000ull}) {
    ASSERT_TRUE(lab.write(f, 0, pattern(700000, 3)).ok());
    ASSERT_TRUE(lab.setattr(f, {.size = keep}).ok());
    ASSERT_TRUE(lab.setattr(f, {.size = 700000}).ok());
    const Bytes all = lab.read_all(f);
    EXPECT_EQ(part(all, 0, keep), part(pattern(700000, 3), 0, keep)) << keep;
    EXPECT_TRUE(all_zero(part(all, keep, 700000 - keep))) << keep;
  }
}

// --- Small files

TEST_F(Data, small_files_take_small_blocks) {
  for (int i = 0; i < 1000; ++i) {
    const Handle g = lab.file(root, numbered("g", static_cast<unsigned>(i)));
    ASSERT_TRUE(lab.write(g, 0, pattern(kSmallBytes, static_cast<unsigned>(i))).ok());
  }
  const std::uint64_t total = lab.fsstat(root).numbers[0];
  EXPECT_LE(total - lab.fsstat(root).numbers[1], 1000u * kSmallBytes);
  EXPECT_EQ(used(lab.lookup(root, "g7").handle), kSmallBytes);
  EXPECT_EQ(lab.read_all(lab.lookup(root, "g7").handle), pattern(kSmallBytes, 7));
}

TEST_F(Data, a_small_file_grows) {
  const Bytes first = pattern(4000, 1);
  const Bytes second = pattern(200, 2);
  ASSERT_TRUE(lab.write(f, 0, first).ok());
  EXPECT_EQ(used(f), kSmallBytes);
  ASSERT_TRUE(lab.write(f, 4000, second).ok());
  EXPECT_EQ(used(f), kLargeBytes);
  Bytes all = first;
  all.insert(all.end(), second.begin(), second.end());
  EXPECT_EQ(lab.read_all(f), all);
}

TEST_F(Data, a_small_file_that_cannot_move_still_extends_as_a_hole) {
  Lab tight({.arena_bytes = kLargeBytes});
  const Handle g = tight.file(tight.root(), "g");
  ASSERT_TRUE(tight.write(g, 0, pattern(100, 1)).ok());
  ASSERT_TRUE(tight.setattr(g, {.size = 200000}).ok());
  const Bytes all = tight.read_all(g);
  EXPECT_EQ(part(all, 0, 100), pattern(100, 1));
  EXPECT_TRUE(all_zero(part(all, 100, 199900)));
  EXPECT_EQ(tight.write(g, 150000, pattern(10, 1)).status, Status::NoSpc);
  EXPECT_EQ(tight.read(g, 4090, 20).data, Bytes(20));
}

// --- WRITE

TEST_F(Data, write_reports_and_changes_times) {
  const Attr before = *lab.getattr(f).attr;
  const Result w = lab.write(f, 10, pattern(100, 1));
  ASSERT_TRUE(w.ok());
  EXPECT_EQ(w.count, 100u);
  ASSERT_TRUE(w.wcc.before && w.wcc.after);
  EXPECT_EQ(w.wcc.before->size, 0u);
  EXPECT_EQ(w.wcc.before->mtime, before.mtime);
  EXPECT_EQ(w.wcc.after->size, 110u);
  EXPECT_GT(w.wcc.after->mtime, before.mtime);
  const Result nothing = lab.write(f, 500, {});
  ASSERT_TRUE(nothing.ok());
  EXPECT_EQ(nothing.wcc.after->size, 110u);
  EXPECT_EQ(nothing.wcc.after->mtime, w.wcc.after->mtime);
  EXPECT_EQ(lab.write(root, 0, pattern(1, 1)).status, Status::IsDir);
}

TEST_F(Data, write_with_inconsistent_counts_is_garbage) {
  for (const auto& [count, stable, bytes] : {std::array{5u, 0u, 4u}, {4u, 3u, 4u}, {3u, 0u, 4u}}) {
    const Bytes arguments = encode([&, c = count, s = stable, b = bytes](auto& out) {
      out.opaque(f);
      out.u64(0);
      out.u32(c);
      out.u32(s);
      out.u32(b);
      out.u32(0);
    });
    EXPECT_EQ(lab.call(ulb::kNfs3Write, arguments, kRoot).accepted, rpc::AcceptStat::GarbageArgs);
  }
}

TEST_F(Data, V1_193_placed_writes_land_in_the_file_at_any_offset) {
  Bytes model(3 << 20);
  for (const auto& [offset, count] : {std::array{0u, 4096u},
                                      {1u, 1u},
                                      {4090u, 10u},
                                      {65530u, 12u},
                                      {65536u, 65536u},
                                      {100001u, 1048576u},
                                      {131071u, 1048575u},
                                      {2000003u, 999u}}) {
    PlacedWrite w(lab, f, offset, count);
    ASSERT_EQ(w.placement, Placement::Sink);
    EXPECT_LE(w.call.pieces().size(), 17u);
    const Bytes data = pattern(count, offset);
    w.pull(data);
    const Result result = w.commit();
    ASSERT_TRUE(result.ok());
    EXPECT_EQ(result.count, count);
    EXPECT_EQ(result.committed, 2u);
    std::copy(data.begin(), data.end(), model.begin() + offset);
  }
  model.resize(size(f));
  EXPECT_EQ(lab.read_all(f), model);
}

TEST_F(Data, V1_086_pad_bytes_of_the_chunk_do_not_touch_the_file) {
  ASSERT_TRUE(lab.write(f, 0, pattern(70000, 9)).ok());
  Bytes model = pattern(70000, 9);
  for (const std::uint32_t count : {1u, 2u, 3u, 5u, 65533u, 65534u, 65535u}) {
    const std::uint32_t surplus = static_cast<std::uint32_t>(xdr::padded(count)) - count;
    PlacedWrite w(lab, f, 3, count, surplus);
    ASSERT_EQ(w.placement, Placement::Sink);
    Bytes data = pattern(count, count);
    std::copy(data.begin(), data.end(), model.begin() + 3);
    data.resize(count + surplus, std::byte{0xee});
    w.pull(data);
    ASSERT_TRUE(w.commit().ok());
    EXPECT_EQ(lab.read_all(f), model);
  }
}

TEST_F(Data, V1_193_a_chunk_that_does_not_fit_its_count_is_garbage) {
  for (const std::uint32_t placed : {9u, 13u, 16u}) {
    TestCall call;
    const Bytes arguments = write_head(f, 0, 10);
    lab.prepare(call, ulb::kNfs3Write, kRoot);
    call.start(arguments, placed);
    EXPECT_EQ(call.place(lab.service()), Placement::Reply) << placed;
    EXPECT_EQ(call.accepted(), rpc::AcceptStat::GarbageArgs);
    call.release(lab.service());
  }
  EXPECT_EQ(size(f), 0u);
}

TEST_F(Data, a_write_that_cannot_be_is_answered_before_anything_is_pulled) {
  Lab ro({.exports = {{.path = "/a", .read_only = true, .root_squash = false}}});
  const Handle directory = lab.directory(root, "d");
  EXPECT_EQ(PlacedWrite(ro, ro.root(), 0, 100).answer().status, Status::IsDir);
  EXPECT_EQ(PlacedWrite(lab, directory, 0, 100).answer().status, Status::IsDir);
  EXPECT_EQ(PlacedWrite(lab, f, 0, 100, 0, kAlice).answer().status, Status::Acces);
  EXPECT_EQ(PlacedWrite(lab, f, memory::kMaxFileBytes, 1).answer().status, Status::FBig);
  EXPECT_EQ(PlacedWrite(lab, f, 0, (1 << 20) + 1).answer().status, Status::Inval);
  EXPECT_EQ(PlacedWrite(lab, bytes_of("bad"), 0, 1).answer().status, Status::BadHandle);
  PlacedWrite refused(lab, f, 0, 100, 0, kAlice);
  EXPECT_EQ(refused.placement, Placement::Reply);
  ASSERT_TRUE(refused.answer().wcc.after.has_value());
  PlacedWrite denied(lab, f, 0, 100, 0, {.flavor = rpc::AuthFlavor::RpcSecGss});
  EXPECT_EQ(denied.placement, Placement::Reply);
  EXPECT_EQ(denied.answer().denied, rpc::AuthStat::BadCred);
}

TEST_F(Data, symlink_paths_that_come_by_chunk_are_assembled) {
  TestCall call;
  const Bytes arguments = encode([&](auto& out) {
    out.opaque(root);
    out.string("l");
    for (int i = 0; i < 6; ++i) out.u32(0);
    out.u32(5);
  });
  lab.prepare(call, ulb::kNfs3SymLink, kRoot);
  call.start(arguments, 5);
  EXPECT_EQ(call.place(lab.service()), Placement::Assemble);
  call.release(lab.service());
}

// --- Blocks under transfer

TEST_F(Data, a_read_keeps_its_bytes_while_the_file_goes_and_its_memory_is_wanted) {
  Lab tight({.arena_bytes = 4 << 20});
  const Bytes data = pattern(1 << 20, 1);
  const Handle g = tight.file(tight.root(), "g");
  ASSERT_TRUE(tight.write(g, 0, data).ok());
  PendingRead read(tight, g, 0, 1 << 20);
  ASSERT_TRUE(tight.remove(tight.root(), "g").ok());
  tight.settle();
  // Everything that is free gets used.
  const Handle h = tight.file(tight.root(), "h");
  std::uint64_t written = 0;
  while (tight.write(h, written, pattern(kLargeBytes, 2)).ok()) written += kLargeBytes;
  EXPECT_EQ(read.data(), data);
  EXPECT_EQ(tight.write(h, written, pattern(kLargeBytes, 2)).status, Status::NoSpc);
  read.end();
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
  lab.file(root, "g");  // takes the inode
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

TEST_F(Data, an_abandoned_write_gives_back_what_it_asked_for) {
  {
    PlacedWrite w(lab, f, 5 << 20, 1 << 20);
    EXPECT_GE(used(f), 1u << 20);
  }
  EXPECT_LE(used(f), 2 * kSmallBytes) << "map pages may stay";
}

TEST_F(Data, an_abandoned_write_does_not_harm_its_repetition) {
  // As after a broken connection: the call comes again before the old one is released.
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
    EXPECT_EQ(tight.setattr(g, {.size = 100}).status, Status::Jukebox);
    EXPECT_EQ(tight.getattr(g).attr->size, 2 * kLargeBytes);
  }
  EXPECT_TRUE(tight.setattr(g, {.size = 100}).ok());
}

// --- Nobody's data

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
    // One byte in each block: the rest of the block shows what was there.
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

// --- Room

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
  while (big.service().background(0)) ++slices;
  EXPECT_GE(slices, 3200u) << "one block of 64 KiB at a time";
  EXPECT_EQ(big.fsstat(big.root()).numbers[1], 256u << 20);
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
  EXPECT_EQ(big.fsstat(big.root()).numbers[1], 300u << 20);
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

}  // namespace
}  // namespace sluice::service::test
