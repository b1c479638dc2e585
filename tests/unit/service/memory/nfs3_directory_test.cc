// SPDX-License-Identifier: Apache-2.0
//
// READDIR and READDIRPLUS: bounds, persistent cookies, large directories that change while they are read.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "tests/unit/service/memory/nfs3_client.h"

namespace sluice::service::test {
namespace {

class Directory : public testing::Test {
 protected:
  void fill(const Handle& dir, unsigned from, unsigned to) {
    for (unsigned i = from; i < to; ++i) ASSERT_TRUE(lab.create(dir, numbered("file-", i)).ok());
  }
  Lab lab;
  const Handle root = lab.root();
  const Handle d = lab.directory(root, "d");
};

TEST_F(Directory, an_empty_directory_has_two_entries) {
  const Result r = lab.readdir(d, 0, 0, 4096);
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(r.eof);
  ASSERT_EQ(r.entries.size(), 2u);
  EXPECT_EQ(r.entries[0].name, ".");
  EXPECT_EQ(r.entries[0].fileid, lab.getattr(d).attr->fileid);
  EXPECT_EQ(r.entries[1].name, "..");
  EXPECT_EQ(r.entries[1].fileid, lab.getattr(root).attr->fileid);
  EXPECT_EQ(r.attr->fileid, lab.getattr(d).attr->fileid);
}

TEST_F(Directory, going_on_from_every_cookie_gives_the_rest) {
  fill(d, 0, 20);
  const Result all = lab.readdir(d, 0, 0, 8192);
  ASSERT_EQ(all.entries.size(), 22u);
  ASSERT_TRUE(all.eof);
  for (std::size_t i = 0; i < all.entries.size(); ++i) {
    const Result rest = lab.readdir(d, all.entries[i].cookie, all.verifier, 8192);
    ASSERT_TRUE(rest.ok());
    EXPECT_TRUE(rest.eof);
    ASSERT_EQ(rest.entries.size(), 21 - i);
    for (std::size_t k = 0; k < rest.entries.size(); ++k)
      EXPECT_EQ(rest.entries[k].name, all.entries[i + 1 + k].name);
  }
  EXPECT_TRUE(lab.readdir(d, 0xffffffffffffffff, all.verifier, 4096).entries.empty());
}

TEST_F(Directory, V1_197_a_reply_stays_within_the_count_asked_for) {
  fill(d, 0, 200);
  for (const bool plus : {false, true}) {
    for (std::uint32_t count = 0; count < 3000; count += 4) {
      const Result r = plus ? lab.readdirplus(d, 0, 0, 100000, count) : lab.readdir(d, 0, 0, count);
      ASSERT_EQ(r.accepted, rpc::AcceptStat::Success);
      if (r.status == Status::TooSmall) {
        EXPECT_LT(count, plus ? 270u : 140u);
        continue;
      }
      ASSERT_TRUE(r.ok());
      EXPECT_LE(r.reply_bytes - 4, count) << "the count is that of READDIR3resok, without the status";
      EXPECT_FALSE(r.entries.empty());
      const std::size_t one_more = plus ? 160 : 36;
      EXPECT_GT(r.reply_bytes + one_more, count) << "there was room for more";
      if (r.accepted != rpc::AcceptStat::Success) break;
    }
  }
}

TEST_F(Directory, the_largest_counts_fill_the_largest_reply) {
  fill(d, 0, 3000);
  for (const std::uint32_t count : {65532u, 65536u, 65540u, 1u << 20, 0xffffffffu}) {
    const Result r = lab.readdir(d, 0, 0, count);
    ASSERT_TRUE(r.ok()) << count;
    EXPECT_LE(r.reply_bytes, 65536u);
    EXPECT_GT(r.reply_bytes, 65400u);
    const Result plus = lab.readdirplus(d, 0, 0, count, count);
    ASSERT_TRUE(plus.ok()) << count;
    EXPECT_LE(plus.reply_bytes, 65540u) << "the status stands in front of what counts";
    EXPECT_GT(plus.reply_bytes, 65200u);
  }
}

TEST_F(Directory, waits_for_reply_memory_without_side_effects) {
  fill(d, 0, 100);
  const Bytes arguments = encode([&](auto& out) {
    out.opaque(d);
    out.u64(0);
    out.u64(0);
    out.u32(32768);
  });
  TestCall call;
  lab.prepare(call, ulb::kNfs3ReadDir, kRoot);
  call.memory_available = false;
  call.start(arguments);
  EXPECT_EQ(call.execute(lab.front()), Execution::NeedsMemory);
  EXPECT_EQ(call.completions(), 0);
  call.memory_available = true;
  EXPECT_EQ(call.execute(lab.front()), Execution::Started);
  EXPECT_EQ(decode(ulb::kNfs3ReadDir, call.results()).entries.size(), 102u);
  call.release(lab.front());
}

TEST_F(Directory, small_counts_do_not_ask_for_a_large_reply) {
  const Bytes arguments = encode([&](auto& out) {
    out.opaque(d);
    out.u64(0);
    out.u64(0);
    out.u32(800);
  });
  TestCall call;
  lab.prepare(call, ulb::kNfs3ReadDir, kRoot);
  call.memory_available = false;
  call.start(arguments);
  EXPECT_EQ(call.execute(lab.front()), Execution::Started);
  call.release(lab.front());
}

TEST_F(Directory, readdirplus_tells_attributes_and_handles) {
  const Handle f = lab.file(d, "f", 0604);
  const Handle l = lab.symlink(d, "l", "f").handle;
  const Result r = lab.readdirplus(d, 0, 0, 4096, 4096);
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r.entries.size(), 4u);
  EXPECT_EQ(r.entries[0].handle, d);
  EXPECT_EQ(r.entries[1].handle, root);
  EXPECT_EQ(r.entries[2].handle, f);
  EXPECT_EQ(r.entries[2].attr->mode, 0604u);
  EXPECT_EQ(r.entries[3].handle, l);
  EXPECT_EQ(r.entries[3].attr->type, 5u);
  for (const DirEntry& entry : r.entries) EXPECT_EQ(entry.attr->fileid, entry.fileid);
}

TEST_F(Directory, dircount_limits_names_but_not_below_one) {
  fill(d, 0, 100);
  const Result none = lab.readdirplus(d, 0, 0, 0, 32768);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none.entries.size(), 1u);
  const Result some = lab.readdirplus(d, 0, 0, 512, 32768);
  ASSERT_TRUE(some.ok());
  EXPECT_GT(some.entries.size(), 10u);
  EXPECT_LT(some.entries.size(), 20u);
  EXPECT_FALSE(some.eof);
}

TEST_F(Directory, errors) {
  const Handle f = lab.file(d, "f");
  EXPECT_EQ(lab.readdir(f, 0, 0, 4096).status, Status::NotDir);
  EXPECT_EQ(lab.readdirplus(f, 0, 0, 4096, 4096).status, Status::NotDir);
  const Handle closed = lab.directory(root, "closed", 0711);
  EXPECT_EQ(lab.readdir(closed, 0, 0, 4096, kAlice).status, Status::Acces);
  EXPECT_EQ(lab.readdir(d, 0, 0, 10).status, Status::TooSmall);
  EXPECT_EQ(lab.readdir(d, 5, 0x1234, 4096).status, Status::BadCookie) << "a verifier of another start";
}

TEST_F(Directory, ten_thousand_names_come_once_each) {
  fill(d, 0, 10000);
  EXPECT_EQ(lab.list(d).size(), 10000u);
  std::set<std::string> names;
  for (const DirEntry& entry : lab.list(d, 65536)) EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
  EXPECT_EQ(names.size(), 10000u);
}

TEST_F(Directory, names_are_removed_while_they_are_listed) {
  // This is the sequence of rm -r: list a part, remove it, continue from a cookie whose entry has been
  // removed.
  fill(d, 0, 10000);
  std::uint64_t cookie = 0;
  std::uint64_t verifier = 0;
  unsigned removed = 0;
  for (bool eof = false; !eof;) {
    const Result r = lab.readdir(d, cookie, verifier, 4096);
    ASSERT_TRUE(r.ok());
    eof = r.eof;
    verifier = r.verifier;
    for (const DirEntry& entry : r.entries) {
      cookie = entry.cookie;
      if (entry.name == "." || entry.name == "..") continue;
      ASSERT_TRUE(lab.remove(d, entry.name).ok()) << entry.name;
      ++removed;
    }
  }
  EXPECT_EQ(removed, 10000u);
  EXPECT_TRUE(lab.list(d).empty());
  EXPECT_TRUE(lab.rmdir(root, "d").ok());
}

TEST_F(Directory, cookies_survive_any_creates_and_removes) {
  // An entry that exists during the whole listing is returned exactly once, whichever other entries change.
  std::mt19937 random(20260101);
  fill(d, 0, 2000);
  for (int round = 0; round < 5; ++round) {
    std::set<std::string> before;
    for (const DirEntry& entry : lab.list(d)) before.insert(entry.name);
    std::set<std::string> removed;
    std::map<std::string, int> seen;
    std::uint64_t cookie = 0;
    std::uint64_t verifier = 0;
    unsigned made = 0;
    for (bool eof = false; !eof;) {
      const Result r = lab.readdir(d, cookie, verifier, 2048);
      ASSERT_TRUE(r.ok());
      eof = r.eof;
      verifier = r.verifier;
      for (const DirEntry& entry : r.entries) {
        cookie = entry.cookie;
        ++seen[entry.name];
      }
      for (int i = 0; i < 20; ++i) {
        const std::string name = numbered("file-", random() % 2000);
        if (lab.remove(d, name).ok()) removed.insert(name);
        if (made < 1000) {
          const std::string fresh = numbered("new-", (static_cast<unsigned>(round) * 1000) + made++);
          ASSERT_TRUE(lab.create(d, fresh).ok());
        }
      }
    }
    for (const std::string& name : before) {
      if (removed.contains(name)) {
        EXPECT_LE(seen[name], 1) << name;
      } else {
        EXPECT_EQ(seen[name], 1) << name;
      }
    }
    for (unsigned i = 0; i < 2000; ++i) lab.create(d, numbered("file-", i));
  }
}

TEST_F(Directory, names_with_one_prefix_and_many_directories_keep_apart) {
  std::vector<Handle> dirs;
  for (unsigned i = 0; i < 50; ++i) dirs.push_back(lab.directory(d, numbered("sub", i)));
  for (unsigned i = 0; i < 50; ++i)
    for (unsigned k = 0; k < i; ++k) ASSERT_TRUE(lab.create(dirs[i], numbered("same", k)).ok());
  for (unsigned i = 0; i < 50; ++i) EXPECT_EQ(lab.list(dirs[i]).size(), i);
}

TEST_F(Directory, a_deep_tree_is_no_cycle_but_too_deep_to_search) {
  std::vector<Handle> chain{d};
  for (std::uint32_t i = 0; i < memory::kMaxDirectoryDepth + 5; ++i)
    chain.push_back(lab.directory(chain.back(), "s"));
  lab.directory(root, "mover");
  EXPECT_TRUE(lab.rename(root, "mover", chain[100], "mover").ok());
  EXPECT_EQ(lab.rename(chain[100], "mover", chain.back(), "mover").status, Status::Inval);
}

}  // namespace
}  // namespace sluice::service::test
