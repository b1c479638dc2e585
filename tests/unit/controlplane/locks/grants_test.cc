// SPDX-License-Identifier: Apache-2.0
//
// Blocking locks, and GRANTED calls of the upstream.
#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

class LockGrants : public Locks {
 protected:
  /// Returns the status with which the gateway answers the upstream.
  lk_stat answer_to(std::uint32_t xid) {
    const Bytes results = reply(*upstream_, xid);
    const Decoded<lk_res> answer(&xdr_lk_res, results);
    EXPECT_EQ(text(answer->cookie), "of the upstream");
    return answer->stat;
  }
};

TEST_F(LockGrants, the_client_that_waits_is_called_by_the_names_that_it_has_given) {
  const Want want{.offset = 3, .length = 4, .cookie = "cook"};
  const Call lock = blocked(machine(2), want);
  EXPECT_TRUE(Decoded<lk_lockargs>(&xdr_lk_lockargs, lock.arguments)->block);
  EXPECT_EQ(value(statistics_.waiting), 1u);
  blocked(machine(3), {.offset = 3, .length = 4});
  const std::uint32_t xid = grant(lock);
  const Call call = next_call(machine(2));
  EXPECT_EQ(call.procedure.procedure, 5u);
  const Decoded<lk_testargs> granted(&xdr_lk_testargs, call.arguments);
  EXPECT_EQ(text(granted->cookie), "cook");
  EXPECT_EQ(granted->alock.svid, 77u);
  EXPECT_EQ(text(granted->alock.oh), "77@client");
  EXPECT_EQ(text(granted->alock.fh), "handle-1");
  EXPECT_EQ(granted->alock.l_offset, 3u);
  EXPECT_EQ(granted->alock.l_len, 4u);
  EXPECT_TRUE(granted->exclusive);
  EXPECT_EQ(value(statistics_.held), 0u) << "not before the client has said so";
  machine(2).server.answer(call, result(LK_GRANTED));
  EXPECT_EQ(answer_to(xid), LK_GRANTED);
  EXPECT_EQ(value(statistics_.held), 1u);
  EXPECT_EQ(value(statistics_.waiting), 1u) << "the other client's";
  EXPECT_TRUE(machine(3).server.calls.empty());
}

TEST_F(LockGrants, granted_msg_is_answered_by_granted_res) {
  const Call lock = blocked(machine(2), {});
  const std::uint32_t xid = grant(lock, 10);
  EXPECT_TRUE(reply(*upstream_, xid).empty()) << "at once, and with nothing in it";
  machine(2).server.answer(next_call(machine(2)), result(LK_GRANTED));
  const Call res = next_call(*upstream_);
  EXPECT_EQ(res.procedure.procedure, 15u);
  const Decoded<lk_res> answer(&xdr_lk_res, res.arguments);
  EXPECT_EQ(answer->stat, LK_GRANTED);
  EXPECT_EQ(text(answer->cookie), "of the upstream");
}

TEST_F(LockGrants, the_call_comes_from_the_address_that_the_client_knows) {
  start();
  // This client uses the gateway's address 127.0.0.1, because connect_to() connects to it.
  const Call lock = blocked(machine(2), {});
  grant(lock);
  next_call(machine(2));
  EXPECT_EQ(machine(2).server.peer(), PeerAddress::from_ipv4(127, 0, 0, 1));
}

TEST_F(LockGrants, a_client_that_does_not_want_it_or_cannot_be_reached_leaves_it_to_others) {
  const Call first = blocked(machine(2), {});
  const std::uint32_t refused = grant(first);
  machine(2).server.answer(next_call(machine(2)), result(LK_DENIED));
  EXPECT_EQ(answer_to(refused), LK_DENIED);
  const Call second = blocked(machine(2), {});
  machine(2).server.stop();
  now_ns_ += onc_rpc::kReopenNs;
  const std::uint32_t unreachable = grant(second);
  until([&] { return value(statistics_.resent) > 0; });
  turns();
  EXPECT_FALSE(upstream_->stream->next().has_value());
  now_ns_ += kGrantNs;
  EXPECT_EQ(answer_to(unreachable), LK_DENIED);
  EXPECT_EQ(value(statistics_.held), 0u);
  EXPECT_EQ(value(statistics_.waiting), 0u);
  EXPECT_EQ(value(statistics_.grants_refused), 2u);
}

TEST_F(LockGrants, only_a_client_that_says_so_has_it) {
  const Call first = blocked(machine(2), {});
  std::uint32_t xid = grant(first);
  machine(2).server.answer(next_call(machine(2)), result(LK_DENIED_GRACE_PERIOD));
  EXPECT_EQ(answer_to(xid), LK_DENIED_GRACE_PERIOD) << "the upstream calls again";
  EXPECT_EQ(value(statistics_.waiting), 1u);
  xid = grant(first);
  machine(2).server.answer(next_call(machine(2)), result(LK_FAILED));
  EXPECT_EQ(answer_to(xid), LK_DENIED);
  const Call second = blocked(machine(2), {});
  xid = grant(second);
  const Call call = next_call(machine(2));
  send(machine(2), kNotify, notice("client", 5));
  until([&] { return value(statistics_.client_reboots) == 1; });
  machine(2).server.answer(call, result(LK_GRANTED));
  EXPECT_EQ(answer_to(xid), LK_DENIED) << "its host has restarted meanwhile";
  EXPECT_EQ(value(statistics_.held), 0u);
}

TEST_F(LockGrants, one_that_comes_again_is_delivered_once) {
  const Call lock = blocked(machine(2), {});
  const std::uint32_t first = grant(lock);
  const Call call = next_call(machine(2));
  const std::uint32_t second = grant(lock);
  turns();
  EXPECT_TRUE(machine(2).server.calls.empty());
  machine(2).server.answer(call, result(LK_GRANTED));
  EXPECT_EQ(answer_to(first), LK_GRANTED);
  EXPECT_EQ(answer_to(second), LK_GRANTED);
  EXPECT_EQ(answer_to(grant(lock)), LK_GRANTED) << "its answer was lost: the client has it";
  EXPECT_TRUE(machine(2).server.calls.empty());
  settled(machine(2), 4, unlock_arguments({}), LK_GRANTED);
  EXPECT_EQ(answer_to(grant(lock)), LK_DENIED) << "and now has it no more";
}

TEST_F(LockGrants, it_may_overtake_the_answer_that_the_lock_is_blocked) {
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({.block = true}));
  const Call lock = next_call(*upstream_);
  const std::uint32_t granted = grant(lock);
  const Call call = next_call(machine(2));
  upstream_->server.answer(lock, result(LK_BLOCKED));
  EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, reply(machine(2), xid))->stat, LK_BLOCKED);
  machine(2).server.answer(call, result(LK_GRANTED));
  EXPECT_EQ(answer_to(granted), LK_GRANTED);
}

TEST_F(LockGrants, who_asks_again_has_one_place_and_the_cookie_of_the_last_call) {
  blocked(machine(2), {});
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({.block = true, .cookie = "second"}));
  const Call lock = next_call(*upstream_);
  upstream_->server.answer(lock, result(LK_BLOCKED));
  reply(machine(2), xid);
  EXPECT_EQ(value(statistics_.waiting), 1u);
  grant(lock);
  EXPECT_EQ(text(Decoded<lk_testargs>(&xdr_lk_testargs, next_call(machine(2)).arguments)->cookie), "second");
}

TEST_F(LockGrants, a_lock_that_is_cancelled_or_granted_meanwhile_waits_no_more) {
  const Call first = blocked(machine(2), {});
  settled(machine(2), 3, cancel_arguments({.block = true}), LK_GRANTED);
  EXPECT_EQ(value(statistics_.waiting), 0u);
  EXPECT_EQ(answer_to(grant(first)), LK_DENIED);
  blocked(machine(2), {});
  settled(machine(2), 2, lock_arguments({.block = true}), LK_GRANTED);
  EXPECT_EQ(value(statistics_.waiting), 0u);
  EXPECT_EQ(value(statistics_.held), 1u);
}

TEST_F(LockGrants, nobody_but_the_upstream_can_grant) {
  const Call lock = blocked(machine(2), {});
  for (const std::uint32_t procedure : {5u, 10u}) {
    const std::uint32_t xid = grant(lock, procedure, 3);
    reply(machine(3), xid, rpc::AcceptStat::SystemErr);
  }
  turns();
  EXPECT_TRUE(machine(2).server.calls.empty());
  EXPECT_EQ(value(statistics_.denied), 2u);
}

}  // namespace
}  // namespace sluice::locks
