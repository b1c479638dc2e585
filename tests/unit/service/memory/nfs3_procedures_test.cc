// SPDX-License-Identifier: Apache-2.0
//
// The procedures of RFC 1813, section 3.3, one by one: results, error arms, weak cache consistency data.
#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

/// Both halves are there, and say what the client would see before and after.
void expect_changed(const Wcc& wcc, const Attr& before) {
  ASSERT_TRUE(wcc.before && wcc.after);
  EXPECT_EQ(wcc.before->mtime, before.mtime);
  EXPECT_EQ(wcc.before->ctime, before.ctime);
  EXPECT_EQ(wcc.before->size, before.size);
  EXPECT_GT(wcc.after->ctime, before.ctime);
}
void expect_unchanged(const Wcc& wcc) {
  ASSERT_TRUE(wcc.before && wcc.after);
  EXPECT_EQ(wcc.before->ctime, wcc.after->ctime);
  EXPECT_EQ(wcc.before->mtime, wcc.after->mtime);
}

class Nfs3 : public testing::Test {
 protected:
  Attr attr(const Handle& object) {
    const Result result = lab.getattr(object);
    EXPECT_TRUE(result.ok());
    return result.attr.value_or(Attr{});
  }
  Lab lab;
  const Handle root = lab.root();
};

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

TEST_F(Nfs3, lookup_finds_names_dot_and_dotdot) {
  const Handle d = lab.directory(root, "d");
  const Handle f = lab.file(d, "f");
  const Result found = lab.lookup(d, "f");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.handle, f);
  ASSERT_TRUE(found.attr && found.dir_attr);
  EXPECT_EQ(found.attr->fileid, attr(f).fileid);
  EXPECT_EQ(found.dir_attr->fileid, attr(d).fileid);
  EXPECT_EQ(lab.lookup(d, ".").handle, d);
  EXPECT_EQ(lab.lookup(d, "..").handle, root);
  EXPECT_EQ(lab.lookup(root, "..").handle, root) << "there is nothing above an export's root";
}

TEST_F(Nfs3, lookup_errors) {
  const Handle f = lab.file(root, "f");
  const Result none = lab.lookup(root, "none");
  EXPECT_EQ(none.status, Status::NoEnt);
  EXPECT_TRUE(none.dir_attr.has_value());
  EXPECT_EQ(lab.lookup(f, "x").status, Status::NotDir);
  EXPECT_EQ(lab.lookup(root, "").status, Status::Acces);
  EXPECT_EQ(lab.lookup(root, std::string(256, 'n')).status, Status::NameTooLong);
  EXPECT_EQ(lab.lookup(root, std::string(255, 'n')).status, Status::NoEnt);
}

TEST_F(Nfs3, names_with_slash_or_nul_are_refused_everywhere) {
  const Handle f = lab.file(root, "f");
  for (const std::string_view bad :
       {std::string_view("a/b"), std::string_view("a\0b", 3), std::string_view("")}) {
    EXPECT_EQ(lab.create(root, bad).status, Status::Acces);
    EXPECT_EQ(lab.mkdir(root, bad).status, Status::Acces);
    EXPECT_EQ(lab.symlink(root, bad, "x").status, Status::Acces);
    EXPECT_EQ(lab.mknod(root, bad, 7).status, Status::Acces);
    EXPECT_EQ(lab.remove(root, bad).status, Status::Acces);
    EXPECT_EQ(lab.rmdir(root, bad).status, Status::Acces);
    EXPECT_EQ(lab.rename(root, "f", root, bad).status, Status::Acces);
    EXPECT_EQ(lab.rename(root, bad, root, "g").status, Status::Acces);
    EXPECT_EQ(lab.link(f, root, bad).status, Status::Acces);
  }
  EXPECT_EQ(lab.list(root).size(), 1u);
}

TEST_F(Nfs3, names_of_255_bytes_work_and_of_256_do_not) {
  const std::string longest(255, 'x');
  const Handle f = lab.file(root, longest);
  EXPECT_EQ(lab.lookup(root, longest).handle, f);
  EXPECT_EQ(lab.create(root, longest + "y").status, Status::NameTooLong);
  EXPECT_EQ(lab.mkdir(root, longest + "y").status, Status::NameTooLong);
  EXPECT_EQ(lab.rename(root, longest, root, longest + "y").status, Status::NameTooLong);
  EXPECT_EQ(lab.list(root)[0].name, longest);
}

TEST_F(Nfs3, create_unchecked_keeps_what_is_there) {
  const Attr before = attr(root);
  const Result made = lab.create(root, "f", {.mode = 0600});
  ASSERT_TRUE(made.ok());
  expect_changed(made.wcc, before);
  EXPECT_EQ(made.attr->mode, 0600u);
  ASSERT_TRUE(lab.write(made.handle, 0, bytes_of("data")).ok());
  const Result again = lab.create(root, "f", {.mode = 0777});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again.handle, made.handle);
  EXPECT_EQ(again.attr->mode, 0600u) << "attributes other than size are not set again";
  EXPECT_EQ(lab.read_all(made.handle), bytes_of("data"));
  ASSERT_TRUE(lab.create(root, "f", {.size = 0}).ok());
  EXPECT_TRUE(lab.read_all(made.handle).empty());
}

TEST_F(Nfs3, create_guarded_refuses_what_is_there) {
  lab.file(root, "f");
  const Result again = lab.create(root, "f", {}, kRoot, true);
  EXPECT_EQ(again.status, Status::Exist);
  expect_unchanged(again.wcc);
  lab.directory(root, "d");
  EXPECT_EQ(lab.create(root, "d").status, Status::Exist) << "unchecked, but not a file";
  EXPECT_EQ(lab.create(root, ".").status, Status::Exist);
  EXPECT_EQ(lab.create(root, "..").status, Status::Exist);
}

TEST_F(Nfs3, create_exclusive_is_recognized_when_repeated) {
  const Result made = lab.create_exclusive(root, "f", 0x1122334455667788);
  ASSERT_TRUE(made.ok());
  const Result replay = lab.create_exclusive(root, "f", 0x1122334455667788);
  ASSERT_TRUE(replay.ok());
  EXPECT_EQ(replay.handle, made.handle);
  EXPECT_EQ(lab.create_exclusive(root, "f", 0x1122334455667789).status, Status::Exist);
}

TEST_F(Nfs3, create_exclusive_with_verifier_zero_is_no_replay_of_another_create) {
  lab.file(root, "f");
  EXPECT_EQ(lab.create_exclusive(root, "f", 0).status, Status::Exist);
  ASSERT_TRUE(lab.create_exclusive(root, "g", 0).ok());
  EXPECT_TRUE(lab.create_exclusive(root, "g", 0).ok());
}

TEST_F(Nfs3, create_over_the_largest_size_makes_nothing) {
  EXPECT_EQ(lab.create(root, "f", {.size = memory::kMaxFileBytes + 1}).status, Status::FBig);
  EXPECT_EQ(lab.lookup(root, "f").status, Status::NoEnt);
}

TEST_F(Nfs3, create_with_an_undefined_mode_is_garbage) {
  const Bytes arguments = encode([&](auto& out) {
    out.opaque(root);
    out.string("f");
    out.u32(3);
    out.u64(0);
  });
  EXPECT_EQ(lab.call(ulb::kNfs3Create, arguments, kRoot).accepted, rpc::AcceptStat::GarbageArgs);
}

TEST_F(Nfs3, mkdir_and_rmdir_count_links) {
  const Attr before = attr(root);
  const Result made = lab.mkdir(root, "d", {.mode = 0710});
  ASSERT_TRUE(made.ok());
  expect_changed(made.wcc, before);
  EXPECT_EQ(made.attr->type, 2u);
  EXPECT_EQ(made.attr->mode, 0710u);
  EXPECT_EQ(made.attr->links, 2u);
  EXPECT_EQ(attr(root).links, before.links + 1);
  EXPECT_EQ(lab.mkdir(root, "d").status, Status::Exist);
  lab.file(made.handle, "f");
  EXPECT_EQ(lab.rmdir(root, "d").status, Status::NotEmpty);
  ASSERT_TRUE(lab.remove(made.handle, "f").ok());
  const Attr then = attr(root);
  const Result gone = lab.rmdir(root, "d");
  ASSERT_TRUE(gone.ok());
  expect_changed(gone.wcc, then);
  EXPECT_EQ(attr(root).links, before.links);
  EXPECT_EQ(lab.getattr(made.handle).status, Status::Stale);
  EXPECT_EQ(lab.create(made.handle, "x").status, Status::Stale);
}

TEST_F(Nfs3, rmdir_and_remove_errors) {
  const Handle d = lab.directory(root, "d");
  lab.file(root, "f");
  EXPECT_EQ(lab.rmdir(root, "f").status, Status::NotDir);
  EXPECT_EQ(lab.remove(root, "d").status, Status::IsDir);
  EXPECT_EQ(lab.remove(root, "none").status, Status::NoEnt);
  EXPECT_EQ(lab.rmdir(root, "none").status, Status::NoEnt);
  EXPECT_EQ(lab.rmdir(d, ".").status, Status::Inval);
  EXPECT_EQ(lab.rmdir(d, "..").status, Status::Exist);
  const Result unchanged = lab.remove(root, "none");
  expect_unchanged(unchanged.wcc);
}

/// The same call again, as a client sends it that lost its connection before it had the reply.
class Nfs3Repeated : public Nfs3 {
 protected:
  Bytes results_of(std::uint32_t xid, std::uint32_t procedure, std::string_view name,
                   const Caller& caller = kRoot) {
    Bytes room(256);
    xdr::Writer out(room);
    out.opaque(root);
    out.opaque(std::as_bytes(std::span(name)));
    if (procedure == 9) {  // MKDIR: no attributes
      for (int i = 0; i < 6; ++i) out.u32(0);
    }
    room.resize(out.position());
    TestCall call;
    lab.prepare(call, procedure, caller);
    call.header().xid = static_cast<rpc::Xid>(xid);
    call.start(room);
    EXPECT_EQ(call.execute(lab.service()), Execution::Started);
    EXPECT_EQ(call.completions(), 1);
    const Bytes results = call.results();
    call.release(lab.service());
    return results;
  }
  static constexpr std::uint32_t kMkDir = 9;
  static constexpr std::uint32_t kRemove = 12;
  static std::uint32_t status_of(const Bytes& results) { return xdr::load_u32(results.data()); }
};

TEST_F(Nfs3Repeated, a_removal_and_a_creation_that_come_again_get_their_first_answers) {
  lab.file(root, "f");
  const Bytes removed = results_of(700, kRemove, "f");
  EXPECT_EQ(status_of(removed), 0u);
  EXPECT_EQ(results_of(700, kRemove, "f"), removed);
  EXPECT_EQ(lab.service().statistics(service::memory::kNoExport).repeated, 1u);
  const Bytes made = results_of(701, kMkDir, "d");
  EXPECT_EQ(status_of(made), 0u);
  EXPECT_EQ(results_of(701, kMkDir, "d"), made);
  // An answer that was an error is the answer too.
  const Bytes exists = results_of(702, kMkDir, "d");
  EXPECT_EQ(status_of(exists), static_cast<std::uint32_t>(Status::Exist));
  lab.rmdir(root, "d");
  EXPECT_EQ(results_of(702, kMkDir, "d"), exists);
}

TEST_F(Nfs3Repeated, another_xid_client_or_argument_is_another_call) {
  lab.file(root, "f");
  EXPECT_EQ(status_of(results_of(700, kRemove, "f")), 0u);
  EXPECT_EQ(status_of(results_of(701, kRemove, "f")), static_cast<std::uint32_t>(Status::NoEnt));
  Caller other = kRoot;
  other.peer = PeerAddress::from_ipv4(192, 0, 2, 99);
  EXPECT_EQ(status_of(results_of(700, kRemove, "f", other)), static_cast<std::uint32_t>(Status::NoEnt));
  EXPECT_EQ(status_of(results_of(700, kRemove, "g")), static_cast<std::uint32_t>(Status::NoEnt));
}

TEST_F(Nfs3Repeated, answers_are_forgotten_in_time_and_for_want_of_room) {
  lab.file(root, "f");
  set_test_clock(1'760'000'000'000'000'000);
  EXPECT_EQ(status_of(results_of(700, kRemove, "f")), 0u);
  set_test_clock(1'760'000'000'000'000'000 + memory::kKeepReplyNs + 1'000'000);
  EXPECT_EQ(status_of(results_of(700, kRemove, "f")), static_cast<std::uint32_t>(Status::NoEnt));
  lab.file(root, "f");
  EXPECT_EQ(status_of(results_of(800, kRemove, "f")), 0u);
  for (std::uint32_t xid = 1000; xid < 1000 + 20 * memory::kReplySets * memory::kReplyWays; ++xid)
    results_of(xid, kRemove, "none");
  EXPECT_EQ(status_of(results_of(800, kRemove, "f")), static_cast<std::uint32_t>(Status::NoEnt));
}

TEST_F(Nfs3, symlink_and_readlink) {
  const Result made = lab.symlink(root, "l", "../target of the link");
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.attr->type, 5u);
  EXPECT_EQ(made.attr->mode, 0777u);
  EXPECT_EQ(made.attr->size, 21u);
  const Result read = lab.readlink(made.handle);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read.data, bytes_of("../target of the link"));
  EXPECT_TRUE(read.attr.has_value());
  const std::string longest(memory::kMaxSymlinkBytes, 'p');
  EXPECT_EQ(lab.readlink(lab.symlink(root, "m", longest).handle).data, bytes_of(longest));
  EXPECT_EQ(lab.symlink(root, "n", longest + "p").status, Status::NameTooLong);
  EXPECT_EQ(lab.symlink(root, "n", "").status, Status::Inval);
  EXPECT_EQ(lab.symlink(root, "l", "x").status, Status::Exist);
  EXPECT_EQ(lab.readlink(lab.file(root, "f")).status, Status::Inval);
  EXPECT_EQ(lab.read(made.handle, 0, 10).status, Status::Inval);
}

TEST_F(Nfs3, mknod_makes_the_four_special_types) {
  for (const std::uint32_t type : {3u, 4u, 6u, 7u}) {
    const Result made = lab.mknod(root, numbered("n", type), type, kRoot, {.mode = 0604}, 250, 17);
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made.attr->type, type);
    EXPECT_EQ(made.attr->mode, 0604u);
    const bool device = type == 3 || type == 4;
    EXPECT_EQ(made.attr->major, device ? 250u : 0u);
    EXPECT_EQ(made.attr->minor, device ? 17u : 0u);
    EXPECT_EQ(lab.read(made.handle, 0, 1).status, Status::Inval);
    EXPECT_EQ(lab.write(made.handle, 0, bytes_of("x")).status, Status::Inval);
  }
  for (const std::uint32_t type : {0u, 1u, 2u, 5u, 8u, 256u + 7u})
    EXPECT_EQ(lab.mknod(root, "x", type).status, Status::BadType);
  EXPECT_EQ(lab.mknod(root, "n7", 7).status, Status::Exist);
  EXPECT_EQ(lab.mknod(root, "dev", 4, kAlice).status, Status::Perm);
  EXPECT_TRUE(lab.mknod(root, "fifo", 7, kAlice).ok());
}

TEST_F(Nfs3, link_counts_and_shares) {
  const Handle f = lab.file(root, "f");
  const Handle d = lab.directory(root, "d");
  const Attr before = attr(d);
  const Result made = lab.link(f, d, "g");
  ASSERT_TRUE(made.ok());
  expect_changed(made.wcc, before);
  EXPECT_EQ(made.attr->links, 2u);
  EXPECT_EQ(lab.lookup(d, "g").handle, f);
  ASSERT_TRUE(lab.write(f, 0, bytes_of("shared")).ok());
  ASSERT_TRUE(lab.remove(root, "f").ok());
  EXPECT_EQ(lab.read_all(f), bytes_of("shared"));
  EXPECT_EQ(attr(f).links, 1u);
  ASSERT_TRUE(lab.remove(d, "g").ok());
  EXPECT_EQ(lab.getattr(f).status, Status::Stale);
}

TEST_F(Nfs3, link_errors) {
  const Handle f = lab.file(root, "f");
  const Handle d = lab.directory(root, "d");
  EXPECT_EQ(lab.link(d, root, "e").status, Status::Inval);
  EXPECT_EQ(lab.link(f, root, "d").status, Status::Exist);
  EXPECT_EQ(lab.link(f, root, ".").status, Status::Exist);
  EXPECT_EQ(lab.link(f, f, "x").status, Status::NotDir);
  const Result stale = lab.link(bytes_of("garbage"), root, "x");
  EXPECT_EQ(stale.status, Status::BadHandle);
  EXPECT_FALSE(stale.attr.has_value());
}

TEST_F(Nfs3, link_stops_at_the_most_links) {
  Lab many({.max_files = memory::kMaxLinks});
  const Handle f = many.file(many.root(), "f");
  std::uint32_t made = 1;
  while (many.link(f, many.root(), numbered("l", made)).ok()) ++made;
  EXPECT_EQ(made, memory::kMaxLinks);
  EXPECT_EQ(many.link(f, many.root(), "x").status, Status::MLink);
  EXPECT_EQ(many.pathconf(f).numbers[0], memory::kMaxLinks);
}

TEST_F(Nfs3, rename_moves_and_replaces) {
  const Handle a = lab.directory(root, "a");
  const Handle b = lab.directory(root, "b");
  const Handle f = lab.file(a, "f");
  const Handle g = lab.file(b, "g");
  const Attr before_a = attr(a);
  const Attr before_b = attr(b);
  const Result moved = lab.rename(a, "f", b, "g");
  ASSERT_TRUE(moved.ok());
  expect_changed(moved.wcc, before_a);
  expect_changed(moved.to_wcc, before_b);
  EXPECT_EQ(lab.lookup(b, "g").handle, f);
  EXPECT_EQ(lab.lookup(a, "f").status, Status::NoEnt);
  EXPECT_EQ(lab.getattr(g).status, Status::Stale);
  ASSERT_TRUE(lab.rename(b, "g", b, "h").ok());
  EXPECT_EQ(lab.lookup(b, "h").handle, f);
  EXPECT_EQ(lab.list(b).size(), 1u);
}

TEST_F(Nfs3, rename_of_two_names_of_one_file_does_nothing) {
  const Handle f = lab.file(root, "f");
  ASSERT_TRUE(lab.link(f, root, "g").ok());
  const Result same = lab.rename(root, "f", root, "g");
  ASSERT_TRUE(same.ok());
  expect_unchanged(same.wcc);
  EXPECT_EQ(lab.lookup(root, "f").handle, f);
  EXPECT_EQ(lab.lookup(root, "g").handle, f);
  EXPECT_TRUE(lab.rename(root, "f", root, "f").ok());
  EXPECT_EQ(attr(f).links, 2u);
}

TEST_F(Nfs3, rename_of_directories) {
  const Handle a = lab.directory(root, "a");
  const Handle b = lab.directory(a, "b");
  const Handle c = lab.directory(b, "c");
  const Handle d = lab.directory(root, "d");
  EXPECT_EQ(lab.rename(root, "a", a, "x").status, Status::Inval) << "into itself";
  EXPECT_EQ(lab.rename(root, "a", c, "x").status, Status::Inval) << "below itself";
  const std::uint32_t root_links = attr(root).links;
  ASSERT_TRUE(lab.rename(a, "b", root, "d").ok()) << "over an empty directory";
  EXPECT_EQ(lab.getattr(d).status, Status::Stale);
  EXPECT_EQ(lab.lookup(b, "..").handle, root);
  EXPECT_EQ(attr(root).links, root_links);
  EXPECT_EQ(attr(a).links, 2u);
  EXPECT_EQ(lab.rename(root, "a", root, "d").status, Status::NotEmpty);
  lab.file(root, "f");
  EXPECT_EQ(lab.rename(root, "f", root, "d").status, Status::Exist);
  EXPECT_EQ(lab.rename(root, "d", root, "f").status, Status::Exist);
  EXPECT_EQ(lab.rename(root, "none", root, "z").status, Status::NoEnt);
  EXPECT_EQ(lab.rename(root, ".", root, "z").status, Status::Inval);
  EXPECT_EQ(lab.rename(root, "a", root, "..").status, Status::Inval);
}

TEST_F(Nfs3, rename_and_link_stay_within_an_export) {
  Lab two({.exports = {{.path = "/a", .root_squash = false}, {.path = "/b", .root_squash = false}}});
  const Handle f = two.file(two.root(0), "f");
  const Result moved = two.rename(two.root(0), "f", two.root(1), "f");
  EXPECT_EQ(moved.status, Status::XDev);
  expect_unchanged(moved.wcc);
  expect_unchanged(moved.to_wcc);
  EXPECT_EQ(two.link(f, two.root(1), "f").status, Status::XDev);
  EXPECT_NE(two.getattr(two.root(0)).attr->fsid, two.getattr(two.root(1)).attr->fsid);
}

TEST_F(Nfs3, fsstat_follows_use) {
  const Result before = lab.fsstat(root);
  ASSERT_TRUE(before.ok());
  const std::uint64_t total = before.numbers[0];
  EXPECT_EQ(total, 64u << 20);
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

TEST_F(Nfs3, statistics_count_calls_and_errors_by_procedure_and_export) {
  Lab two({.exports = {{.path = "/a"}, {.path = "/b"}}});
  two.getattr(two.root(0));
  two.getattr(two.root(1));
  two.lookup(two.root(1), "none");
  two.getattr(bytes_of("bad"));
  two.getacl(two.root(1), 1);
  EXPECT_EQ(two.service().statistics(0).calls, 1u);
  EXPECT_EQ(two.service().statistics(1).calls, 3u);
  EXPECT_EQ(two.service().statistics(1).errors, 1u);
  EXPECT_EQ(two.service().statistics(1).procedures[ulb::kNfs3Lookup].errors, 1u);
  EXPECT_EQ(two.service().statistics(1).procedures[ulb::kNfs3GetAttr].calls, 1u);
  EXPECT_EQ(two.service().statistics(service::memory::kNoExport).errors, 1u) << "a handle of no export";
}

}  // namespace
}  // namespace sluice::service::test
