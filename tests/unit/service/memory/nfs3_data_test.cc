// SPDX-License-Identifier: Apache-2.0
//
// READ and WRITE: direct placement, counts, sparse and small files.
#include "tests/unit/service/memory/nfs3_data_fixture.h"

namespace sluice::service::test {
namespace {

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

TEST(LargeTransfers, four_mebibytes_are_one_write_and_one_read) {
  constexpr std::uint32_t kBytes = memory::kMaxTransferBytes;
  Lab lab({.max_io_bytes = kBytes});
  const Handle f = lab.file(lab.root(), "f");
  for (const std::uint32_t offset : {0u, 1000u, 65'535u}) {
    const Bytes data = pattern(kBytes, offset);
    const Result written = lab.write(f, offset, data);
    ASSERT_TRUE(written.ok());
    EXPECT_EQ(written.count, kBytes);
    const Result read = lab.read(f, offset, kBytes);
    EXPECT_EQ(read.count, kBytes);
    EXPECT_TRUE(read.eof);
    EXPECT_EQ(read.data, data);
  }
  EXPECT_EQ(lab.read(f, 0, kBytes + 1).count, kBytes);
}

TEST(LargeTransfers, pieces_of_four_mebibytes_are_the_blocks_of_the_file) {
  constexpr std::uint32_t kBytes = memory::kMaxTransferBytes - 1;
  constexpr std::uint32_t kOffset = 1001;
  Lab lab({.max_io_bytes = memory::kMaxTransferBytes});
  const Handle f = lab.file(lab.root(), "f");
  const Bytes data = pattern(kBytes, 7);
  PlacedWrite write(lab, f, kOffset, kBytes, 1);
  ASSERT_EQ(write.placement, Placement::Sink);
  EXPECT_EQ(write.call.pieces().size(), 66u) << "the last for the round-up byte";
  Bytes padded = data;
  padded.push_back(std::byte{0xee});
  write.pull(padded);
  ASSERT_TRUE(write.commit().ok());
  PendingRead read(lab, f, kOffset, kBytes);
  EXPECT_EQ(read.call.pieces().size(), 65u);
  EXPECT_EQ(read.data(), data);
}

TEST(LargeTransfers, holes_of_four_mebibytes_read_as_zeros) {
  constexpr std::uint32_t kBytes = memory::kMaxTransferBytes;
  Lab lab({.max_io_bytes = kBytes});
  const Handle f = lab.file(lab.root(), "f");
  ASSERT_TRUE(lab.setattr(f, {.size = 2 * kBytes}).ok());
  const Result read = lab.read(f, 1, kBytes);
  EXPECT_EQ(read.count, kBytes);
  EXPECT_TRUE(all_zero(read.data));
}

TEST(LargeTransfers, a_write_beyond_what_is_configured_is_refused) {
  for (const std::uint32_t most : {2u << 20, 4u << 20}) {
    Lab lab({.max_io_bytes = most});
    const Handle f = lab.file(lab.root(), "f");
    EXPECT_EQ(PlacedWrite(lab, f, 0, most + 1).answer().status, Status::Inval);
    EXPECT_EQ(lab.write(f, 0, pattern(most + 4, 1)).status, Status::Inval);
    EXPECT_EQ(lab.getattr(f).attr.value_or(Attr{}).size, 0u);
  }
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
    EXPECT_EQ(call.place(lab.front()), Placement::Reply) << placed;
    EXPECT_EQ(call.accepted(), rpc::AcceptStat::GarbageArgs);
    call.release(lab.front());
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
  EXPECT_EQ(call.place(lab.front()), Placement::Assemble);
  call.release(lab.front());
}

}  // namespace
}  // namespace sluice::service::test
