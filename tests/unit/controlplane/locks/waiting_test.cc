// SPDX-License-Identifier: Apache-2.0
//
// LOCKs that are sent again for waiting clients, because the upstream may grant a lock without a GRANTED.
#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

class LockWaits : public Locks {
 protected:
  /// Returns the next LOCK that the upstream receives after the delay.
  Call asked_again() {
    now_ns_ += kAskAgainNs;
    const Call call = next_call(*upstream_);
    EXPECT_EQ(call.procedure.procedure, 2u);
    return call;
  }
  static std::uint32_t svid_of(const Call& call) {
    return Decoded<lk_lockargs>(&xdr_lk_lockargs, call.arguments)->alock.svid;
  }
  void expect_no_call() {
    turns();
    EXPECT_TRUE(upstream_->server.calls.empty());
  }
};

TEST_F(LockWaits, a_lock_that_the_upstream_grants_without_a_call_reaches_its_client) {
  const Call lock = blocked(machine(2), {.offset = 3, .length = 4});
  expect_no_call();
  const Call again = asked_again();
  EXPECT_EQ(again.arguments, lock.arguments);
  upstream_->server.answer(again, result(LK_GRANTED));
  const Call granted = next_call(machine(2));
  EXPECT_EQ(granted.procedure.procedure, 5u);
  const Decoded<lk_testargs> arguments(&xdr_lk_testargs, granted.arguments);
  EXPECT_EQ(text(arguments->cookie), "cook");
  EXPECT_EQ(arguments->alock.l_offset, 3u);
  machine(2).server.answer(granted, result(LK_GRANTED));
  until([&] { return value(statistics_.held) == 1; });
  EXPECT_EQ(value(statistics_.waiting), 0u);
  EXPECT_EQ(value(statistics_.asked_again), 1u);
  now_ns_ += 2 * kAskAgainNs;
  expect_no_call();
}

TEST_F(LockWaits, the_upstream_is_asked_again_until_it_grants_or_the_client_cancels) {
  blocked(machine(2), {});
  for (int i = 0; i < 3; ++i) {
    upstream_->server.answer(asked_again(), result(LK_BLOCKED));
    turns();
  }
  settled(machine(2), 3, cancel_arguments({.block = true}), LK_GRANTED);
  now_ns_ += 2 * kAskAgainNs;
  expect_no_call();
  EXPECT_EQ(value(statistics_.asked_again), 3u);
}

TEST_F(LockWaits, a_granted_lock_that_its_client_does_not_want_is_returned) {
  blocked(machine(2), {});
  const Call again = asked_again();
  upstream_->server.answer(again, result(LK_GRANTED));
  machine(2).server.answer(next_call(machine(2)), result(LK_DENIED));
  const Call unlock = next_call(*upstream_);
  EXPECT_EQ(unlock.procedure.procedure, 4u);
  EXPECT_EQ(Decoded<lk_unlockargs>(&xdr_lk_unlockargs, unlock.arguments)->alock.svid, svid_of(again));
  EXPECT_EQ(value(statistics_.held), 0u);
}

TEST_F(LockWaits, a_lock_that_is_granted_after_its_client_cancelled_is_returned) {
  blocked(machine(2), {});
  const Call again = asked_again();
  settled(machine(2), 3, cancel_arguments({.block = true}), LK_GRANTED);
  upstream_->server.answer(again, result(LK_GRANTED));
  EXPECT_EQ(next_call(*upstream_).procedure.procedure, 4u);
}

TEST_F(LockWaits, a_wait_at_the_upstream_that_nobody_needs_is_cancelled) {
  blocked(machine(2), {});
  const Call again = asked_again();
  settled(machine(2), 3, cancel_arguments({.block = true}), LK_GRANTED);
  upstream_->server.answer(again, result(LK_BLOCKED));
  EXPECT_EQ(next_call(*upstream_).procedure.procedure, 3u);
}

TEST_F(LockWaits, a_lock_that_the_upstream_grants_in_both_ways_is_delivered_once) {
  const Call lock = blocked(machine(2), {});
  const Call again = asked_again();
  const std::uint32_t xid = grant(lock);
  const Call granted = next_call(machine(2));
  upstream_->server.answer(again, result(LK_GRANTED));
  turns();
  EXPECT_TRUE(machine(2).server.calls.empty());
  machine(2).server.answer(granted, result(LK_GRANTED));
  EXPECT_EQ(Decoded<lk_res>(&xdr_lk_res, reply(*upstream_, xid))->stat, LK_GRANTED);
  until([&] { return value(statistics_.held) == 1; });
  expect_no_call();
}

TEST_F(LockWaits, an_owner_has_one_lock_asked_for_again_at_a_time) {
  blocked(machine(2), {.offset = 0, .length = 1});
  blocked(machine(2), {.offset = 1, .length = 1});
  const Call first = asked_again();
  expect_no_call();
  now_ns_ += kAskAgainNs;
  expect_no_call();
  upstream_->server.answer(first, result(LK_BLOCKED));
  turns();
  const Call second = asked_again();
  EXPECT_NE(second.arguments, first.arguments);
}

TEST_F(LockWaits, a_client_that_restarts_waits_for_nothing) {
  blocked(machine(2), {});
  const Call again = asked_again();
  send(machine(2), kNotify, notice("client", 5));
  EXPECT_EQ(next_call(*upstream_).procedure.procedure, 3u);
  upstream_->server.answer(again, result(LK_GRANTED));
  EXPECT_EQ(next_call(*upstream_).procedure.procedure, 4u);
  EXPECT_TRUE(machine(2).server.calls.empty());
}

}  // namespace
}  // namespace sluice::locks
