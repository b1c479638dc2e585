// SPDX-License-Identifier: Apache-2.0
//
// Calls of clients on their way to the upstream and back.
#include "controlplane/locks/proxy.h"

#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

TEST_F(Locks, a_lock_goes_to_the_upstream_under_an_owner_of_the_gateway) {
  const Want want{.offset = 10, .length = 20, .reclaim = true};
  const Call call = settled(machine(2), 2, lock_arguments(want), LK_GRANTED);
  const Decoded<lk_lockargs> sent(&xdr_lk_lockargs, call.arguments);
  EXPECT_STREQ(sent->alock.caller_name, "gateway");
  EXPECT_EQ(text(sent->alock.fh), "handle-1");
  EXPECT_EQ(sent->alock.svid, 5000u);
  EXPECT_EQ(text(sent->alock.oh), "5000@gateway");
  EXPECT_EQ(sent->alock.l_offset, 10u);
  EXPECT_EQ(sent->alock.l_len, 20u);
  EXPECT_TRUE(sent->exclusive && sent->reclaim && !sent->block);
  EXPECT_EQ(sent->state % 2, 1);
  EXPECT_EQ(value(statistics_.held), 1u);
}

TEST_F(Locks, owners_differ_by_host_name_oh_and_svid_and_stay_while_they_hold_locks) {
  const std::uint32_t first = locked(machine(2), {});
  EXPECT_EQ(locked(machine(2), {.handle = "handle-2"}), first) << "the same owner";
  EXPECT_NE(locked(machine(3), {}), first) << "another host";
  EXPECT_NE(locked(machine(2), {.caller = "other"}), first) << "another machine behind that address";
  EXPECT_NE(locked(machine(2), {.owner = "78@client"}), first);
  EXPECT_NE(locked(machine(2), {.svid = 78}), first);
  EXPECT_EQ(value(statistics_.owners), 5u);
  settled(machine(2), 4, unlock_arguments({}), LK_GRANTED);
  EXPECT_EQ(value(statistics_.owners), 5u) << "it has another lock";
  settled(machine(2), 4, unlock_arguments({.handle = "handle-2"}), LK_GRANTED);
  EXPECT_EQ(value(statistics_.owners), 4u);
  EXPECT_NE(locked(machine(2), {}), first) << "an svid is not used again at once";
}

TEST_F(Locks, an_unlock_that_the_upstream_refuses_changes_nothing) {
  locked(machine(2), {.offset = 0, .length = 100});
  settled(machine(2), 4, unlock_arguments({.offset = 10, .length = 10}), LK_DENIED_GRACE_PERIOD);
  EXPECT_EQ(value(statistics_.held), 1u);
  settled(machine(2), 4, unlock_arguments({.offset = 10, .length = 10}), LK_GRANTED);
  EXPECT_EQ(value(statistics_.held), 2u) << "split";
  settled(machine(2), 2, lock_arguments({.offset = 200, .length = 1}), LK_DENIED);
  EXPECT_EQ(value(statistics_.held), 2u);
}

TEST_F(Locks, every_answer_of_the_upstream_reaches_the_client_as_it_is) {
  for (const lk_stat stat : {LK_DENIED, LK_DENIED_NOLOCKS, LK_DENIED_GRACE_PERIOD, LK_DEADLCK, LK_ROFS,
                             LK_STALE_FH, LK_FBIG, LK_FAILED}) {
    settled(machine(2), 2, lock_arguments({}), stat);
    settled(machine(2), 22, lock_arguments({}), stat);
    settled(machine(2), 3, cancel_arguments({.block = true}), stat);
    settled(machine(2), 4, unlock_arguments({}), stat);
  }
  EXPECT_EQ(value(statistics_.owners), 0u) << "nothing is left of them";
  EXPECT_EQ(value(statistics_.waiting), 0u);
}

TEST_F(Locks, an_error_of_rpc_is_passed_on_and_a_defect_becomes_one) {
  const std::uint32_t first = send(machine(2), nlm(2), lock_arguments({}));
  upstream_->server.answer(next_call(*upstream_), {}, rpc::AcceptStat::GarbageArgs);
  reply(machine(2), first, rpc::AcceptStat::GarbageArgs);
  const std::uint32_t second = send(machine(2), nlm(2), lock_arguments({}));
  upstream_->server.answer(next_call(*upstream_), Bytes(3));
  reply(machine(2), second, rpc::AcceptStat::SystemErr);
  EXPECT_EQ(value(statistics_.owners), 0u);
}

/// svid and oh of a holder.
using Named = std::pair<std::uint32_t, std::string>;

/// The holder of a conflicting lock, as the testing client receives it.
class LockHolders : public Locks {
 protected:
  Named ask(Machine& from, std::uint32_t svid, const std::string& oh, std::uint64_t offset = 0) {
    const std::uint32_t xid = send(from, nlm(1), test_arguments({.owner = "asks", .svid = 1}));
    const Call call = next_call(*upstream_);
    EXPECT_STREQ(Decoded<lk_testargs>(&xdr_lk_testargs, call.arguments)->alock.caller_name, "gateway");
    lk_testres results{};
    results.test_stat.stat = LK_DENIED;
    results.test_stat.lk_testrply_u.holder = {TRUE, svid, obj(oh), offset, 5};
    upstream_->server.answer(call, encode_by_rpcgen<lk_testres>(&xdr_lk_testres, results));
    const Bytes bytes = reply(from, xid);
    const Decoded<lk_testres> got(&xdr_lk_testres, bytes);
    EXPECT_EQ(got->test_stat.stat, LK_DENIED);
    EXPECT_EQ(text(got->cookie), "cook");
    const lk_holder& holder = got->test_stat.lk_testrply_u.holder;
    EXPECT_TRUE(holder.exclusive);
    EXPECT_EQ(holder.l_offset, offset);
    EXPECT_EQ(holder.l_len, 5u);
    return {holder.svid, text(holder.oh)};
  }
};

TEST_F(LockHolders, those_of_the_gateway_are_named_as_their_clients_name_them) {
  const std::uint32_t id = locked(machine(2), {.owner = "77@client", .svid = 77, .offset = 0, .length = 10});
  const std::string own = std::to_string(id) + "@gateway";
  EXPECT_EQ(ask(machine(3), id, own), (Named{77, "77@client"}));
  EXPECT_EQ(ask(machine(2), id, ""), (Named{77, "77@client"})) << "Linux leaves out the oh";
  EXPECT_EQ(ask(machine(3), id, "", 50), (Named{id, ""})) << "not where that owner has its lock";
  EXPECT_EQ(ask(machine(3), id, "x@other"), (Named{id, "x@other"})) << "of another host";
  EXPECT_EQ(ask(machine(3), 4, ""), (Named{4, ""}));
  EXPECT_EQ(value(statistics_.owners), 1u) << "who only asks is soon forgotten";
}

TEST_F(Locks, the_credential_is_the_clients) {
  start();
  Bytes body(400);
  xdr::Writer writer(body);
  rpc::encode_auth_sys(writer, {.machine_name = "client", .uid = 1234, .gid = 5});
  body.resize(writer.position());
  machine(2).stream = connect_to(service_->port(), 2);
  const Bytes arguments = lock_arguments({});
  machine(2).stream->send(record(encoded([&](xdr::Writer& message) {
    rpc::encode_call(message, {.xid = rpc::Xid{5},
                               .program = 100021,
                               .version = 4,
                               .procedure = 2,
                               .credential = {rpc::AuthFlavor::Sys, body},
                               .verifier = {}});
    message.opaque_fixed(arguments);
  })));
  EXPECT_EQ(next_call(*upstream_).credential, body);
}

TEST_F(Locks, a_connection_that_is_lost_is_made_again_and_the_calls_keep_their_order) {
  const std::uint32_t lock = send(machine(2), nlm(2), lock_arguments({}));
  const std::uint32_t cancel = send(machine(2), nlm(3), cancel_arguments({}));
  next_call(*upstream_);
  next_call(*upstream_);
  upstream_->server.end_connections();
  until([&] { return value(statistics_.resent) == 2; });
  const std::uint32_t unlock = send(machine(2), nlm(4), unlock_arguments({}));
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty()) << "one that is new goes behind the others";
  now_ns_ += kAgainNs;
  for (const auto& [procedure, xid] : {std::pair{2u, lock}, {3u, cancel}, {4u, unlock}}) {
    const Call call = next_call(*upstream_);
    EXPECT_EQ(call.procedure.procedure, procedure);
    upstream_->server.answer(call, result(LK_GRANTED));
    reply(machine(2), xid);
  }
}

TEST_F(Locks, clients_wait_while_the_upstream_says_nothing) {
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({}));
  for (int attempt = 0; attempt < 5; ++attempt) {
    EXPECT_EQ(next_call(*upstream_).procedure.procedure, 2u) << attempt;
    now_ns_ += kAttemptNs;
    turns(5);
    now_ns_ += kAgainNs;
  }
  EXPECT_TRUE(machine(2).stream->receive());
  EXPECT_FALSE(machine(2).stream->next().has_value());
  upstream_->server.answer(next_call(*upstream_), result(LK_GRANTED));
  reply(machine(2), xid);
}

TEST_F(Locks, a_lock_manager_at_another_port_and_one_that_is_not_registered_yet_are_found) {
  CapturedLog log;
  upstream_->registered = false;
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({}));
  until([&] { return upstream_->asked_for_port == 1; });
  turns();
  now_ns_ += kLookNs;
  until([&] { return upstream_->asked_for_port == 2; });
  turns();
  EXPECT_NE(log.text().find("upstream 'nas' cannot be reached. Clients wait for their locks"),
            std::string::npos)
      << log.text();
  upstream_->registered = true;
  now_ns_ += kLookNs;
  upstream_->server.answer(next_call(*upstream_), result(LK_GRANTED));
  reply(machine(2), xid);
  // Another program is registered at the port now.
  const std::uint32_t later = send(machine(2), nlm(4), unlock_arguments({}));
  upstream_->server.answer(next_call(*upstream_), {}, rpc::AcceptStat::ProgUnavail);
  until([&] { return value(statistics_.resent) == 1; });
  now_ns_ += kAgainNs;
  upstream_->server.answer(next_call(*upstream_), result(LK_GRANTED));
  reply(machine(2), later);
  EXPECT_EQ(upstream_->asked_for_port, 4);
}

TEST_F(Locks, a_call_that_comes_again_is_sent_once_and_answered_where_it_came_last) {
  send(machine(2), nlm(2), lock_arguments({}), 900);
  const Call call = next_call(*upstream_);
  const std::unique_ptr<Stream> old = std::move(machine(2).stream);
  send(machine(2), nlm(2), lock_arguments({}), 900);
  until([&] { return !old->receive(); });
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
  EXPECT_EQ(value(statistics_.repeated), 1u);
  upstream_->server.answer(call, result(LK_GRANTED));
  EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, reply(machine(2), 900))->stat, LK_GRANTED);
  // The call is complete, so another call may have its number.
  send(machine(2), nlm(2), lock_arguments({}), 900);
  next_call(*upstream_);
}

TEST_F(Locks, calls_of_two_machines_behind_one_address_may_have_the_same_number) {
  send(machine(2), nlm(2), lock_arguments({.caller = "a"}), 900);
  const Call first = next_call(*upstream_);
  std::unique_ptr<Stream> a = std::move(machine(2).stream);
  send(machine(2), nlm(2), lock_arguments({.caller = "b"}), 900);
  const Call second = next_call(*upstream_);
  upstream_->server.answer(second, result(LK_DENIED));
  EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, reply(machine(2), 900))->stat, LK_DENIED);
  // Another call of the same owner, with the number of an outstanding call, is not answered.
  send(machine(2), nlm(2), lock_arguments({.offset = 5, .caller = "a"}), 900);
  until([&] { return !machine(2).stream->receive(); });
  machine(2).stream = std::move(a);
  upstream_->server.answer(first, result(LK_GRANTED));
  EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, reply(machine(2), 900))->stat, LK_GRANTED);
}

TEST_F(Locks, calls_wait_until_the_upstreams_address_is_known) {
  std::optional<PeerAddress> address;
  settings_.proxy.where = [&] { return address; };
  FakeServer here(kSix, upstream_->server.port());  // target of a connection without an address
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({}));
  turns();
  here.pump();
  EXPECT_EQ(here.connections(), 0u);
  address = PeerAddress::from_ipv4(127, 0, 0, kUpstreamLast);
  now_ns_ += kLookNs;
  upstream_->server.answer(next_call(*upstream_), result(LK_GRANTED));
  reply(machine(2), xid);
}

TEST_F(Locks, an_upstream_that_has_moved_is_asked_where_it_is_now) {
  Machine other(8, upstream_->server.port());
  std::uint8_t last = kUpstreamLast;
  settings_.proxy.where = [&] { return PeerAddress::from_ipv4(127, 0, 0, last); };
  settled(machine(2), 2, lock_arguments({}), LK_GRANTED);
  last = 8;
  now_ns_ += kLookNs;
  turns();
  const std::uint32_t xid = send(machine(2), nlm(4), unlock_arguments({}));
  until([&] { return other.pump(), !other.server.calls.empty(); });
  other.server.answer(other.server.calls.at(0), result(LK_GRANTED));
  reply(machine(2), xid);
  EXPECT_EQ(value(statistics_.held), 0u);
}

TEST_F(Locks, whoever_may_not_call_is_refused_and_so_is_what_is_not_known) {
  start();
  const auto refused = [&](Machine& from, const onc_rpc::Procedure& procedure) {
    const std::uint32_t xid = send(from, procedure, lock_arguments({}));
    std::optional<Bytes> message;
    until([&] {
      from.stream->receive();
      return (message = from.stream->next()).has_value();
    });
    xdr::Reader reader(*message);
    const rpc::ReplyHeader header = rpc::decode_reply(reader).header;
    EXPECT_EQ(static_cast<std::uint32_t>(header.xid), xid);
    return header;
  };
  EXPECT_EQ(refused(machine(66), nlm(2)).auth, rpc::AuthStat::TooWeak);
  EXPECT_EQ(value(statistics_.denied), 1u);
  EXPECT_EQ(refused(machine(66), nlm(0)).accept, rpc::AcceptStat::Success);
  EXPECT_EQ(refused(machine(2), nlm(20)).accept, rpc::AcceptStat::ProcUnavail);
  EXPECT_EQ(refused(machine(2), nlm(7)).accept, rpc::AcceptStat::ProcUnavail);
  EXPECT_EQ(refused(machine(2), {100003, 3, 0}).accept, rpc::AcceptStat::ProgUnavail);
  EXPECT_EQ(refused(machine(2), {100021, 3, 2}).accept, rpc::AcceptStat::ProgMismatch);
  EXPECT_EQ(refused(machine(2), {100024, 1, 3}).accept, rpc::AcceptStat::ProcUnavail);
  EXPECT_EQ(refused(machine(2), nlm(5)).accept, rpc::AcceptStat::GarbageArgs);
  const std::uint32_t xid = send(machine(2), {100024, 1, 2}, {});
  const Bytes monitored = reply(machine(2), xid);
  EXPECT_EQ(monitored, encoded([](xdr::Writer& writer) { writer.words(1, 1); })) << "stat_fail";
}

TEST_F(Locks, a_network_has_a_share_of_the_calls_that_wait) {
  std::vector<std::unique_ptr<Stream>> streams;  // the number of calls of a connection is limited
  for (std::size_t i = 0; i < kMaxCallsOfNetwork; ++i) {
    if (i % onc_rpc::kMaxCallsOfClient == 0) streams.push_back(std::move(machine(2).stream));
    send(machine(2), nlm(2), lock_arguments({.svid = 1000 + static_cast<std::uint32_t>(i)}));
  }
  until([&] { return upstream_->server.calls.size() == kMaxCallsOfNetwork; });
  streams.push_back(std::move(machine(2).stream));
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({}));
  EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, reply(machine(2), xid))->stat, LK_DENIED_NOLOCKS);
  EXPECT_EQ(value(statistics_.exhausted), 1u);
  send(machine(3), nlm(2), lock_arguments({}));
  until([&] { return upstream_->server.calls.size() == kMaxCallsOfNetwork + 1; });
  for (const Call& call : std::exchange(upstream_->server.calls, {}))
    upstream_->server.answer(call, result(LK_DENIED));
  until([&] { return value(statistics_.owners) == 0; });
  settled(machine(2), 2, lock_arguments({}), LK_GRANTED);
}

TEST(LockTable, a_network_has_a_share_of_owners_and_locks) {
  LockStatistics statistics;
  Table table(statistics, nullptr, 1);
  const auto name = [](std::uint8_t last, std::uint32_t svid) {
    return OwnerName{{PeerAddress::from_ipv4(192, 0, 2, last), "c"}, {}, svid};
  };
  for (std::uint32_t i = 0; i < kMaxOwnersOfNetwork; ++i)
    ASSERT_NE(table.find_or_make(name(1, i), {}), nullptr);
  EXPECT_EQ(table.find_or_make(name(1, kMaxOwnersOfNetwork), {}), nullptr);
  EXPECT_NE(table.find_or_make(name(1, 0), {}), nullptr) << "it is there";
  Owner* const other = table.find_or_make(name(2, 0), {});
  ASSERT_NE(other, nullptr);
  for (std::uint64_t i = 0; i < kMaxLocksOfNetwork; ++i) {
    ASSERT_TRUE(table.room_for_lock(*other));
    table.hold(*other, Bytes(4, static_cast<std::byte>(i % 256)), {i * 2, i * 2, true});
  }
  EXPECT_FALSE(table.room_for_lock(*other));
  EXPECT_TRUE(table.room_for_lock(*table.find_or_make(name(1, 0), {})));
  table.free(*other, Bytes(4), {});
  EXPECT_TRUE(table.room_for_lock(*other));
}

}  // namespace
}  // namespace sluice::locks
