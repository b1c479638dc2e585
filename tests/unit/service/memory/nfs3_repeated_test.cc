// SPDX-License-Identifier: Apache-2.0
//
// The duplicate request cache: calls that a client retransmits after it lost its connection before the reply.
#include "tests/unit/service/memory/nfs3_fixture.h"

namespace sluice::service::test {
namespace {

/// Repeats a call like a client that lost its connection before the reply arrived.
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
    EXPECT_EQ(call.execute(lab.front()), Execution::Started);
    EXPECT_EQ(call.completions(), 1);
    const Bytes results = call.results();
    call.release(lab.front());
    return results;
  }
  static Caller caller(std::uint8_t last) {
    Caller caller = kRoot;
    caller.peer = PeerAddress::from_ipv4(192, 0, 2, last);
    return caller;
  }
  /// Checks that a MKDIR and a RMDIR succeed.
  void make_and_remove(std::uint32_t xid, const Caller& who) {
    ASSERT_EQ(status_of(results_of(xid, kMkDir, "other", who)), 0u);
    ASSERT_EQ(status_of(results_of(xid, kRmDir, "other", who)), 0u);
  }
  /// Number of calls; five times the entries of the cache.
  static constexpr std::uint32_t kMany = 5 * memory::kReplySets * memory::kReplyWays;
  static constexpr std::uint32_t kMkDir = 9;
  static constexpr std::uint32_t kRemove = 12;
  static constexpr std::uint32_t kRmDir = 13;
  static std::uint32_t status_of(const Bytes& results) { return xdr::load_u32(results.data()); }
};

TEST_F(Nfs3Repeated, a_removal_and_a_creation_that_come_again_get_their_first_answers) {
  lab.file(root, "f");
  const Bytes removed = results_of(700, kRemove, "f");
  EXPECT_EQ(status_of(removed), 0u);
  EXPECT_EQ(results_of(700, kRemove, "f"), removed);
  EXPECT_EQ(lab.service().statistics(service::memory::kNoExport).repeated.get(), 1u);
  const Bytes made = results_of(701, kMkDir, "d");
  EXPECT_EQ(status_of(made), 0u);
  EXPECT_EQ(results_of(701, kMkDir, "d"), made);
  // Error replies are cached as well.
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

/// The cached reply of a host is not sent to another process at its address, nor to the host before it has
/// authenticated.
TEST_F(Nfs3Repeated, the_answer_to_a_host_by_name_is_for_that_host) {
  std::vector<ExportOptions> exports = lab.service().exports();
  exports[0].hosts = {HostName("alpha"), HostName("beta")};
  lab.service().exchange_exports(exports);
  Caller host = kRoot;
  Caller other = kRoot;
  host.host = HostName("alpha");
  other.host = HostName("beta");
  const auto acces = static_cast<std::uint32_t>(Status::Acces);
  EXPECT_EQ(status_of(results_of(699, kMkDir, "d", kRoot)), acces);
  EXPECT_EQ(status_of(results_of(699, kMkDir, "d", host)), 0u)
      << "the refusal of a stranger is not its answer";
  const Bytes made = results_of(700, kMkDir, "e", host);
  EXPECT_EQ(status_of(made), 0u);
  EXPECT_EQ(status_of(results_of(700, kMkDir, "e", kRoot)), acces);
  EXPECT_EQ(status_of(results_of(700, kMkDir, "e", other)), static_cast<std::uint32_t>(Status::Exist));
  EXPECT_EQ(results_of(700, kMkDir, "e", host), made);
}

/// The host calls again on a connection on which it has not authenticated yet.
TEST_F(Nfs3Repeated, an_export_for_everybody_answers_a_host_again_that_has_lost_its_name) {
  lab.file(root, "f");
  Caller host = kRoot;
  host.host = HostName("alpha");
  EXPECT_EQ(status_of(results_of(700, kRemove, "f", host)), 0u);
  EXPECT_EQ(status_of(results_of(700, kRemove, "f", kRoot)), 0u);
}

TEST_F(Nfs3Repeated, answers_are_forgotten_in_time_and_for_want_of_room) {
  lab.file(root, "f");
  set_test_clock(1'760'000'000'000'000'000);
  EXPECT_EQ(status_of(results_of(700, kRemove, "f")), 0u);
  set_test_clock(1'760'000'000'000'000'000 + memory::kKeepReplyNs + 1'000'000);
  EXPECT_EQ(status_of(results_of(700, kRemove, "f")), static_cast<std::uint32_t>(Status::NoEnt));
  lab.file(root, "f");
  EXPECT_EQ(status_of(results_of(800, kRemove, "f")), 0u);
  for (std::uint32_t i = 0; i < 20 * memory::kReplySets * memory::kReplyWays; ++i)
    make_and_remove(1000 + i, kRoot);
  EXPECT_EQ(status_of(results_of(800, kRemove, "f")), static_cast<std::uint32_t>(Status::NoEnt));
}

/// The other client's errors and successes are a multiple of the cache's capacity.
TEST_F(Nfs3Repeated, a_busy_client_does_not_push_out_the_answers_to_another) {
  const Caller other = caller(99);
  const Bytes made = results_of(700, kMkDir, "mine");
  ASSERT_EQ(status_of(made), 0u);
  for (std::uint32_t i = 0; i < kMany; ++i)
    ASSERT_EQ(status_of(results_of(1000 + i, kRemove, "none", other)),
              static_cast<std::uint32_t>(Status::NoEnt));
  EXPECT_EQ(results_of(700, kMkDir, "mine"), made) << "after errors";
  for (std::uint32_t i = 0; i < kMany; ++i) make_and_remove(1'000'000 + i, other);
  EXPECT_EQ(results_of(700, kMkDir, "mine"), made) << "after successes";
}

/// A client does not evict its own answers in this way either.
TEST_F(Nfs3Repeated, calls_that_changed_nothing_do_not_push_out_those_that_did) {
  const Bytes made = results_of(700, kMkDir, "mine");
  ASSERT_EQ(status_of(made), 0u);
  lab.file(root, "f");
  for (std::uint32_t i = 0; i < kMany; ++i) {
    results_of(1000 + i, kRemove, "none");
    ASSERT_TRUE(lab.create(root, "f").ok()) << "a file that exists";
    ASSERT_TRUE(lab.rename(root, "f", root, "f").ok()) << "to its own name";
  }
  EXPECT_EQ(results_of(700, kMkDir, "mine"), made);
}

TEST_F(Nfs3Repeated, all_changes_of_a_client_are_remembered_while_many_others_are_busy) {
  constexpr std::uint32_t kMine = 64;
  constexpr std::uint8_t kOthers = 10;
  std::vector<Bytes> made;
  for (std::uint32_t i = 0; i < kMine; ++i) made.push_back(results_of(700 + i, kMkDir, numbered("mine", i)));
  for (std::uint32_t i = 0; i < kMany; ++i)
    make_and_remove(1000 + i, caller(static_cast<std::uint8_t>(100 + i % kOthers)));
  for (std::uint32_t i = 0; i < kMine; ++i)
    EXPECT_EQ(results_of(700 + i, kMkDir, numbered("mine", i)), made[i]) << i;
}

/// Otherwise old calls of a client would count against its share of new ones.
TEST_F(Nfs3Repeated, what_is_forgotten_in_time_is_no_part_of_a_clients_share) {
  constexpr std::uint64_t kStart = 1'760'000'000'000'000'000;
  set_test_clock(kStart);
  for (std::uint32_t i = 0; i < kMany; ++i) make_and_remove(1'000'000 + i, kRoot);
  set_test_clock(kStart + 2 * memory::kKeepReplyNs);
  for (std::uint32_t i = 0; i < memory::kReplySets * memory::kReplyWays; ++i)
    results_of(2'000'000 + i, kRemove, "none", caller(98));
  const Bytes made = results_of(700, kMkDir, "mine");
  for (std::uint32_t i = 0; i < kMany; ++i)
    make_and_remove(3'000'000 + i, caller(static_cast<std::uint8_t>(100 + i % 10)));
  EXPECT_EQ(results_of(700, kMkDir, "mine"), made);
}

}  // namespace
}  // namespace sluice::service::test
