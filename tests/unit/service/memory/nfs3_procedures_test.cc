// SPDX-License-Identifier: Apache-2.0
//
// The procedures of RFC 1813, section 3.3, on one object or the file system: results, error arms, weak cache
// consistency data. Also properties that all procedures share.
#include "tests/unit/service/memory/nfs3_fixture.h"

namespace sluice::service::test {
namespace {

TEST_F(Nfs3, null_answers_without_a_credential) {
  EXPECT_TRUE(lab.call(ulb::kNfs3Null, {}, {.flavor = rpc::AuthFlavor::None}).ok());
  EXPECT_TRUE(lab.call(ulb::kNfs3Null, {}, {.flavor = rpc::AuthFlavor::RpcSecGss}).ok());
}

TEST_F(Nfs3, unknown_procedures_are_unavailable) {
  for (const std::uint32_t procedure : {22u, 23u, 1000u, 0xffffffffu})
    EXPECT_EQ(lab.call(procedure, {}, kRoot).accepted, rpc::AcceptStat::ProcUnavail);
}

TEST_F(Nfs3, truncated_arguments_are_garbage_for_every_procedure) {
  lab.file(root, "f");
  const std::vector<std::pair<std::uint32_t, Bytes>> calls = {
      {1, encode([&](auto& o) { o.opaque(root); })},
      {2, encode([&](auto& o) {
         o.opaque(root);
         for (int i = 0; i < 7; ++i) o.u32(0);
       })},
      {3, encode([&](auto& o) {
         o.opaque(root);
         o.string("f");
       })},
      {4, encode([&](auto& o) {
         o.opaque(root);
         o.u32(63);
       })},
      {5, encode([&](auto& o) { o.opaque(root); })},
      {6, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u32(1);
       })},
      {7, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u32(1);
         o.u32(0);
         o.string("x");
       })},
      {8, encode([&](auto& o) {
         o.opaque(root);
         o.string("g");
         for (int i = 0; i < 7; ++i) o.u32(0);
       })},
      {9, encode([&](auto& o) {
         o.opaque(root);
         o.string("d");
         for (int i = 0; i < 6; ++i) o.u32(0);
       })},
      {10, encode([&](auto& o) {
         o.opaque(root);
         o.string("l");
         for (int i = 0; i < 6; ++i) o.u32(0);
         o.string("p");
       })},
      {11, encode([&](auto& o) {
         o.opaque(root);
         o.string("n");
         o.u32(7);
         for (int i = 0; i < 6; ++i) o.u32(0);
       })},
      {12, encode([&](auto& o) {
         o.opaque(root);
         o.string("gone");
       })},
      {13, encode([&](auto& o) {
         o.opaque(root);
         o.string("gone");
       })},
      {14, encode([&](auto& o) {
         o.opaque(root);
         o.string("gone");
         o.opaque(root);
         o.string("x");
       })},
      {15, encode([&](auto& o) {
         o.opaque(root);
         o.opaque(root);
         o.string("x");
       })},
      {16, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u64(0);
         o.u32(4096);
       })},
      {17, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u64(0);
         o.u32(4096);
         o.u32(4096);
       })},
      {18, encode([&](auto& o) { o.opaque(root); })},
      {19, encode([&](auto& o) { o.opaque(root); })},
      {20, encode([&](auto& o) { o.opaque(root); })},
      {21, encode([&](auto& o) {
         o.opaque(root);
         o.u64(0);
         o.u32(0);
       })},
  };
  for (const auto& [procedure, whole] : calls) {
    EXPECT_EQ(lab.call(procedure, whole, kRoot).accepted, rpc::AcceptStat::Success) << procedure;
    for (std::size_t bytes = 0; bytes < whole.size(); bytes += 4) {
      const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(lab.call(procedure, cut, kRoot).accepted, rpc::AcceptStat::GarbageArgs)
          << "procedure " << procedure << " with " << bytes << " bytes";
    }
  }
}

TEST_F(Nfs3, getattr_of_a_new_file) {
  set_test_clock(1'750'000'000'123'456'000);
  const Result made = lab.create(root, "f", {.mode = 0640, .uid = 7, .gid = 8});
  ASSERT_TRUE(made.ok());
  const Attr a = attr(made.handle);
  EXPECT_EQ(a.type, 1u);
  EXPECT_EQ(a.mode, 0640u);
  EXPECT_EQ(a.links, 1u);
  EXPECT_EQ(a.uid, 7u);
  EXPECT_EQ(a.gid, 8u);
  EXPECT_EQ(a.size, 0u);
  EXPECT_EQ(a.used, 0u);
  EXPECT_EQ(a.fsid, attr(root).fsid);
  EXPECT_NE(a.fileid, attr(root).fileid);
  EXPECT_EQ(a.mtime / 1'000'000, 1'750'000'000'123u);
}

TEST_F(Nfs3, setattr_sets_each_attribute) {
  const Handle f = lab.file(root, "f");
  const Attr before = attr(f);
  const Result set = lab.setattr(f, {.mode = 04711,
                                     .uid = 5,
                                     .gid = 6,
                                     .size = 12345,
                                     .atime_how = 2,
                                     .mtime_how = 2,
                                     .atime = 1'000'000'007,
                                     .mtime = 4'000'000'000'999'999'999});
  ASSERT_TRUE(set.ok());
  expect_changed(set.wcc, before);
  const Attr a = attr(f);
  EXPECT_EQ(a.mode, 04711u);
  EXPECT_EQ(a.uid, 5u);
  EXPECT_EQ(a.gid, 6u);
  EXPECT_EQ(a.size, 12345u);
  EXPECT_EQ(a.atime, 1'000'000'007u);
  EXPECT_EQ(a.mtime, 4'000'000'000'999'999'999u);
  ASSERT_TRUE(lab.setattr(f, {.atime_how = 1, .mtime_how = 1}).ok());
  EXPECT_GT(attr(f).atime, before.atime);
}

TEST_F(Nfs3, setattr_guard_compares_ctime) {
  const Handle f = lab.file(root, "f");
  const std::uint64_t ctime = attr(f).ctime;
  const Result off = lab.setattr(f, {.mode = 0600}, kRoot, ctime + 1);
  EXPECT_EQ(off.status, Status::NotSync);
  expect_unchanged(off.wcc);
  EXPECT_EQ(attr(f).mode, 0644u);
  EXPECT_TRUE(lab.setattr(f, {.mode = 0600}, kRoot, ctime).ok());
  EXPECT_EQ(attr(f).mode, 0600u);
}

TEST_F(Nfs3, setattr_size_only_of_files_and_within_limits) {
  const Handle d = lab.directory(root, "d");
  EXPECT_EQ(lab.setattr(d, {.size = 0}).status, Status::IsDir);
  const Handle l = lab.symlink(root, "l", "x").handle;
  EXPECT_EQ(lab.setattr(l, {.size = 0}).status, Status::Inval);
  const Handle f = lab.file(root, "f");
  EXPECT_EQ(lab.setattr(f, {.size = memory::kMaxFileBytes + 1}).status, Status::FBig);
  EXPECT_TRUE(lab.setattr(f, {.size = memory::kMaxFileBytes}).ok());
  EXPECT_EQ(attr(f).size, memory::kMaxFileBytes);
}

TEST_F(Nfs3, setattr_with_an_undefined_time_rule_is_garbage) {
  const Bytes arguments = encode([&](auto& out) {
    out.opaque(root);
    for (int i = 0; i < 4; ++i) out.boolean(false);
    out.u32(3);
    out.u32(0);
    out.boolean(false);
  });
  EXPECT_EQ(lab.call(ulb::kNfs3SetAttr, arguments, kRoot).accepted, rpc::AcceptStat::GarbageArgs);
}

TEST_F(Nfs3, fsstat_follows_use) {
  const Result before = lab.fsstat(root);
  ASSERT_TRUE(before.ok());
  const std::uint64_t total = before.numbers[0];
  EXPECT_EQ(total, lab.capacity());
  EXPECT_EQ(before.numbers[1], total);
  EXPECT_EQ(before.numbers[3], 30000u);
  EXPECT_EQ(before.numbers[4], 29999u) << "the root is one";
  const Handle f = lab.file(root, "f");
  ASSERT_TRUE(lab.write(f, 0, pattern(1 << 20, 1)).ok());
  const Result after = lab.fsstat(root);
  EXPECT_EQ(after.numbers[1], total - attr(f).used);
  EXPECT_EQ(after.numbers[4], 29998u);
  ASSERT_TRUE(lab.remove(root, "f").ok());
  EXPECT_EQ(lab.fsstat(root).numbers[1], total) << "before anything was reclaimed or scrubbed";
}

TEST_F(Nfs3, fsinfo_and_pathconf_say_what_the_export_does) {
  const Result info = lab.fsinfo(root);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info.numbers[0], 1u << 20) << "rtmax";
  EXPECT_EQ(info.numbers[3], 1u << 20) << "wtmax";
  EXPECT_EQ(info.numbers[6], 64u << 10) << "dtpref";
  EXPECT_EQ(info.numbers[7], memory::kMaxFileBytes);
  EXPECT_EQ(info.numbers[8], 1u) << "time_delta";
  EXPECT_EQ(info.numbers[9], 0x1bu) << "links, symbolic links, homogeneous, can set time";
  const Result conf = lab.pathconf(root);
  ASSERT_TRUE(conf.ok());
  EXPECT_EQ(conf.numbers, (std::vector<std::uint64_t>{memory::kMaxLinks, 255, 1, 1, 0, 1}));
}

TEST(Nfs3Sizes, fsinfo_says_what_is_configured) {
  for (const std::uint32_t most : {1u << 20, 2u << 20, 4u << 20}) {
    Lab sized({.max_io_bytes = most});
    const Result info = sized.fsinfo(sized.root());
    ASSERT_TRUE(info.ok());
    for (const std::size_t number : {0u, 1u, 3u, 4u}) EXPECT_EQ(info.numbers[number], most) << number;
  }
}

TEST_F(Nfs3, commit_answers_the_verifier_of_write) {
  const Handle f = lab.file(root, "f");
  const Result written = lab.write(f, 0, bytes_of("x"), kRoot, 0);
  ASSERT_TRUE(written.ok());
  EXPECT_EQ(written.committed, 2u) << "FILE_SYNC";
  const Result committed = lab.commit(f);
  ASSERT_TRUE(committed.ok());
  EXPECT_EQ(committed.verifier, written.verifier);
  expect_unchanged(committed.wcc);
  EXPECT_EQ(lab.commit(root).status, Status::Inval);
  Lab next;
  EXPECT_NE(next.commit(next.file(next.root(), "f")).verifier, written.verifier) << "another start";
}

TEST_F(Nfs3, every_procedure_refuses_a_handle_that_is_none) {
  const Handle bad = bytes_of("no handle");
  EXPECT_EQ(lab.getattr(bad).status, Status::BadHandle);
  EXPECT_EQ(lab.setattr(bad, {}).status, Status::BadHandle);
  EXPECT_EQ(lab.lookup(bad, "x").status, Status::BadHandle);
  EXPECT_EQ(lab.access(bad, 1).status, Status::BadHandle);
  EXPECT_EQ(lab.readlink(bad).status, Status::BadHandle);
  EXPECT_EQ(lab.read(bad, 0, 1).status, Status::BadHandle);
  EXPECT_EQ(lab.write(bad, 0, bytes_of("x")).status, Status::BadHandle);
  EXPECT_EQ(lab.create(bad, "x").status, Status::BadHandle);
  EXPECT_EQ(lab.mkdir(bad, "x").status, Status::BadHandle);
  EXPECT_EQ(lab.symlink(bad, "x", "y").status, Status::BadHandle);
  EXPECT_EQ(lab.mknod(bad, "x", 7).status, Status::BadHandle);
  EXPECT_EQ(lab.remove(bad, "x").status, Status::BadHandle);
  EXPECT_EQ(lab.rmdir(bad, "x").status, Status::BadHandle);
  EXPECT_EQ(lab.rename(bad, "x", root, "y").status, Status::BadHandle);
  EXPECT_EQ(lab.rename(root, "x", bad, "y").status, Status::BadHandle);
  EXPECT_EQ(lab.link(bad, root, "y").status, Status::BadHandle);
  EXPECT_EQ(lab.readdir(bad, 0, 0, 4096).status, Status::BadHandle);
  EXPECT_EQ(lab.readdirplus(bad, 0, 0, 4096, 4096).status, Status::BadHandle);
  EXPECT_EQ(lab.fsstat(bad).status, Status::BadHandle);
  EXPECT_EQ(lab.fsinfo(bad).status, Status::BadHandle);
  EXPECT_EQ(lab.pathconf(bad).status, Status::BadHandle);
  EXPECT_EQ(lab.commit(bad).status, Status::BadHandle);
  EXPECT_EQ(lab.getacl(bad, 1).status, Status::BadHandle);
  EXPECT_EQ(lab.setacl(bad, 1, {}, {}).status, Status::BadHandle);
}

TEST_F(Nfs3, files_run_out_with_nospc_and_come_back) {
  Lab small({.max_files = 10});
  int made = 0;
  while (small.create(small.root(), numbered("f", made)).ok()) ++made;
  EXPECT_EQ(made, 9);
  EXPECT_EQ(small.mkdir(small.root(), "d").status, Status::NoSpc);
  ASSERT_TRUE(small.remove(small.root(), "f0").ok());
  EXPECT_TRUE(small.mkdir(small.root(), "d").ok());
}

/// Creates files until the export is full. Returns their number.
std::uint32_t fill(Lab& lab, std::uint32_t id) {
  std::uint32_t made = 0;
  while (lab.create(lab.root(id), numbered("f", made)).ok()) ++made;
  EXPECT_EQ(lab.mkdir(lab.root(id), "d").status, Status::NoSpc);
  EXPECT_EQ(lab.fsstat(lab.root(id)).numbers[5], 0u) << "what FSSTAT calls available";
  return made;
}

const std::vector<ExportOptions> kTwoExports = {{.path = "/a", .root_squash = false},
                                                {.path = "/b", .root_squash = false}};

TEST_F(Nfs3, an_export_that_takes_all_files_leaves_the_others_their_share) {
  Lab two({.max_files = 100, .exports = kTwoExports});
  constexpr std::uint32_t kShare = 25;  // half of the export's half
  EXPECT_EQ(fill(two, 0), 100 - kShare - 1) << "the root is one";
  EXPECT_EQ(two.fsstat(two.root(1)).numbers[5], kShare - 1);
  EXPECT_EQ(fill(two, 1), kShare - 1);
  // An inode beyond the first export's share is available to both.
  ASSERT_TRUE(two.remove(two.root(0), "f0").ok());
  EXPECT_TRUE(two.create(two.root(1), "more").ok());
  // An inode of the second export's share stays reserved for it.
  ASSERT_TRUE(two.remove(two.root(1), "more").ok());
  ASSERT_TRUE(two.remove(two.root(1), "f0").ok());
  EXPECT_TRUE(two.create(two.root(0), "f0").ok());
  EXPECT_EQ(two.create(two.root(0), "more").status, Status::NoSpc);
  EXPECT_TRUE(two.create(two.root(1), "f0").ok());
}

/// A hard link uses an entry and no inode. The number of entries is twice that of inodes.
TEST_F(Nfs3, an_export_that_takes_all_entries_leaves_the_others_their_share) {
  Lab two({.max_files = 100, .exports = kTwoExports});
  const Handle f = two.file(two.root(0), "f");
  std::uint32_t made = 0;
  while (two.link(f, two.root(0), numbered("l", made)).ok()) ++made;
  EXPECT_EQ(made, 200u - 50 - 1);
  EXPECT_EQ(two.create(two.root(0), "g").status, Status::NoSpc);
  EXPECT_TRUE(two.rename(two.root(0), "l0", two.root(0), "renamed").ok()) << "a place is free meanwhile";
  EXPECT_TRUE(two.lookup(two.root(0), "renamed").ok());
  EXPECT_EQ(fill(two, 1), 50u);
}

TEST_F(Nfs3, an_export_that_is_removed_has_no_share_and_one_that_is_added_has) {
  Lab it({.max_files = 100, .exports = kTwoExports});
  std::vector<ExportOptions> one = {kTwoExports[0]};
  it.service().exchange_exports(one);
  EXPECT_EQ(it.fsstat(it.root(0)).numbers[5], 98u) << "two roots";
  std::uint32_t made = 0;
  for (; made < 80; ++made) ASSERT_TRUE(it.create(it.root(0), numbered("f", made)).ok());
  std::vector<ExportOptions> two = kTwoExports;
  it.service().exchange_exports(two);
  EXPECT_EQ(it.create(it.root(0), "more").status, Status::NoSpc) << "18 are left";
  EXPECT_TRUE(it.rename(it.root(0), "f1", it.root(0), "renamed").ok());
  EXPECT_EQ(fill(it, 1), 18u);
  for (std::uint32_t i = 2; i < 8; ++i) ASSERT_TRUE(it.remove(it.root(0), numbered("f", i)).ok());
  EXPECT_EQ(it.create(it.root(0), "more").status, Status::NoSpc) << "they are of the other's share";
  EXPECT_TRUE(it.create(it.root(1), "more").ok());
}

TEST_F(Nfs3, statistics_count_calls_and_errors_by_procedure_and_export) {
  Lab two({.exports = {{.path = "/a"}, {.path = "/b"}}});
  two.getattr(two.root(0));
  two.getattr(two.root(1));
  two.lookup(two.root(1), "none");
  two.getattr(bytes_of("bad"));
  two.getacl(two.root(1), 1);
  using Statistics = memory::ExportStatistics;
  const auto calls = [](const Statistics& s) -> auto& {
    return s.calls;
  };
  const auto errors = [](const Statistics& s) -> auto& {
    return s.errors;
  };
  EXPECT_EQ(two.counted(0, calls), 1u);
  EXPECT_EQ(two.counted(1, calls), 3u);
  EXPECT_EQ(two.counted(1, errors), 1u);
  EXPECT_EQ(two.counted(
                1, [](const Statistics& s) -> auto& { return s.procedures[ulb::kNfs3Lookup].errors; }),
            1u);
  EXPECT_EQ(two.counted(
                1, [](const Statistics& s) -> auto& { return s.procedures[ulb::kNfs3GetAttr].calls; }),
            1u);
  EXPECT_EQ(two.counted(memory::kNoExport, errors), 1u) << "a handle of no export";
}

}  // namespace
}  // namespace sluice::service::test
