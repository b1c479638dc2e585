// SPDX-License-Identifier: Apache-2.0
//
// Locks across restarts of the control plane.
#include "controlplane/locks/journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "dataplane/base/setup_error.h"
#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

class LockJournal : public Locks {
 protected:
  LockJournal() {
    path_ = testing::TempDir() + "sluice-locks-" + std::to_string(::getpid());
    std::filesystem::remove(path_);
    settings_.state = path_;
  }
  ~LockJournal() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".new");
  }
  void restart() {
    service_.reset();
    for (auto& [last, machine] : machines_) machine->stream.reset();
    upstream_->stream.reset();
    statistics_.held = statistics_.owners = 0;
    settings_.proxy.first_id = 90'000;
    start();
  }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void set_content(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::uint32_t unlocked(Machine& from, const Want& want) {
    const Call call = settled(from, 4, unlock_arguments(want), LK_GRANTED);
    return Decoded<lk_unlockargs>(&xdr_lk_unlockargs, call.arguments)->alock.svid;
  }

  std::string path_;
};

TEST_F(LockJournal, owners_and_locks_are_those_of_before) {
  const std::uint32_t first = locked(machine(2), {.offset = 0, .length = 10});
  const std::uint32_t second = locked(machine(3), {.exclusive = false});
  locked(machine(2), {.svid = 5});
  unlocked(machine(2), {.svid = 5});
  unlocked(machine(2), {.offset = 4, .length = 2});
  restart();
  EXPECT_EQ(value(statistics_.held), 3u);
  EXPECT_EQ(value(statistics_.owners), 2u);
  EXPECT_EQ(unlocked(machine(3), {}), second);
  EXPECT_EQ(locked(machine(2), {.offset = 4, .length = 2}), first);
  EXPECT_EQ(value(statistics_.held), 1u) << "merged";
  const std::uint32_t fresh = locked(machine(4), {});
  EXPECT_TRUE(fresh != first && fresh != second);
  restart();
  EXPECT_EQ(unlocked(machine(4), {}), fresh);
  EXPECT_EQ(unlocked(machine(2), {}), first);
  restart();
  EXPECT_EQ(value(statistics_.owners), 0u);
}

TEST_F(LockJournal, a_lock_is_in_the_file_before_its_client_knows) {
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({}));
  upstream_->server.answer(next_call(*upstream_), result(LK_GRANTED));
  reply(machine(2), xid);
  const std::string at_that_time = content();
  service_.reset();
  set_content(at_that_time);
  restart();
  EXPECT_EQ(value(statistics_.held), 1u);
}

TEST_F(LockJournal, a_client_that_restarts_after_the_gateway_has_its_locks_released_and_clients_are_told) {
  const std::uint32_t svid = locked(machine(2), {.state = 3});
  locked(machine(3), {});
  restart();
  send(*upstream_, kNotify, notice("nas", 9));
  next_call(machine(2));
  next_call(machine(3));
  send(machine(2), kNotify, notice("client", 3));
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty()) << "it locked in that state";
  send(machine(2), kNotify, notice("client", 5));
  const Call call = next_call(*upstream_);
  EXPECT_EQ(Decoded<lk_unlockargs>(&xdr_lk_unlockargs, call.arguments)->alock.svid, svid);
}

TEST_F(LockJournal, a_release_that_was_under_way_goes_on) {
  const std::uint32_t svid = locked(machine(2), {});
  send(machine(2), kNotify, notice("client", 5));
  next_call(*upstream_);
  restart();
  next_call(*upstream_);
  restart();  // the file has been rewritten since
  const Call call = next_call(*upstream_);
  EXPECT_EQ(call.procedure.procedure, 4u);
  EXPECT_EQ(Decoded<lk_unlockargs>(&xdr_lk_unlockargs, call.arguments)->alock.svid, svid);
  upstream_->server.answer(call, result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 0; });
  restart();
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
}

TEST_F(LockJournal, who_was_to_be_told_of_the_upstreams_restart_is_told_after_ours) {
  locked(machine(2), {});
  locked(machine(3), {});
  send(*upstream_, kNotify, notice("nas", 9));
  machine(2).server.answer(next_call(machine(2)), {});
  next_call(machine(3));
  until([&] { return value(statistics_.notices) == 1; });
  restart();
  next_call(machine(3));
  restart();  // the file has been rewritten since
  const Call call = next_call(machine(3));
  EXPECT_EQ(Decoded<lk_notify>(&xdr_lk_notify, call.arguments)->state, 13) << "the same once more";
  machine(3).server.answer(call, {});
  until([&] { return value(statistics_.notices) == 2; });
  restart();
  turns();
  EXPECT_TRUE(machine(2).server.calls.empty());
  EXPECT_TRUE(machine(3).server.calls.empty());
}

TEST_F(LockJournal, a_record_that_was_being_written_is_left_out_and_a_damaged_one_is_reported) {
  locked(machine(2), {});
  locked(machine(3), {});
  service_.reset();
  const std::string whole = content();
  {
    CapturedLog log;
    set_content(whole.substr(0, whole.size() - 3));
    restart();
    EXPECT_EQ(value(statistics_.held), 1u);
    EXPECT_EQ(log.text().find("damaged"), std::string::npos) << log.text();
  }
  service_.reset();
  CapturedLog log;
  std::string damaged = whole;
  constexpr std::size_t kFromEnd = 4 + 8 + 1;  // last byte of the range's start: any value is valid
  damaged[whole.size() - kFromEnd] = static_cast<char>(damaged[whole.size() - kFromEnd] ^ 1);
  set_content(damaged);
  restart();
  EXPECT_EQ(value(statistics_.held), 1u);
  EXPECT_NE(log.text().find(path_ + " is damaged at byte"), std::string::npos) << log.text();
}

/// Random defects of the file neither end the process nor add locks.
TEST_F(LockJournal, no_defect_ends_the_process) {
  for (std::uint32_t svid = 1; svid < 5; ++svid) locked(machine(2), {.svid = svid});
  unlocked(machine(2), {.svid = 2});
  service_.reset();
  const std::string whole = content();
  std::mt19937 random(7);
  CapturedLog log;
  for (int round = 0; round < 300; ++round) {
    std::string damaged = whole.substr(0, random() % 8 == 0 ? random() % whole.size() : whole.size());
    for (int flips = 0; flips < 3 && damaged.size() > 20; ++flips)
      damaged[16 + random() % (damaged.size() - 16)] ^= static_cast<char>(1 << random() % 8);
    set_content(damaged);
    restart();
    EXPECT_LE(value(statistics_.held), 4u);
    service_.reset();
  }
}

TEST_F(LockJournal, a_file_that_cannot_be_used_stops_the_start_with_a_sentence) {
  const auto refused = [&](const std::string& path) {
    settings_.state = path;
    try {
      LockService service(settings_, statistics_);
    } catch (const SetupError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(
      refused("/nowhere/locks"),
      "Cannot record locks in /nowhere/locks (No such file or directory). Set locks.state to a file that "
      "the control plane may write, or to \"\".");
  set_content("somebody's diary");
  EXPECT_NE(refused(path_).find("it is not a file of locks"), std::string::npos);
  EXPECT_EQ(content(), "somebody's diary");
}

/// The index of an interface differs after a restart of the machine, its name does not.
TEST_F(LockJournal, the_interface_of_a_link_local_client_is_known_by_its_name) {
  const auto client = parse_address("fe80::1%lo");
  const auto own = parse_address("fe80::2%lo");
  ASSERT_TRUE(client && own);
  {
    Journal journal(path_);
    Table table(statistics_, &journal, 1);
    journal.load(table);
    Owner& owner = *table.find_or_make({{*client, "c"}, {}, 1}, {});
    owner.local = *own;
    table.hold(owner, Bytes(4), {0, 9, true});
  }
  const std::string before = content();
  const std::string name("lo\0\0", 4);
  ASSERT_NE(before.find(name), std::string::npos);
  Journal again(path_);
  Table restored(statistics_, &again, 1);
  again.load(restored);
  const std::size_t owners = restored.owners().size();
  const Owner* const owner = restored.find_or_make({{*client, "c"}, {}, 1}, *own);
  ASSERT_NE(owner, nullptr);
  EXPECT_EQ(restored.owners().size(), owners) << "it is the client of before";
}

TEST_F(LockJournal, it_is_written_anew_when_most_of_it_is_past) {
  Journal journal(path_);
  Table table(statistics_, &journal, 1);
  journal.load(table);
  Owner& owner = *table.find_or_make({{PeerAddress::from_ipv4(192, 0, 2, 1), "c"}, {}, 1}, {});
  table.hold(owner, Bytes(4), {0, 9, true});
  std::uint64_t now_ns = kStartNs;
  while (content().size() < kCompactBytes)
    for (int i = 0; i < 1000; ++i) {
      table.hold(owner, Bytes(8), {20, 29, true});
      table.free(owner, Bytes(8), {20, 29, true});
    }
  journal.maintain(table, now_ns);
  EXPECT_LT(content().size(), 1000u);
  table.hold(owner, Bytes(12), {5, 5, false});
  Journal again(path_);
  Table restored(statistics_, &again, 1);
  again.load(restored);
  ASSERT_NE(restored.by_id(owner.id), nullptr);
  EXPECT_EQ(restored.by_id(owner.id)->files.size(), 2u);
  EXPECT_EQ(restored.by_id(owner.id)->files.at(Bytes(4)).all(), (std::vector<Range>{{0, 9, true}}));
}

}  // namespace
}  // namespace sluice::locks
