// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/unit/service/call_harness.h"

namespace sluice::service::memory {
namespace {

using namespace ulb;

TEST(Nfs3, getattr_and_fsinfo_of_the_root) {
  Exports exports;
  const Bytes root = exports.root(Exports::kPlain);
  const Bytes reply = exports.run(kNfs3GetAttr, Args().handle(root));
  ASSERT_EQ(reply.size(), 4u + 84);
  EXPECT_EQ(xdr::load_u32(reply.data()), 0u);
  EXPECT_EQ(xdr::load_u32(reply.data() + 4), 2u);  // directory
  const Bytes info = exports.run(kNfs3FsInfo, Args().handle(root));
  EXPECT_EQ(xdr::load_u32(info.data() + 8 + 84), 1u << 20);  // rtmax
  EXPECT_EQ(info.size(), 4u + 88 + 48);
  EXPECT_EQ(exports.run(kNfs3PathConf, Args().handle(root)).size(), 4u + 88 + 24);
  EXPECT_EQ(exports.run(kNfs3FsStat, Args().handle(root)).size(), 4u + 88 + 52);
  EXPECT_EQ(exports.run(kNfs3Null, Args()).size(), 0u);
}

TEST(Nfs3, create_write_read_at_all_kinds_of_offsets) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  std::string model;
  std::mt19937 random(5);
  for (int i = 0; i < 400; ++i) {
    const std::size_t offset = random() % 300000;
    const Bytes data = pattern(1 + random() % 60000, static_cast<std::uint32_t>(i));
    ASSERT_EQ(exports.write(file, offset, data), Status::Ok);
    if (model.size() < offset + data.size()) model.resize(offset + data.size());
    std::memcpy(model.data() + offset, data.data(), data.size());
    if (i % 7 == 0) {
      const std::uint64_t size = random() % 250000;
      ASSERT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(file).size(size).word(0)), Status::Ok);
      model.resize(size);
    }
    const std::size_t from = random() % (model.size() + 1);
    const Bytes got = exports.read(file, from, 65536);
    ASSERT_EQ(got.size(), std::min<std::size_t>(65536, model.size() - from));
    ASSERT_EQ(std::memcmp(got.data(), model.data() + from, got.size()), 0) << i;
  }
}

TEST(Nfs3, sparse_files_read_as_zeros_and_large_offsets_work) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "sparse");
  const std::uint64_t far = 5ull << 30;
  ASSERT_EQ(exports.write(file, far, pattern(10, 1)), Status::Ok);
  EXPECT_EQ(exports.read(file, far, 100), pattern(10, 1));
  EXPECT_EQ(exports.read(file, 1 << 20, 1000), Bytes(1000));
  EXPECT_EQ(exports.write(file, kMaxFileBytes, pattern(1, 1)), Status::FBig);
  EXPECT_EQ(exports.status_of(kNfs3Remove, Args().handle(exports.root(Exports::kPlain)).text("sparse")),
            Status::Ok);
  exports.settle_background();
  EXPECT_EQ(exports.service().file_system().use(Exports::kPlain).used_bytes, 0u);
}

/// The steps that the transport takes with a WRITE whose data is in a Read chunk.
struct PlacedWrite {
  PlacedWrite(Exports& exports, const Bytes& file, std::uint64_t offset, std::uint32_t count,
              std::uint32_t placed)
      : exports_(exports),
        call(exports.start(kNfs3Write, Args().handle(file).hyper(offset).word(count).word(2).word(count))) {
    call->set_placed_bytes(placed);
    placement = exports.service().place(*call);
  }
  void arrive(const Bytes& data) {
    std::size_t at = 0;
    for (const rdma::Sge& piece : call->pieces())
      for (std::uint32_t i = 0; i < piece.length; ++i, ++at)
        piece.address[i] = at < data.size() ? data[at] : std::byte{0xEE};
  }
  Status finish() {
    if (placement == Placement::Sink) {
      EXPECT_EQ(exports_.service().execute(*call), Execution::Started);
    }
    const Bytes reply = call->reply();
    exports_.service().release(*call);
    return static_cast<Status>(xdr::load_u32(reply.data()));
  }
  Exports& exports_;
  std::unique_ptr<TestCall> call;
  Placement placement;
};

TEST(Nfs3Placed, V1_193_V1_086_V1_088_a_write_is_pulled_into_the_files_own_blocks) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  for (const std::uint32_t count : {1u, 4096u, 5001u, 65536u, 200001u, 1u << 20}) {
    const std::uint64_t offset = 60000 + count % 7;
    const Bytes data = pattern(count, count);
    PlacedWrite write(exports, file, offset, count, static_cast<std::uint32_t>(xdr::padded(count)));
    ASSERT_EQ(write.placement, Placement::Sink);
    EXPECT_LE(write.call->pieces().size(), kMaxTransferBlocks + 1);
    write.arrive(data);
    ASSERT_EQ(write.finish(), Status::Ok);
    EXPECT_EQ(exports.read(file, offset, count), data);
    EXPECT_TRUE(exports.read(file, offset + count, 4).empty() || count < 1u << 20);
  }
}

TEST(Nfs3Placed, errors_known_before_are_answered_without_a_pull) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  PlacedWrite stale(exports, Bytes(24), 0, 10, 10);
  EXPECT_EQ(stale.placement, Placement::Reply);
  EXPECT_EQ(stale.finish(), Status::BadHandle);
  PlacedWrite read_only(exports, exports.root(Exports::kReadOnly), 0, 10, 10);
  EXPECT_EQ(read_only.finish(), Status::IsDir);
  for (const std::uint32_t placed : {9u, 13u}) {
    PlacedWrite disagree(exports, file, 0, 10, placed);
    EXPECT_EQ(disagree.placement, Placement::Reply);
    EXPECT_EQ(disagree.call->stat, rpc::AcceptStat::GarbageArgs);
    exports.service().release(*disagree.call);
  }
}

TEST(Nfs3Placed, a_write_that_is_given_up_leaves_nothing_behind_the_end_of_the_file) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  ASSERT_EQ(exports.write(file, 0, pattern(100, 1)), Status::Ok);
  {
    PlacedWrite write(exports, file, 50, 1000, 1000);
    write.arrive(pattern(1000, 2));
    exports.service().release(*write.call);  // the connection is gone
  }
  EXPECT_EQ(exports.read(file, 0, 50), pattern(50, 1));
  EXPECT_EQ(exports.read(file, 0, 2000).size(), 100u);
  ASSERT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(file).size(4000).word(0)), Status::Ok);
  const Bytes tail = exports.read(file, 100, 3900);
  EXPECT_EQ(tail, Bytes(3900));
}

TEST(Nfs3Placed, growth_and_truncation_under_way_lose_no_data) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  PlacedWrite small(exports, file, 0, 1000, 1000);                    // into a small block
  ASSERT_EQ(exports.write(file, 60000, pattern(10, 2)), Status::Ok);  // which is replaced by a large one
  small.arrive(pattern(1000, 1));
  ASSERT_EQ(small.finish(), Status::Ok);
  EXPECT_EQ(exports.read(file, 0, 1000), pattern(1000, 1));
  EXPECT_EQ(exports.read(file, 60000, 10), pattern(10, 2));

  PlacedWrite second(exports, file, 0, 70000, 70000);
  ASSERT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(file).size(0).word(0)), Status::Ok);
  second.arrive(pattern(70000, 3));
  ASSERT_EQ(second.finish(), Status::Ok);
  EXPECT_EQ(exports.read(file, 0, 70000), pattern(70000, 3));

  PlacedWrite third(exports, file, 0, 10, 10);
  ASSERT_EQ(exports.status_of(kNfs3Remove, Args().handle(exports.root(Exports::kPlain)).text("f")),
            Status::Ok);
  exports.settle_background();
  third.arrive(pattern(10, 4));
  EXPECT_EQ(third.finish(), Status::Stale);
}

TEST(Nfs3, blocks_of_a_read_under_way_are_not_reused) {
  Exports exports(2u << 20);
  const Bytes root = exports.root(Exports::kPlain);
  const Bytes file = exports.create(root, "f");
  const Bytes data = pattern(200000, 9);
  ASSERT_EQ(exports.write(file, 0, std::span(data).first(60000)), Status::Ok);
  ASSERT_EQ(exports.write(file, 60000, std::span(data).subspan(60000, 60000)), Status::Ok);
  auto read = exports.start(kNfs3Read, Args().handle(file).hyper(0).word(120000));
  exports.service().execute(*read);
  ASSERT_EQ(exports.status_of(kNfs3Remove, Args().handle(root).text("f")), Status::Ok);
  exports.settle_background();
  // Fill all memory with something else.
  for (int i = 0; i < 100; ++i) {
    const Bytes other = exports.create(root, "o" + std::to_string(i));
    if (exports.write(other, 0, pattern(60000, 77)) != Status::Ok) break;
  }
  const Bytes reply = read->reply();
  EXPECT_EQ(std::memcmp(reply.data() + 4 + 88 + 12, data.data(), 120000), 0);
  exports.service().release(*read);
}

TEST(Nfs3, memory_of_removed_files_comes_back_clean) {
  Exports exports(2u << 20);
  const Bytes root = exports.root(Exports::kPlain);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 40; ++i) {
      const Bytes file = exports.create(root, "f" + std::to_string(i));
      const Bytes secret = pattern(i % 2 ? 3000 : 60000, 0xA5);
      if (exports.write(file, 1, secret) != Status::Ok) continue;
      EXPECT_EQ(exports.read(file, 0, 1), Bytes(1));  // the byte in front was never written
      ASSERT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(file).size(65536).word(0)), Status::Ok);
      const Bytes tail = exports.read(file, 1 + secret.size(), 65536);
      ASSERT_EQ(tail, Bytes(tail.size()));
    }
    for (int i = 0; i < 40; ++i)
      exports.status_of(kNfs3Remove, Args().handle(root).text("f" + std::to_string(i)));
    if (round % 2) exports.settle_background();
  }
  exports.settle_background();
  EXPECT_EQ(exports.service().file_system().use(Exports::kPlain).used_bytes, 0u);
  EXPECT_EQ(exports.service().file_system().blocks().free_bytes(),
            exports.service().file_system().blocks().capacity_bytes());
}

TEST(Nfs3, quota_and_arena_end_in_NOSPC) {
  Exports exports(2u << 20);
  const Bytes small = exports.create(exports.root(Exports::kSmall), "f");
  Status status = Status::Ok;
  std::uint64_t offset = 0;
  for (; status == Status::Ok; offset += 60000) status = exports.write(small, offset, pattern(60000, 1));
  EXPECT_EQ(status, Status::NoSpc);
  EXPECT_LE(offset, 256u * 1024 + 60000);
  const Bytes plain = exports.create(exports.root(Exports::kPlain), "f");
  for (offset = 0, status = Status::Ok; status == Status::Ok; offset += 60000)
    status = exports.write(plain, offset, pattern(60000, 1));
  EXPECT_EQ(status, Status::NoSpc);
  EXPECT_LE(offset, 4u << 20);
}

TEST(Nfs3, handles_cannot_be_guessed_and_garbage_is_told_apart) {
  Exports exports;
  const Bytes root = exports.root(Exports::kPlain);
  const Bytes file = exports.create(root, "f");
  std::mt19937 random(4);
  for (int i = 0; i < 100000; ++i) {
    Bytes forged = file;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n)
      forged[random() % forged.size()] ^= static_cast<std::byte>(1 + random() % 255);
    if (forged == file) continue;
    ASSERT_EQ(exports.service().file_system().find(forged).status, Status::BadHandle);
  }
  for (std::size_t bytes = 0; bytes <= 64; ++bytes)
    if (bytes != kHandleBytes) {
      EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(Bytes(bytes))), Status::BadHandle);
    }
  ASSERT_EQ(exports.status_of(kNfs3Remove, Args().handle(root).text("f")), Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(file)), Status::Stale);
  exports.settle_background();
  const Bytes again = exports.create(root, "f");
  EXPECT_NE(again, file);
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(file)), Status::Stale);
  // Another start of the same export: the root's handle is the same, the file is not there.
  Exports restarted;
  EXPECT_EQ(restarted.root(Exports::kPlain), root);
  EXPECT_EQ(restarted.status_of(kNfs3GetAttr, Args().handle(again)), Status::Stale);
}

TEST(Nfs3, permissions_follow_owner_group_and_others) {
  Exports exports;
  const Bytes root = exports.root(Exports::kPlain);
  exports.as(1000, 100);
  const Bytes file = exports.create(root, "private", 0600);
  const Bytes shared = exports.create(root, "shared", 0660);
  ASSERT_EQ(exports.write(file, 0, pattern(10, 1)), Status::Ok);
  exports.as(2000, 100);
  EXPECT_EQ(exports.write(file, 0, pattern(10, 1)), Status::Acces);
  EXPECT_EQ(exports.status_of(kNfs3Read, Args().handle(file).hyper(0).word(10)), Status::Acces);
  EXPECT_EQ(exports.write(shared, 0, pattern(10, 1)), Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(shared).mode(0777).word(0)), Status::Perm);
  exports.as(0, 0);  // squashed
  EXPECT_EQ(exports.write(file, 0, pattern(10, 1)), Status::Acces);
  const Bytes by_root = exports.create(root, "by_root");
  const Bytes attributes = exports.run(kNfs3GetAttr, Args().handle(by_root));
  EXPECT_EQ(xdr::load_u32(attributes.data() + 16), 65534u);
  const Bytes open_root = exports.root(Exports::kNoSquash);
  const Bytes roots = exports.create(open_root, "f");
  EXPECT_EQ(xdr::load_u32(exports.run(kNfs3GetAttr, Args().handle(roots)).data() + 16), 0u);
  exports.as_nobody();
  EXPECT_EQ(exports.status_of(kNfs3Read, Args().handle(file).hyper(0).word(10)), Status::Acces);
}

TEST(Nfs3, read_only_exports_and_foreign_networks_refuse) {
  Exports exports;
  const Bytes ro = exports.root(Exports::kReadOnly);
  EXPECT_EQ(exports.status_of(kNfs3Create, Args().handle(ro).text("f").word(0).mode(0644)), Status::RoFs);
  EXPECT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(ro).mode(0700).word(0)), Status::RoFs);
  const Bytes mine = exports.root(Exports::kMine);
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(mine)), Status::Acces);
  exports.from(rdma::PeerAddress::from_ipv4(192, 0, 2, 77));
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(mine)), Status::Ok);
  exports.from(rdma::PeerAddress::from_ipv4(192, 0, 3, 77));
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(mine)), Status::Acces);
}

TEST(Nfs3, exclusive_and_guarded_creates) {
  Exports exports;
  const Bytes root = exports.root(Exports::kPlain);
  const Bytes first = exports.make(kNfs3Create, Args().handle(root).text("x").word(2).hyper(42));
  EXPECT_EQ(exports.make(kNfs3Create, Args().handle(root).text("x").word(2).hyper(42)), first);  // a replay
  EXPECT_EQ(exports.status_of(kNfs3Create, Args().handle(root).text("x").word(2).hyper(43)), Status::Exist);
  EXPECT_EQ(exports.status_of(kNfs3Create, Args().handle(root).text("x").word(1).mode(0600)), Status::Exist);
  ASSERT_EQ(exports.write(first, 0, pattern(10, 1)), Status::Ok);
  EXPECT_EQ(exports.make(kNfs3Create, Args().handle(root).text("x").word(0).size(0)), first);
  EXPECT_TRUE(exports.read(first, 0, 10).empty());
  EXPECT_EQ(exports.status_of(kNfs3SetAttr, Args().handle(first).mode(0600).word(1).word(1).word(2)),
            Status::NotSync);
}

TEST(Nfs3, names_directories_and_renames) {
  Exports exports;
  const Bytes root = exports.root(Exports::kPlain);
  const Bytes a = exports.mkdir(root, "a");
  const Bytes b = exports.mkdir(a, "b");
  exports.create(a, "f");
  const auto rename = [&](const Bytes& from, std::string_view f, const Bytes& to, std::string_view t) {
    return exports.status_of(kNfs3Rename, Args().handle(from).text(f).handle(to).text(t));
  };
  EXPECT_EQ(rename(root, "a", b, "inside"), Status::Inval);  // into itself
  EXPECT_EQ(rename(a, "f", root, "g"), Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3Lookup, Args().handle(a).text("f")), Status::NoEnt);
  EXPECT_EQ(exports.status_of(kNfs3Lookup, Args().handle(root).text("g")), Status::Ok);
  EXPECT_EQ(rename(root, "g", root, "a"), Status::Exist);
  EXPECT_EQ(rename(a, "b", root, "b"), Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3RmDir, Args().handle(root).text("g")), Status::NotDir);
  EXPECT_EQ(exports.status_of(kNfs3Remove, Args().handle(root).text("a")), Status::IsDir);
  exports.create(a, "z");
  EXPECT_EQ(exports.status_of(kNfs3RmDir, Args().handle(root).text("a")), Status::NotEmpty);
  EXPECT_EQ(rename(root, "b", root, "a"), Status::NotEmpty);
  EXPECT_EQ(exports.status_of(kNfs3Remove, Args().handle(a).text("z")), Status::Ok);
  EXPECT_EQ(rename(root, "b", root, "a"), Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(a)), Status::Stale);
  EXPECT_EQ(exports.status_of(kNfs3Lookup, Args().handle(root).text(std::string(256, 'x'))),
            Status::NameTooLong);
  EXPECT_EQ(
      exports.status_of(kNfs3Create, Args().handle(root).text(std::string(255, 'x')).word(0).mode(0644)),
      Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3MkDir, Args().handle(root).text("..").mode(0755)), Status::Exist);
  EXPECT_EQ(exports.status_of(kNfs3Lookup, Args().handle(root).text("a/b")), Status::Inval);
  EXPECT_EQ(exports.status_of(kNfs3RmDir, Args().handle(root).text(".")), Status::Inval);
}

TEST(Nfs3, links_symlinks_and_special_files) {
  Exports exports;
  const Bytes root = exports.root(Exports::kNoSquash);
  exports.as(0, 0);
  const Bytes file = exports.create(root, "f");
  EXPECT_EQ(exports.status_of(kNfs3Link, Args().handle(file).handle(root).text("g")), Status::Ok);
  EXPECT_EQ(xdr::load_u32(exports.run(kNfs3GetAttr, Args().handle(file)).data() + 12), 2u);
  EXPECT_EQ(exports.status_of(kNfs3Remove, Args().handle(root).text("f")), Status::Ok);
  EXPECT_EQ(exports.status_of(kNfs3GetAttr, Args().handle(file)), Status::Ok);
  const std::string path(1000, 'p');
  const Bytes link = exports.make(kNfs3SymLink, Args().handle(root).text("s").mode(0777).text(path));
  const Bytes target = exports.run(kNfs3ReadLink, Args().handle(link));
  EXPECT_EQ(std::memcmp(target.data() + 4 + 88 + 4, path.data(), path.size()), 0);
  EXPECT_EQ(
      exports.status_of(kNfs3SymLink, Args().handle(root).text("t").mode(0777).text(std::string(1025, 'p'))),
      Status::NameTooLong);
  EXPECT_EQ(exports.status_of(kNfs3ReadLink, Args().handle(file)), Status::Inval);
  exports.make(kNfs3MkNod, Args().handle(root).text("fifo").word(7).mode(0644));
  exports.make(kNfs3MkNod, Args().handle(root).text("dev").word(3).mode(0644).word(8).word(1));
  EXPECT_EQ(exports.status_of(kNfs3MkNod, Args().handle(root).text("bad").word(1)), Status::BadType);
  EXPECT_EQ(exports.status_of(kNfs3Link, Args().handle(file).handle(exports.root(Exports::kPlain)).text("x")),
            Status::XDev);
}

/// One READDIR(PLUS) pass; names in order.
std::vector<std::string> list(Exports& exports, const Bytes& directory, bool plus, std::uint32_t count,
                              const std::function<void(const std::string&)>& seen = {}) {
  std::vector<std::string> names;
  std::uint64_t cookie = 0;
  for (bool eof = false; !eof;) {
    Args args;
    args.handle(directory).hyper(cookie).hyper(0);
    if (plus) args.word(count);
    const Bytes reply = exports.run(plus ? kNfs3ReadDirPlus : kNfs3ReadDir, args.word(count));
    EXPECT_LE(reply.size(), count + 4);
    xdr::Reader reader(reply);
    if (reader.u32() != 0) return names;
    if (reader.boolean()) reader.skip(84);
    reader.u64();
    std::vector<std::string> batch;
    while (reader.boolean()) {
      reader.u64();
      batch.emplace_back(reader.string(255));
      cookie = reader.u64();
      if (plus && reader.boolean()) reader.skip(84);
      if (plus && reader.boolean()) reader.opaque(64);
    }
    eof = reader.boolean();
    EXPECT_TRUE(reader.ok());
    if (!reader.ok()) return names;
    for (const auto& name : batch) {
      names.push_back(name);
      if (seen) seen(name);
    }
  }
  return names;
}

TEST(Nfs3, a_directory_of_ten_thousand_files_lists_each_once_also_while_it_changes) {
  Exports exports;
  const Bytes root = exports.root(Exports::kPlain);
  for (int i = 0; i < 10000; ++i) exports.create(root, "file" + std::to_string(i));
  for (const bool plus : {false, true}) {
    const auto names = list(exports, root, plus, 8192);
    EXPECT_EQ(names.size(), 10002u);
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 10002u);
  }
  // Everything seen is removed, and new files come: what was there at first is seen exactly once.
  std::multiset<std::string> seen;
  int made = 0;
  list(exports, root, false, 4096, [&](const std::string& name) {
    seen.insert(name);
    if (name.rfind("file", 0) == 0) {
      EXPECT_EQ(exports.status_of(kNfs3Remove, Args().handle(root).text(name)), Status::Ok);
    }
    if (made < 50) exports.create(root, "new" + std::to_string(made++));
  });
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(seen.count("file" + std::to_string(i)), 1u);
  exports.settle_background();
  EXPECT_EQ(list(exports, root, false, 8192).size(), 52u);
  EXPECT_EQ(exports.status_of(kNfs3ReadDir, Args().handle(root).hyper(0).hyper(0).word(10)),
            Status::TooSmall);
}

TEST(Nfs3, running_out_of_inodes_is_NOSPC) {
  Exports exports(4u << 20, 64);
  const Bytes root = exports.root(Exports::kPlain);
  Status status = Status::Ok;
  int made = 0;
  for (; status == Status::Ok; ++made)
    status = exports.status_of(kNfs3Create,
                               Args().handle(root).text("f" + std::to_string(made)).word(0).mode(0644));
  EXPECT_EQ(status, Status::NoSpc);
  EXPECT_EQ(made, 64 - 5 + 1);
}

TEST(Nfs3, bad_arguments_are_garbage_and_unknown_procedures_unavailable) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  Bytes whole = Args().handle(file).hyper(0).word(10).word(2).data(pattern(10, 1)).take();
  for (std::uint32_t procedure = 1; procedure < kNfs3Procedures; ++procedure) {
    auto call = std::make_unique<TestCall>(kNfsProgram, procedure, Bytes(3), Bytes{}, false);
    exports.service().execute(*call);
    EXPECT_EQ(call->stat, rpc::AcceptStat::GarbageArgs) << procedure;
  }
  for (std::size_t bytes = 0; bytes + 4 < whole.size(); ++bytes) {
    auto call = std::make_unique<TestCall>(
        kNfsProgram, kNfs3Write, Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)),
        Bytes{}, false);
    exports.service().execute(*call);
    ASSERT_EQ(call->completions, 1);
    ASSERT_EQ(call->stat, rpc::AcceptStat::GarbageArgs) << bytes;
    exports.service().release(*call);
  }
  exports.run(22, Args());
  EXPECT_EQ(exports.last_stat, rpc::AcceptStat::ProcUnavail);
}

TEST(Nfs3, other_flavors_are_denied) {
  Exports exports;
  TestCall call(kNfsProgram, kNfs3GetAttr, Args().handle(exports.root(0)).take(), Bytes(8), true);
  exports.service().execute(call);
  EXPECT_EQ(call.auth, rpc::AuthStat::BadCred);
}

TEST(Nfs3, wcc_data_shows_before_and_after) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f");
  ASSERT_EQ(exports.write(file, 0, pattern(100, 1)), Status::Ok);
  const Bytes reply =
      exports.run(kNfs3Write, Args().handle(file).hyper(100).word(50).word(0).data(pattern(50, 2)));
  xdr::Reader reader(reply);
  EXPECT_EQ(reader.u32(), 0u);
  EXPECT_TRUE(reader.boolean());
  EXPECT_EQ(reader.u64(), 100u);  // size before
  const std::uint64_t mtime_before = reader.u64();
  reader.u64();
  EXPECT_TRUE(reader.boolean());
  reader.skip(20);
  EXPECT_EQ(reader.u64(), 150u);
  reader.skip(8 + 8 + 16 + 8);
  EXPECT_GT(reader.u64(), mtime_before);
  reader.u64();
  EXPECT_EQ(reader.u32(), 50u);
  EXPECT_EQ(reader.u32(), 2u);  // FILE_SYNC
  const std::uint64_t verifier = reader.u64();
  const Bytes commit = exports.run(kNfs3Commit, Args().handle(file).hyper(0).word(0));
  EXPECT_EQ(xdr::load_u64(commit.data() + commit.size() - 8), verifier);
}

TEST(NfsAcl, getacl_shows_the_mode_and_setacl_takes_what_a_mode_can_hold) {
  Exports exports;
  const Bytes file = exports.create(exports.root(Exports::kPlain), "f", 0640);
  const auto acl = [&](std::uint32_t procedure, const Args& args) {
    Bytes body(64);
    xdr::Writer writer(body);
    rpc::encode_auth_sys(writer, {.machine_name = "t", .uid = 1000, .gid = 1000});
    TestCall call(kNfsAclProgram, procedure, args.take(),
                  Bytes(writer.written().begin(), writer.written().end()), true);
    exports.service().acl_service().execute(call);
    EXPECT_EQ(call.completions, 1);
    return call.reply();
  };
  const Bytes got = acl(1, Args().handle(file).word(15));
  xdr::Reader reader(got);
  EXPECT_EQ(reader.u32(), 0u);
  reader.skip(88);
  EXPECT_EQ(reader.u32(), 15u);
  EXPECT_EQ(reader.u32(), 4u);
  EXPECT_EQ(reader.u32(), 4u);
  const std::uint32_t expected[4][3] = {{1, 1000, 6}, {4, 1000, 4}, {16, 0, 4}, {32, 0, 0}};
  for (const auto& entry : expected)
    for (const std::uint32_t word : entry) EXPECT_EQ(reader.u32(), word);
  EXPECT_EQ(reader.u64(), 0u);
  EXPECT_EQ(reader.remaining(), 0u);
  const auto set = [&](std::initializer_list<std::array<std::uint32_t, 3>> entries) {
    Args args;
    args.handle(file)
        .word(1)
        .word(static_cast<std::uint32_t>(entries.size()))
        .word(static_cast<std::uint32_t>(entries.size()));
    for (const auto& entry : entries) args.word(entry[0]).word(entry[1]).word(entry[2]);
    return static_cast<Status>(xdr::load_u32(acl(2, args.word(0).word(0)).data()));
  };
  EXPECT_EQ(set({{1, 0, 7}, {4, 0, 5}, {32, 0, 1}}), Status::Ok);
  EXPECT_EQ(xdr::load_u32(exports.run(kNfs3GetAttr, Args().handle(file)).data() + 8), 0751u);
  EXPECT_EQ(set({{1, 0, 7}, {2, 5, 7}, {4, 0, 5}, {32, 0, 1}}), Status::NotSupp);
}

}  // namespace
}  // namespace sluice::service::memory
