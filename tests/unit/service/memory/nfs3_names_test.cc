// SPDX-License-Identifier: Apache-2.0
//
// The procedures of RFC 1813, section 3.3, that look up, create, remove and rename names in a directory:
// results, error arms, weak cache consistency data.
#include "tests/unit/service/memory/nfs3_fixture.h"

namespace sluice::service::test {
namespace {

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
  const std::string longest(4095, 'p');  // PATH_MAX with the null byte
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

}  // namespace
}  // namespace sluice::service::test
