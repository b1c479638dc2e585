// SPDX-License-Identifier: Apache-2.0
//
// Readers of files that another reactor owns: which calls they answer, what they leave to the owner, and when
// a freed block may be used again.
#include "dataplane/service/memory/file_reader.h"

#include <gtest/gtest.h>

#include <deque>

#include "tests/unit/service/memory/nfs3_data_fixture.h"

namespace sluice::service::test {
namespace {

using memory::FileReader;

/// The owner's service, which counts its calls.
class CountingOwner final : public Service {
 public:
  explicit CountingOwner(MemoryService& real) : real_(real) {}
  const service::Binding& binding() const noexcept override { return real_.binding(); }
  Placement place(Call& call) noexcept override { return ++calls, real_.place(call); }
  Execution execute(Call& call) noexcept override { return ++calls, real_.execute(call); }
  void release(Call& call) noexcept override { real_.release(call); }
  int calls = 0;

 private:
  MemoryService& real_;
};

class Readers : public testing::Test {
 protected:
  Readers() { lab.set_front(&reader); }
  ~Readers() override { lab.set_front(nullptr); }

  memory::FileSystem& fs() { return lab.service().file_system(); }
  std::uint64_t settling() { return fs().blocks().settling_bytes(); }
  void owner_turns(int turns = 8) {
    for (int i = 0; i < turns; ++i) lab.service().background(0);
  }
  /// Returns how many calls the owner gets while `make` is called.
  template <typename Make>
  int owners(const Make& make) {
    const int before = owner.calls;
    make();
    return owner.calls - before;
  }
  /// Creates a file by the owner, with data that has been read once.
  Handle file(std::string_view name, const Bytes& data) {
    lab.set_front(nullptr);
    const Handle made = lab.file(root, name);
    EXPECT_TRUE(lab.write(made, 0, data).ok());
    EXPECT_TRUE(lab.read(made, 0, 1).ok());
    lab.set_front(&reader);
    return made;
  }

  Lab lab;
  CountingOwner owner{lab.service()};
  FileReader reader{lab.service(), owner, {.data = lab.arena_lkey(), .zeros = rdma::Lkey{12}}};
  const Handle root = lab.root();
};

TEST_F(Readers, what_changes_nothing_is_answered_where_it_arrives_and_as_by_the_owner) {
  const Handle f = file("f", pattern(100'000, 1));
  ASSERT_TRUE(lab.symlink(root, "link", "target").ok());
  const Handle link = lab.lookup(root, "link").handle;
  const Handle sub = lab.directory(root, "sub");
  const auto same = [&](const auto& make) {
    Result here;
    EXPECT_EQ(owners([&] { here = make(); }), 0);
    lab.set_front(nullptr);
    const Result there = make();
    lab.set_front(&reader);
    EXPECT_EQ(here.status, there.status);
    EXPECT_EQ(here.handle, there.handle);
    EXPECT_EQ(here.data, there.data);
    EXPECT_EQ(here.numbers, there.numbers);
    EXPECT_EQ(here.reply_bytes, there.reply_bytes);
    EXPECT_EQ(here.attr.has_value(), there.attr.has_value());
  };
  same([&] { return lab.getattr(f); });
  same([&] { return lab.getattr(bytes_of("bad")); });
  same([&] { return lab.lookup(root, "f"); });
  same([&] { return lab.lookup(root, "none"); });
  same([&] { return lab.lookup(root, "."); });
  same([&] { return lab.lookup(sub, ".."); });
  same([&] { return lab.lookup(f, "f"); });
  same([&] { return lab.lookup(root, std::string(256, 'x')); });
  same([&] { return lab.access(f, 63, kAlice); });
  same([&] { return lab.readlink(link); });
  same([&] { return lab.readlink(f); });
  same([&] { return lab.read(f, 0, 1000); });
  same([&] { return lab.read(f, 65'000, 35'000); });
  same([&] { return lab.read(f, 1 << 20, 1); });
  same([&] { return lab.read(root, 0, 1); });
  same([&] { return lab.fsinfo(root); });
  same([&] { return lab.pathconf(f); });
  same([&] { return lab.commit(f); });
  same([&] { return lab.commit(root); });
  EXPECT_EQ(reader.given_to_owner(), 0u);
}

TEST_F(Readers, all_other_calls_are_the_owners) {
  Handle f;
  EXPECT_EQ(owners([&] { f = lab.file(root, "f"); }), 1);
  EXPECT_EQ(owners([&] { lab.write(f, 0, pattern(10, 1)); }), 1);
  EXPECT_EQ(owners([&] { PlacedWrite(lab, f, 0, 100).abandon(); }), 1);
  EXPECT_EQ(owners([&] { lab.setattr(f, {.mode = 0600}); }), 1);
  EXPECT_EQ(owners([&] { lab.mkdir(root, "d"); }), 1);
  EXPECT_EQ(owners([&] { lab.symlink(root, "s", "t"); }), 1);
  EXPECT_EQ(owners([&] { lab.mknod(root, "p", 7); }), 1);
  EXPECT_EQ(owners([&] { lab.link(f, root, "l"); }), 1);
  EXPECT_EQ(owners([&] { lab.rename(root, "l", root, "m"); }), 1);
  EXPECT_EQ(owners([&] { lab.remove(root, "m"); }), 1);
  EXPECT_EQ(owners([&] { lab.rmdir(root, "d"); }), 1);
  EXPECT_EQ(owners([&] { lab.readdir(root, 0, 0, 1000); }), 1);
  EXPECT_EQ(owners([&] { lab.readdirplus(root, 0, 0, 1000, 1000); }), 1);
  EXPECT_EQ(owners([&] { lab.fsstat(root); }), 1);
  EXPECT_EQ(owners([&] { lab.getattr(f, {.flavor = rpc::AuthFlavor::Short}); }), 1)
      << "it refuses the flavor";
}

TEST_F(Readers, an_answered_change_is_seen) {
  const Handle f = lab.file(root, "f");
  for (std::uint64_t bytes : {10u, 5000u, 100'000u, 3u}) {
    ASSERT_TRUE(lab.setattr(f, {.size = bytes}).ok());
    EXPECT_EQ(lab.getattr(f).attr->size, bytes);
  }
  ASSERT_TRUE(lab.rename(root, "f", root, "g").ok());
  EXPECT_EQ(lab.lookup(root, "f").status, Status::NoEnt);
  EXPECT_EQ(lab.lookup(root, "g").handle, f);
  ASSERT_TRUE(lab.remove(root, "g").ok());
  EXPECT_EQ(lab.lookup(root, "g").status, Status::NoEnt);
  EXPECT_EQ(lab.getattr(f).status, Status::Stale);
  lab.file(root, "again");  // gets the inode
  EXPECT_EQ(lab.getattr(f).status, Status::Stale);
  EXPECT_EQ(reader.given_to_owner(), 0u);
}

TEST_F(Readers, a_changing_inode_is_left_to_the_owner_until_it_is_published) {
  const Handle f = file("f", pattern(100, 1));
  const auto number = static_cast<memory::InodeNumber>(lab.getattr(f).attr->fileid);
  fs().change(number).size = 50;
  EXPECT_EQ(owners([&] { lab.getattr(f); }), 1);
  EXPECT_EQ(owners([&] { lab.lookup(root, "f"); }), 1);
  EXPECT_EQ(owners([&] { lab.read(f, 0, 10); }), 1);
  EXPECT_EQ(owners([&] { lab.getattr(root); }), 0);
  fs().change(number).size = 60;
  fs().publish();
  EXPECT_EQ(owners([&] { EXPECT_EQ(lab.getattr(f).attr->size, 60u); }), 0);
}

TEST_F(Readers, a_changing_name_is_left_to_the_owner_and_other_directories_are_not) {
  const Handle sub = lab.directory(root, "sub");
  const auto number = static_cast<memory::InodeNumber>(lab.getattr(root).attr->fileid);
  fs().create(number, "new", {});
  EXPECT_EQ(owners([&] { EXPECT_TRUE(lab.lookup(root, "new").ok()); }), 1);
  EXPECT_EQ(owners([&] { EXPECT_EQ(lab.lookup(sub, "other").status, Status::NoEnt); }), 0);
  fs().publish();
  EXPECT_EQ(owners([&] { EXPECT_TRUE(lab.lookup(root, "new").ok()); }), 0);
}

TEST_F(Readers, the_access_time_is_set_by_the_first_read_after_a_change_and_after_an_hour) {
  const Handle f = lab.file(root, "f");
  ASSERT_TRUE(lab.write(f, 0, pattern(10, 1)).ok());
  EXPECT_EQ(owners([&] { lab.read(f, 0, 10); }), 1);
  const Attr first = *lab.getattr(f).attr;
  EXPECT_GT(first.atime, first.mtime);
  EXPECT_EQ(owners([&] { lab.read(f, 0, 10); }), 0);
  EXPECT_EQ(lab.getattr(f).attr->atime, first.atime);
  set_test_clock(first.atime + 3601 * memory::kNsPerSecond);
  EXPECT_EQ(owners([&] { lab.read(f, 0, 10); }), 1);
  EXPECT_GT(lab.getattr(f).attr->atime, first.atime);
}

TEST_F(Readers, a_freed_block_waits_for_the_confirmation_of_every_reader) {
  FileReader second(lab.service(), owner, {.data = lab.arena_lkey(), .zeros = rdma::Lkey{12}});
  file("f", pattern(kLargeBytes, 1));
  ASSERT_TRUE(lab.remove(root, "f").ok());
  owner_turns();
  EXPECT_EQ(settling(), kLargeBytes);
  reader.background(0);
  owner_turns();
  EXPECT_EQ(settling(), kLargeBytes) << "the second reader may have found the block";
  second.background(0);
  owner_turns();
  EXPECT_EQ(settling(), 0u);
}

TEST_F(Readers, a_block_that_is_freed_during_a_grace_period_waits_for_the_next) {
  file("f", pattern(kLargeBytes, 1));
  file("g", pattern(kLargeBytes, 2));
  ASSERT_TRUE(lab.remove(root, "f").ok());
  owner_turns(1);  // the period starts
  ASSERT_TRUE(lab.remove(root, "g").ok());
  reader.background(0);
  owner_turns();
  EXPECT_EQ(settling(), kLargeBytes);
  reader.background(0);
  owner_turns();
  EXPECT_EQ(settling(), 0u);
}

TEST_F(Readers, a_block_on_its_way_to_a_client_is_not_used_again) {
  const Bytes data = pattern(2 * kLargeBytes, 1);
  const Handle f = file("f", data);
  {
    PendingRead read(lab, f, 0, 2 * kLargeBytes);
    ASSERT_TRUE(lab.remove(root, "f").ok());
    for (int i = 0; i < 4; ++i) {
      owner_turns();
      reader.background(0);
    }
    EXPECT_EQ(settling(), 2 * kLargeBytes);
    EXPECT_EQ(read.data(), data);
  }
  owner_turns();
  EXPECT_EQ(settling(), 0u);
}

TEST_F(Readers, a_cut_file_gets_another_block_while_there_are_readers) {
  const Bytes data = pattern(10'000, 1);
  const Handle f = file("f", data);
  PendingRead read(lab, f, 0, 10'000);
  ASSERT_TRUE(lab.setattr(f, {.size = 100}).ok());
  ASSERT_TRUE(lab.setattr(f, {.size = 10'000}).ok());
  EXPECT_EQ(read.data(), data);
  EXPECT_EQ(part(lab.read_all(f), 0, 100), part(data, 0, 100));
  EXPECT_TRUE(all_zero(part(lab.read_all(f), 100, 9'900)));
}

TEST_F(Readers, a_full_pool_can_be_cut_again_and_again) {
  std::deque<Handle> files;
  lab.set_front(nullptr);
  for (;;) {
    files.push_back(lab.file(root, numbered("f", files.size())));
    if (!lab.write(files.back(), 0, pattern(kLargeBytes, 1)).ok()) break;
  }
  files.pop_back();
  lab.set_front(&reader);
  for (const Handle& f : files) {
    ASSERT_TRUE(lab.setattr(f, {.size = 10'000}).ok());
    owner_turns();
    reader.background(0);
    owner_turns();
  }
  EXPECT_EQ(lab.setattr(files[0], {.size = 5'000}).status, Status::Ok);
  EXPECT_EQ(lab.setattr(files[1], {.size = 5'000}).status, Status::Jukebox) << "the reader has not confirmed";
}

TEST_F(Readers, a_write_that_finds_only_small_blocks_waits_for_large_ones) {
  for (int i = 0; i < 40; ++i)
    ASSERT_TRUE(lab.write(lab.file(root, numbered("small", i)), 0, pattern(1, 1)).ok());
  for (int i = 0; i < 40; i += 2) ASSERT_TRUE(lab.remove(root, numbered("small", i)).ok());
  const auto settle = [&] {
    for (int i = 0; i < 4; ++i) {
      owner_turns();
      reader.background(0);
    }
  };
  settle();
  const Handle big = lab.file(root, "big");
  std::uint64_t bytes = 0;
  while (lab.write(big, bytes, pattern(kLargeBytes, 1)).ok()) bytes += kLargeBytes;
  EXPECT_EQ(lab.write(big, bytes, pattern(kLargeBytes, 1)).status, Status::NoSpc);
  ASSERT_TRUE(lab.remove(root, "big").ok());
  ASSERT_GT(fs().blocks().free_bytes(), kLargeBytes) << "in small blocks";
  const Handle next = lab.file(root, "next");
  EXPECT_EQ(lab.write(next, 0, pattern(kLargeBytes, 1)).status, Status::Jukebox);
  settle();
  EXPECT_TRUE(lab.write(next, 0, pattern(kLargeBytes, 1)).ok());
}

TEST_F(Readers, a_quota_that_is_used_up_is_no_reason_to_wait) {
  const Handle f = file("f", pattern(2 * kLargeBytes, 1));
  std::vector<ExportOptions> less = lab.service().exports();
  less[0].quota_bytes = kLargeBytes;
  lab.service().exchange_exports(less);
  ASSERT_TRUE(lab.setattr(f, {.size = kLargeBytes}).ok());
  ASSERT_GT(settling(), 0u);
  EXPECT_EQ(lab.write(lab.file(root, "g"), 0, pattern(1, 1)).status, Status::NoSpc);
}

TEST_F(Readers, times_in_the_future_do_not_make_every_read_the_owners) {
  const Handle f = file("f", pattern(10, 1));
  const std::uint64_t future = lab.getattr(f).attr->mtime + 1'000'000 * memory::kNsPerSecond;
  ASSERT_TRUE(lab.setattr(f, {.mtime_how = 2, .mtime = future}).ok());
  EXPECT_EQ(owners([&] { lab.read(f, 0, 10); }), 0);
  ASSERT_TRUE(lab.setattr(f, {.atime_how = 2, .atime = future}).ok());
  EXPECT_EQ(owners([&] { lab.read(f, 0, 10); }), 0);
  EXPECT_EQ(lab.getattr(f).attr->atime, future);
}

TEST_F(Readers, a_list_of_exports_that_the_owner_has_not_applied_yet_denies_at_once) {
  std::vector<ExportOptions> narrower = lab.service().exports();
  narrower[0].allowed = {{.address = PeerAddress::from_ipv4(198, 51, 100, 0), .bits = 120}};
  reader.exchange_exports(narrower);
  EXPECT_EQ(owners([&] { EXPECT_EQ(lab.getattr(root).status, Status::Acces); }), 0);
  std::vector<ExportOptions> none = lab.service().exports();
  none[0].in_use = false;
  reader.exchange_exports(none);
  EXPECT_EQ(owners([&] { EXPECT_EQ(lab.getattr(root).status, Status::Stale); }), 0);
}

TEST_F(Readers, a_path_that_the_reader_does_not_know_yet_is_judged_by_the_owner) {
  std::vector<ExportOptions> other = lab.service().exports();
  other[0].path = "/other";
  other[0].allowed = {{.address = PeerAddress::from_ipv4(198, 51, 100, 0), .bits = 120}};
  lab.service().exchange_exports(other);
  const Handle new_root = lab.root();
  EXPECT_EQ(owners([&] { EXPECT_EQ(lab.getattr(new_root).status, Status::Acces); }), 1);
}

TEST_F(Readers, answers_are_counted_by_export_and_procedure) {
  lab.getattr(root);
  lab.lookup(root, "none");
  lab.getattr(bytes_of("bad"));
  const memory::ExportStatistics& counted = reader.statistics(0);
  EXPECT_EQ(counted.calls.get(), 2u);
  EXPECT_EQ(counted.errors.get(), 1u);
  EXPECT_EQ(counted.procedures[ulb::kNfs3Lookup].errors.get(), 1u);
  EXPECT_EQ(reader.statistics(memory::kNoExport).errors.get(), 1u);
}

}  // namespace
}  // namespace sluice::service::test
