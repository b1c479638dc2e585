// SPDX-License-Identifier: Apache-2.0
//
// Access control: credentials, squashing, permissions, read-only exports, client addresses.
#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

// Bits of RFC 1813, section 3.3.4.
constexpr std::uint32_t kRead = 1;
constexpr std::uint32_t kLookup = 2;
constexpr std::uint32_t kModify = 4;
constexpr std::uint32_t kExtend = 8;
constexpr std::uint32_t kDelete = 16;
constexpr std::uint32_t kExecute = 32;
constexpr std::uint32_t kAll = 63;

class AccessControl : public testing::Test {
 protected:
  Lab lab;
  const Handle root = lab.root();
};

TEST_F(AccessControl, flavors_other_than_none_and_sys_are_refused) {
  for (const auto flavor : {rpc::AuthFlavor::Short, rpc::AuthFlavor::Dh, rpc::AuthFlavor::RpcSecGss,
                            static_cast<rpc::AuthFlavor>(390003)}) {
    const Result r = lab.getattr(root, {.flavor = flavor});
    EXPECT_EQ(r.denied, rpc::AuthStat::BadCred);
    EXPECT_EQ(lab.getacl(root, 1, {.flavor = flavor}).denied, rpc::AuthStat::BadCred);
  }
}

TEST_F(AccessControl, a_malformed_sys_credential_is_refused) {
  TestCall call;
  const Bytes arguments = encode([&](auto& out) { out.opaque(root); });
  const Bytes broken(12);
  lab.prepare(call, ulb::kNfs3GetAttr, kRoot);
  call.header().credential.body = broken;
  call.start(arguments);
  call.execute(lab.front());
  EXPECT_TRUE(call.denied());
  EXPECT_EQ(call.auth_error(), rpc::AuthStat::BadCred);
  call.release(lab.front());
}

TEST_F(AccessControl, none_is_anonymous) {
  const Result made = lab.create(root, "f", {}, {.flavor = rpc::AuthFlavor::None});
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.attr->uid, 65534u);
  EXPECT_EQ(made.attr->gid, 65534u);
}

TEST_F(AccessControl, squashing) {
  Lab squash({.exports = {{.path = "/root-squash", .anonuid = 99, .anongid = 98},
                          {.path = "/all-squash", .all_squash = true, .anonuid = 77, .anongid = 76},
                          {.path = "/none", .root_squash = false}}});
  const auto owner = [&](std::uint32_t id, const Caller& who) {
    const Result made = squash.create(squash.root(id), numbered("f", who.uid), {}, who);
    EXPECT_TRUE(made.ok());
    return std::pair{made.attr->uid, made.attr->gid};
  };
  EXPECT_EQ(owner(0, kRoot), std::pair(99u, 98u));
  EXPECT_EQ(owner(0, kAlice), std::pair(1000u, 1000u));
  EXPECT_EQ(owner(0, {.uid = 5, .gid = 0}), std::pair(5u, 98u)) << "group root is squashed, too";
  EXPECT_EQ(owner(1, kAlice), std::pair(77u, 76u));
  EXPECT_EQ(owner(1, kRoot), std::pair(77u, 76u));
  EXPECT_EQ(owner(2, kRoot), std::pair(0u, 0u));
  EXPECT_EQ(owner(2, {.uid = 5, .gid = 0}), std::pair(5u, 0u));
}

TEST_F(AccessControl, a_squashed_supplementary_root_group_gives_nothing) {
  Lab squash({.exports = {{.path = "/a"}}});
  const Caller sly{.uid = 5, .gid = 5, .gids = {0}};
  Lab open;
  const Handle g = open.file(open.root(), "g", 0640);
  EXPECT_TRUE(open.read(g, 0, 1, sly).ok()) << "group 0 counts where root is root";
  const Handle f = squash.create(squash.root(), "f", {.mode = 0640}, {.uid = 6, .gid = 6}).handle;
  EXPECT_EQ(squash.read(f, 0, 1, sly).status, Status::Acces);
}

TEST_F(AccessControl, permission_matrix) {
  const Caller owner{.uid = 10, .gid = 20};
  const Caller member{.uid = 11, .gid = 20};
  const Caller by_list{.uid = 12, .gid = 30, .gids = {1, 2, 20}};
  const Caller other{.uid = 13, .gid = 30};
  for (std::uint32_t mode = 0; mode < 01000; ++mode) {
    const Handle f = lab.file(root, numbered("f", mode), mode);
    ASSERT_TRUE(lab.setattr(f, {.uid = 10, .gid = 20}).ok());
    const std::pair<const Caller*, std::uint32_t> callers[] = {
        {&owner, mode >> 6}, {&member, mode >> 3 & 7}, {&by_list, mode >> 3 & 7}, {&other, mode & 7}};
    for (const auto& [who, bits] : callers) {
      const std::uint32_t expected =
          (bits & 4 ? kRead : 0u) | (bits & 2 ? kModify | kExtend : 0u) | (bits & 1 ? kExecute : 0u);
      EXPECT_EQ(lab.access(f, kAll, *who).access, expected) << std::oct << mode;
      const bool owns = who == &owner;
      EXPECT_EQ(lab.read(f, 0, 1, *who).ok(), owns || (bits & 5) != 0) << std::oct << mode;
      EXPECT_EQ(lab.write(f, 0, bytes_of("x"), *who).ok(), owns || (bits & 2) != 0) << std::oct << mode;
    }
    const std::uint32_t root_bits = kRead | kModify | kExtend | ((mode & 0111) != 0 ? kExecute : 0u);
    EXPECT_EQ(lab.access(f, kAll).access, root_bits) << std::oct << mode;
    ASSERT_TRUE(lab.remove(root, numbered("f", mode)).ok());
  }
}

TEST_F(AccessControl, directories_need_execute_to_search_and_write_to_change) {
  const Handle d = lab.directory(root, "d", 0);
  const Handle f = lab.file(d, "f");
  ASSERT_TRUE(lab.setattr(f, {.uid = 1000}).ok());
  for (std::uint32_t bits = 0; bits < 8; ++bits) {
    ASSERT_TRUE(lab.setattr(d, {.mode = bits}).ok());
    const bool search = (bits & 1) != 0;
    const bool change = (bits & 3) == 3;
    EXPECT_EQ(lab.lookup(d, "f", kAlice).status, search ? Status::Ok : Status::Acces);
    EXPECT_EQ(lab.readdir(d, 0, 0, 4096, kAlice).ok(), (bits & 4) != 0);
    EXPECT_EQ(lab.create(d, "g", {}, kAlice).ok(), change) << bits;
    EXPECT_EQ(lab.create(d, "f", {}, kAlice).ok(), search) << "it exists: nothing in the directory changes";
    EXPECT_EQ(lab.mkdir(d, "h", {}, kAlice).ok(), change);
    EXPECT_EQ(lab.symlink(d, "i", "x", kAlice).ok(), change);
    EXPECT_EQ(lab.mknod(d, "j", 7, kAlice).ok(), change);
    EXPECT_EQ(lab.link(f, d, "k", kAlice).ok(), change);
    EXPECT_EQ(lab.rename(d, "g", d, "g2", kAlice).ok(), change);
    EXPECT_EQ(lab.remove(d, "g2", kAlice).ok(), change);
    EXPECT_EQ(lab.rmdir(d, "h", kAlice).ok(), change);
    for (const char* name : {"i", "j", "k"}) lab.remove(d, name);
    const std::uint32_t expected =
        (bits & 4 ? kRead : 0u) | (bits & 2 ? kModify | kExtend | kDelete : 0u) | (bits & 1 ? kLookup : 0u);
    EXPECT_EQ(lab.access(d, kAll, kAlice).access, expected) << bits;
  }
}

TEST_F(AccessControl, access_answers_only_what_was_asked) {
  const Handle f = lab.file(root, "f", 0777);
  for (std::uint32_t asked = 0; asked < 64; ++asked)
    EXPECT_EQ(lab.access(f, asked, kAlice).access, asked & (kRead | kModify | kExtend | kExecute));
}

TEST_F(AccessControl, the_sticky_bit_leaves_files_to_their_owners) {
  const Handle tmp = lab.directory(root, "tmp", 01777);
  ASSERT_TRUE(lab.create(tmp, "a", {}, kAlice).ok());
  EXPECT_EQ(lab.remove(tmp, "a", kBob).status, Status::Acces);
  EXPECT_EQ(lab.rename(tmp, "a", tmp, "b", kBob).status, Status::Acces);
  ASSERT_TRUE(lab.create(tmp, "mine", {}, kBob).ok());
  EXPECT_EQ(lab.rename(tmp, "mine", tmp, "a", kBob).status, Status::Acces) << "over another's file";
  EXPECT_TRUE(lab.rename(tmp, "a", tmp, "b", kAlice).ok());
  EXPECT_TRUE(lab.remove(tmp, "b", kAlice).ok());
  EXPECT_TRUE(lab.remove(tmp, "mine").ok());
}

TEST_F(AccessControl, setattr_rules) {
  const Handle f = lab.create(root, "f", {.mode = 0666}, kAlice).handle;
  EXPECT_EQ(lab.setattr(f, {.mode = 0600}, kBob).status, Status::Perm);
  EXPECT_EQ(lab.setattr(f, {.uid = 1001}, kAlice).status, Status::Perm) << "nobody gives files away";
  EXPECT_TRUE(lab.setattr(f, {.uid = 1000}, kAlice).ok()) << "no change";
  EXPECT_EQ(lab.setattr(f, {.gid = 5}, kAlice).status, Status::Perm);
  EXPECT_TRUE(lab.setattr(f, {.gid = 5}, {.uid = 1000, .gid = 1000, .gids = {5}}).ok());
  EXPECT_EQ(lab.setattr(f, {.gid = 1001}, kBob).status, Status::Perm);
  EXPECT_EQ(lab.setattr(f, {.mtime_how = 2, .mtime = 1}, kBob).status, Status::Perm);
  EXPECT_TRUE(lab.setattr(f, {.mtime_how = 1}, kBob).ok()) << "to now: a writer may";
  EXPECT_TRUE(lab.setattr(f, {.size = 3}, kBob).ok());
  ASSERT_TRUE(lab.setattr(f, {.mode = 0644}, kAlice).ok());
  EXPECT_EQ(lab.setattr(f, {.mtime_how = 1}, kBob).status, Status::Acces);
  EXPECT_EQ(lab.setattr(f, {.size = 0}, kBob).status, Status::Acces);
  EXPECT_EQ(lab.create(root, "f", {.size = 0}, kBob).status, Status::Acces) << "truncation by CREATE";
  ASSERT_TRUE(lab.setattr(f, {.mode = 02770, .uid = 1000, .gid = 4000}).ok());
  ASSERT_TRUE(lab.setattr(f, {.mode = 02770}, kAlice).ok());
  EXPECT_EQ(lab.getattr(f).attr->mode, 0770u) << "not a member of the group: no set-group-id";
}

TEST_F(AccessControl, new_objects_belong_to_the_caller_and_inherit_the_group) {
  const Handle d = lab.directory(root, "d", 02777);
  ASSERT_TRUE(lab.setattr(d, {.gid = 500}).ok());
  ASSERT_TRUE(lab.setattr(d, {.mode = 02777}).ok());
  const Result f = lab.create(d, "f", {.mode = 0600, .uid = 1001, .gid = 1001}, kAlice);
  ASSERT_TRUE(f.ok());
  EXPECT_EQ(f.attr->uid, 1000u) << "only root makes files for others";
  EXPECT_EQ(f.attr->gid, 500u);
  const Result sub = lab.mkdir(d, "sub", {.mode = 0700}, kAlice);
  EXPECT_EQ(sub.attr->gid, 500u);
  EXPECT_EQ(sub.attr->mode, 02700u);
  const Result timed = lab.create(d, "t", {.atime_how = 2, .mtime_how = 2, .atime = 5, .mtime = 6}, kAlice);
  EXPECT_EQ(timed.attr->atime, 5u);
  EXPECT_EQ(timed.attr->mtime, 6u);
}

TEST_F(AccessControl, only_a_member_makes_set_group_id_files_of_a_group) {
  const Handle d = lab.directory(root, "d");
  ASSERT_TRUE(lab.setattr(d, {.mode = 02777, .gid = 4000}).ok());
  const Caller member{.uid = 1002, .gid = 1002, .gids = {4000}};
  const auto modes = [&](std::string_view name, const Caller& who) {
    constexpr std::uint32_t kFifo = 7;
    const Set set{.mode = 06775};
    const std::string created(name);
    return std::vector{lab.create(d, created + "f", set, who).attr->mode,
                       lab.mknod(d, created + "n", kFifo, who, set).attr->mode,
                       lab.mkdir(d, created + "d", set, who).attr->mode};
  };
  // A directory inherits the bit from its parent directory, like the group.
  EXPECT_EQ(modes("a", kAlice), (std::vector{04775u, 04775u, 06775u}));
  EXPECT_EQ(modes("m", member), (std::vector{06775u, 06775u, 06775u}));
  EXPECT_EQ(modes("r", kRoot), (std::vector{06775u, 06775u, 06775u}));
  // A file in another directory has the group of its creator.
  EXPECT_EQ(lab.create(root, "f", {.mode = 06775}, kAlice).attr->mode, 06775u);
}

TEST_F(AccessControl, read_only_exports_are_not_changed) {
  Lab ro({.exports = {{.path = "/a", .read_only = true, .root_squash = false}}});
  const Handle r = ro.root();
  EXPECT_EQ(ro.setattr(r, {.mode = 0700}).status, Status::RoFs);
  EXPECT_EQ(ro.create(r, "f").status, Status::RoFs);
  EXPECT_EQ(ro.create_exclusive(r, "f", 1).status, Status::RoFs);
  EXPECT_EQ(ro.mkdir(r, "d").status, Status::RoFs);
  EXPECT_EQ(ro.symlink(r, "l", "x").status, Status::RoFs);
  EXPECT_EQ(ro.mknod(r, "n", 7).status, Status::RoFs);
  EXPECT_EQ(ro.remove(r, "f").status, Status::RoFs);
  EXPECT_EQ(ro.rmdir(r, "d").status, Status::RoFs);
  EXPECT_EQ(ro.rename(r, "a", r, "b").status, Status::RoFs);
  EXPECT_EQ(ro.link(r, r, "b").status, Status::RoFs);
  EXPECT_EQ(ro.setacl(r, 1, {{1, 0, 7}, {4, 0, 5}, {32, 0, 5}}, {}).status, Status::RoFs);
  EXPECT_EQ(ro.access(r, kAll).access, kRead | kLookup);
  EXPECT_TRUE(ro.readdir(r, 0, 0, 4096).ok());
}

TEST_F(AccessControl, addresses_outside_the_list_are_refused) {
  const auto v4 = PeerAddress::from_ipv4;
  PeerAddress v6;
  v6.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 1};
  Lab listed({.exports = {{.path = "/a",
                           .allowed = {{v4(10, 1, 0, 0), 96 + 15}, {v4(192, 0, 2, 7), 128}, {v6, 47}}}}});
  const auto status = [&](const PeerAddress& peer) {
    return listed.getattr(listed.root(), {.uid = 1000, .gid = 1000, .peer = peer}).status;
  };
  EXPECT_EQ(status(v4(10, 1, 2, 3)), Status::Ok);
  EXPECT_EQ(status(v4(10, 0, 255, 255)), Status::Ok) << "a prefix of 15 bits";
  EXPECT_EQ(status(v4(10, 2, 0, 0)), Status::Acces);
  EXPECT_EQ(status(v4(192, 0, 2, 7)), Status::Ok);
  EXPECT_EQ(status(v4(192, 0, 2, 6)), Status::Acces);
  PeerAddress peer = v6;
  peer.bytes[5] = 0;
  peer.bytes[15] = 9;
  EXPECT_EQ(status(peer), Status::Ok);
  peer.bytes[5] = 2;
  EXPECT_EQ(status(peer), Status::Acces);
  peer.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3};
  EXPECT_EQ(status(peer), Status::Acces) << "not an IPv4-mapped address";
  const Caller stranger{.peer = v4(8, 8, 8, 8)};
  EXPECT_EQ(listed.write(listed.root(), 0, bytes_of("x"), stranger).status, Status::Acces);
  EXPECT_EQ(listed.getacl(listed.root(), 1, stranger).status, Status::Acces);
  EXPECT_FALSE(listed.access(listed.root(), 1, stranger).attr.has_value()) << "unknown clients learn nothing";
}

TEST_F(AccessControl, an_export_for_hosts_is_for_those_that_have_shown_these_names) {
  Lab named({.exports = {{.path = "/a", .root_squash = false, .hosts = {HostName("alpha"), HostName("beta")}},
                         {.path = "/b",
                          .root_squash = false,
                          .allowed = {{PeerAddress::from_ipv4(10, 1, 0, 0), 96 + 16}},
                          .hosts = {HostName("alpha")}}}});
  const auto status = [&](std::uint32_t id, std::string_view host, PeerAddress peer) {
    return named.getattr(named.root(id), {.uid = 1000, .gid = 1000, .peer = peer, .host = HostName(host)})
        .status;
  };
  const PeerAddress peer = PeerAddress::from_ipv4(192, 0, 2, 1);
  EXPECT_EQ(status(0, "alpha", peer), Status::Ok);
  EXPECT_EQ(status(0, "beta", peer), Status::Ok);
  for (const char* other : {"", "gamma", "alph", "alphabet", "Alpha"})
    EXPECT_EQ(status(0, other, peer), Status::Acces) << other;
  // An export with hosts and addresses requires both to match.
  EXPECT_EQ(status(1, "alpha", peer), Status::Acces);
  EXPECT_EQ(status(1, "alpha", PeerAddress::from_ipv4(10, 1, 2, 3)), Status::Ok);
  EXPECT_EQ(status(1, "beta", PeerAddress::from_ipv4(10, 1, 2, 3)), Status::Acces);
  const Caller stranger{.host = HostName("gamma")};
  EXPECT_EQ(named.write(named.root(), 0, bytes_of("x"), stranger).status, Status::Acces);
  EXPECT_EQ(named.create(named.root(), "f", {}, stranger).status, Status::Acces);
  EXPECT_EQ(named.getacl(named.root(), 1, stranger).status, Status::Acces);
  EXPECT_FALSE(named.access(named.root(), 1, stranger).attr.has_value()) << "strangers learn nothing";
}

TEST_F(AccessControl, a_list_of_hosts_without_a_name_lets_nobody_in) {
  Lab named({.exports = {{.path = "/a", .hosts = {HostName()}}}});
  EXPECT_EQ(named.getattr(named.root()).status, Status::Acces);
}

TEST_F(AccessControl, a_moved_directory_has_to_be_writable) {
  const Handle a = lab.directory(root, "a", 0777);
  const Handle b = lab.directory(root, "b", 0777);
  lab.directory(a, "d", 0755);
  EXPECT_EQ(lab.rename(a, "d", b, "d", kAlice).status, Status::Acces) << "its '..' changes";
  EXPECT_TRUE(lab.rename(a, "d", a, "e", kAlice).ok());
}

// --- NFSACL

using Acl = std::vector<AclEntry>;

TEST_F(AccessControl, getacl_shows_the_mode) {
  const Handle f = lab.file(root, "f", 0750);
  ASSERT_TRUE(lab.setattr(f, {.uid = 10, .gid = 20}).ok());
  const Result r = lab.getacl(f, 15);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r.acl_mask, 15u);
  EXPECT_EQ(r.acl_count, 4u);
  EXPECT_EQ(r.acl, (Acl{{1, 10, 7}, {4, 20, 5}, {16, 0, 5}, {32, 0, 0}}));
  EXPECT_TRUE(r.attr.has_value());
  EXPECT_TRUE(lab.getacl(f, 2).acl.empty());
  EXPECT_EQ(lab.getacl(f, 2).acl_count, 4u);
  EXPECT_EQ(lab.getacl(f, 16).status, Status::Inval);
}

TEST_F(AccessControl, setacl_takes_what_a_mode_can_hold) {
  const Handle f = lab.file(root, "f", 04700);
  ASSERT_TRUE(lab.setacl(f, 1, {{1, 0, 6}, {4, 0, 4}, {32, 0, 1}}, {}).ok());
  EXPECT_EQ(lab.getattr(f).attr->mode, 04641u);
  ASSERT_TRUE(lab.setacl(f, 3, {{1, 0, 7}, {4, 0, 7}, {16, 0, 5}, {32, 0, 0}}, {}).ok());
  EXPECT_EQ(lab.getattr(f).attr->mode, 04750u) << "the mask limits the group";
  EXPECT_TRUE(lab.setacl(f, 1, {}, {}).ok()) << "no list: the mode is what is left";
  EXPECT_EQ(lab.getattr(f).attr->mode, 04750u);
}

TEST_F(AccessControl, setacl_refuses_the_rest) {
  const Handle f = lab.file(root, "f", 0700);
  const Acl plain = {{1, 0, 6}, {4, 0, 4}, {32, 0, 1}};
  EXPECT_EQ(lab.setacl(f, 1, {{1, 0, 6}, {2, 99, 7}, {4, 0, 4}, {16, 0, 7}, {32, 0, 1}}, {}).status,
            Status::NotSupp);
  EXPECT_EQ(lab.setacl(f, 5, plain, {{0x1001, 0, 7}}).status, Status::NotSupp);
  EXPECT_EQ(lab.setacl(f, 1, {{1, 0, 6}, {4, 0, 4}}, {}).status, Status::Inval) << "incomplete";
  EXPECT_EQ(lab.setacl(f, 1, {{1, 0, 6}, {1, 0, 7}, {4, 0, 4}, {32, 0, 1}}, {}).status, Status::Inval)
      << "twice";
  EXPECT_EQ(lab.setacl(f, 1, plain, {}, kAlice).status, Status::Perm);
  EXPECT_EQ(lab.getattr(f).attr->mode, 0700u);
  EXPECT_EQ(lab.acl_call(2, encode([&](auto& out) {
                           out.opaque(f);
                           out.u32(1);
                           out.u32(0xffffffff);
                           out.u32(0xffffffff);
                         }),
                         kRoot)
                .accepted,
            rpc::AcceptStat::GarbageArgs);
  EXPECT_EQ(lab.acl_call(3, {}, kRoot).accepted, rpc::AcceptStat::ProcUnavail);
  EXPECT_TRUE(lab.acl_call(0, {}, {.flavor = rpc::AuthFlavor::None}).ok());
}

}  // namespace
}  // namespace sluice::service::test
