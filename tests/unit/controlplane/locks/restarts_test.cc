// SPDX-License-Identifier: Apache-2.0
//
// Restarts of clients and of the upstream.
#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

class LockRestarts : public Locks {
 protected:
  void tell(Machine& from, const std::string& name, int state) {
    const std::uint32_t xid = send(from, kNotify, notice(name, state));
    EXPECT_TRUE(reply(from, xid).empty());
  }
  /// Checks that a notice is refused, so that its sender has to repeat it.
  void refused(Machine& from, const std::string& name, int state) {
    const std::uint32_t xid = send(from, kNotify, notice(name, state));
    reply(from, xid, rpc::AcceptStat::SystemErr);
  }
  /// Returns whether the next reply is a denial of this call.
  bool denied(Machine& to, std::uint32_t xid) {
    std::optional<Bytes> message;
    until([&] {
      to.stream->receive();
      return (message = to.stream->next()).has_value();
    });
    xdr::Reader reader(*message);
    const auto decoded = rpc::decode_reply(reader);
    return static_cast<std::uint32_t>(decoded.header.xid) == xid &&
           decoded.header.stat == rpc::ReplyStat::Denied;
  }
  /// Checks that the next call at the upstream releases all locks of this owner on this file, and returns it.
  Call released(std::uint32_t svid, const std::string& handle) {
    const Call call = next_call(*upstream_);
    EXPECT_EQ(call.procedure.procedure, 4u);
    const Decoded<lk_unlockargs> args(&xdr_lk_unlockargs, call.arguments);
    EXPECT_EQ(args->alock.svid, svid);
    EXPECT_EQ(text(args->alock.oh), std::to_string(svid) + "@gateway");
    EXPECT_EQ(text(args->alock.fh), handle);
    EXPECT_EQ(args->alock.l_offset, 0u);
    EXPECT_EQ(args->alock.l_len, 0u) << "all of the file";
    return call;
  }
};

TEST_F(LockRestarts, locks_of_a_client_that_has_restarted_are_released_and_nobody_elses) {
  const std::uint32_t first = locked(machine(2), {.offset = 0, .length = 5});
  locked(machine(2), {.offset = 50, .length = 5});
  locked(machine(2), {.handle = "handle-2"});
  const std::uint32_t second = locked(machine(2), {.owner = "78@client", .svid = 78, .handle = "handle-3"});
  locked(machine(3), {.handle = "handle-4"});
  EXPECT_EQ(value(statistics_.held), 5u);
  tell(machine(2), "client", 5);
  for (const auto& [svid, handle] : {std::pair{first, "handle-1"}, {first, "handle-2"}, {second, "handle-3"}})
    upstream_->server.answer(released(svid, handle), result(LK_GRANTED));
  until([&] { return value(statistics_.held) == 1; });
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
  EXPECT_EQ(value(statistics_.owners), 1u);
  EXPECT_EQ(value(statistics_.client_reboots), 1u);
}

TEST_F(LockRestarts, what_a_client_locks_after_its_restart_stays) {
  const std::uint32_t before = locked(machine(2), {.state = 3});
  const std::uint32_t xid = send(machine(2), kNotify, notice("client", 5));
  reply(machine(2), xid);
  const Call release = released(before, "handle-1");
  // A restarted client reuses process numbers.
  const std::uint32_t after = locked(machine(2), {.handle = "handle-2", .state = 5});
  EXPECT_NE(after, before) << "the old owner is still being released";
  upstream_->server.answer(release, result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 1; });
  tell(machine(2), "client", 5);  // repeated
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
  EXPECT_EQ(value(statistics_.held), 1u);
}

/// sm-notify may arrive after the first lock.
TEST_F(LockRestarts, a_lock_of_an_owner_of_before_a_restart_is_released_when_he_locks_again) {
  const std::uint32_t before = locked(machine(2), {.state = 3});
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({.handle = "handle-2", .state = 5}));
  upstream_->server.answer(released(before, "handle-1"), result(LK_GRANTED));
  const Call lock = next_call(*upstream_);
  EXPECT_NE(Decoded<lk_lockargs>(&xdr_lk_lockargs, lock.arguments)->alock.svid, before);
  upstream_->server.answer(lock, result(LK_GRANTED));
  reply(machine(2), xid);
  EXPECT_EQ(value(statistics_.held), 1u);
  EXPECT_EQ(value(statistics_.owners), 1u);
}

TEST_F(LockRestarts, a_release_waits_for_the_end_of_the_upstreams_grace_period) {
  const std::uint32_t svid = locked(machine(2), {});
  tell(machine(2), "client", 5);
  upstream_->server.answer(released(svid, "handle-1"), result(LK_DENIED_GRACE_PERIOD));
  turns();
  EXPECT_EQ(value(statistics_.held), 1u);
  now_ns_ += kReleaseAgainNs;
  upstream_->server.answer(released(svid, "handle-1"), result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 0; });
}

TEST_F(LockRestarts, a_lock_on_its_way_while_its_client_restarts_is_released_too) {
  send(machine(2), nlm(2), lock_arguments({}));
  const Call lock = next_call(*upstream_);
  const std::uint32_t svid = Decoded<lk_lockargs>(&xdr_lk_lockargs, lock.arguments)->alock.svid;
  send(machine(2), kNotify, notice("client", 5));
  until([&] { return value(statistics_.client_reboots) == 1; });
  upstream_->server.answer(lock, result(LK_GRANTED));
  upstream_->server.answer(released(svid, "handle-1"), result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 0; });
}

TEST_F(LockRestarts, what_it_waited_for_is_cancelled) {
  blocked(machine(2), {});
  tell(machine(2), "client", 5);
  const Call cancel = next_call(*upstream_);
  EXPECT_EQ(cancel.procedure.procedure, 3u);
  EXPECT_EQ(Decoded<lk_cancargs>(&xdr_lk_cancargs, cancel.arguments)->alock.svid, 5000u);
  upstream_->server.answer(cancel, result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 0; });
  EXPECT_EQ(value(statistics_.waiting), 0u);
}

TEST_F(LockRestarts, free_all_is_for_the_callers_own_host_and_name) {
  const std::uint32_t svid = locked(machine(2), {});
  locked(machine(2), {.caller = "other"});
  locked(machine(3), {});
  const std::uint32_t xid = send(machine(2), nlm(23), notice("client", 0));
  EXPECT_TRUE(reply(machine(2), xid).empty());
  upstream_->server.answer(released(svid, "handle-1"), result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 2; });
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
}

TEST_F(LockRestarts, a_notice_releases_the_locks_of_no_other_address) {
  locked(machine(2), {.caller = "client"});
  locked(machine(4), {.caller = "single"});
  refused(machine(5), "single", 5);
  refused(machine(5), "single.example.com", 5);
  refused(machine(5), "client", 5);
  refused(machine(2), "single", 5);
  tell(machine(5), "nobody", 5);
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
  EXPECT_EQ(value(statistics_.held), 2u);
  EXPECT_EQ(value(statistics_.notices_unknown), 5u);
}

TEST_F(LockRestarts, a_notice_with_the_domain_or_the_address_of_its_sender_is_its_own) {
  const std::uint32_t first = locked(machine(2), {.caller = "client"});
  tell(machine(2), "client.example.com", 5);
  upstream_->server.answer(released(first, "handle-1"), result(LK_GRANTED));
  const std::uint32_t second = locked(machine(2), {.caller = "client.example.com", .state = 5});
  tell(machine(2), "127.0.0.2", 7);
  released(second, "handle-1");
}

TEST_F(LockRestarts, a_late_duplicate_of_an_older_notice_releases_nothing) {
  locked(machine(2), {.state = 7});
  locked(machine(2), {.owner = "78@client", .svid = 78, .handle = "handle-2", .state = 0});
  tell(machine(2), "client", 5);
  tell(machine(2), "client", 7);
  turns();
  EXPECT_EQ(value(statistics_.client_reboots), 0u);
  EXPECT_TRUE(upstream_->server.calls.empty());
  tell(machine(2), "client", 9);
  next_call(*upstream_);
  EXPECT_EQ(value(statistics_.client_reboots), 1u);
}

TEST_F(LockRestarts, of_machines_behind_one_address_the_one_that_is_named_has_restarted) {
  const std::uint32_t a = locked(machine(2), {.caller = "a"});
  locked(machine(2), {.caller = "b"});
  tell(machine(2), "c", 5);
  tell(machine(2), "127.0.0.2", 5);
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
  tell(machine(2), "a", 5);
  upstream_->server.answer(released(a, "handle-1"), result(LK_GRANTED));
  until([&] { return value(statistics_.owners) == 1; });
}

TEST_F(LockRestarts, clients_are_told_that_the_upstream_has_restarted_and_reclaim) {
  locked(machine(2), {});
  locked(machine(2), {.svid = 78});
  blocked(machine(3), {});
  settled(machine(4), 2, lock_arguments({}), LK_DENIED);
  tell(*upstream_, "nas", 9);
  for (const std::uint8_t last : {std::uint8_t{2}, std::uint8_t{3}}) {
    const Call call = next_call(machine(last));
    EXPECT_EQ(call.procedure.program, 100024u);
    EXPECT_EQ(call.procedure.procedure, 6u);
    const Decoded<lk_notify> told(&xdr_lk_notify, call.arguments);
    EXPECT_STREQ(told->name, "127.0.0.1") << "as the client knows the gateway";
    EXPECT_EQ(told->state, 13) << "odd, and higher than before";
    machine(last).server.answer(call, {});
  }
  until([&] { return value(statistics_.notices) == 2; });
  tell(*upstream_, "nas", 9);
  turns();
  EXPECT_TRUE(machine(2).server.calls.empty()) << "told once";
  EXPECT_TRUE(machine(4).server.calls.empty()) << "it has no locks";
  const Call reclaim = settled(machine(2), 2, lock_arguments({.reclaim = true}), LK_GRANTED);
  EXPECT_TRUE(Decoded<lk_lockargs>(&xdr_lk_lockargs, reclaim.arguments)->reclaim);
  EXPECT_EQ(value(statistics_.held), 2u);
  tell(*upstream_, "nas", 11);
  EXPECT_EQ(Decoded<lk_notify>(&xdr_lk_notify, next_call(machine(2)).arguments)->state, 15);
}

TEST_F(LockRestarts, a_client_out_of_reach_is_told_when_it_is_back_and_not_for_ever) {
  locked(machine(2), {});
  machine(2).registered = false;
  tell(*upstream_, "nas", 9);
  until([&] { return machine(2).asked_for_port == 1; });
  turns();
  now_ns_ += kAgainNs;
  machine(2).registered = true;
  machine(2).server.answer(next_call(machine(2)), {});
  until([&] { return value(statistics_.notices) == 1; });
  machine(2).server.stop();
  tell(*upstream_, "nas", 11);
  turns();
  now_ns_ += kNoticeNs;
  until([&] { return value(statistics_.notices_failed) == 1; });
}

TEST_F(LockRestarts, a_notice_of_the_upstream_from_another_interface_is_believed_in_its_grace_period) {
  locked(machine(2), {});
  for (const char* const name : {"nas", "filer.example.com", "filer"}) {
    const std::uint32_t xid = send(machine(5), kNotify, notice(name, 9));
    const Call test = next_call(*upstream_);
    ASSERT_EQ(test.procedure.procedure, 1u);
    EXPECT_EQ(text(Decoded<lk_testargs>(&xdr_lk_testargs, test.arguments)->alock.fh), "handle-1");
    upstream_->server.answer(test, result(LK_GRANTED));
    reply(machine(5), xid, rpc::AcceptStat::SystemErr);
  }
  turns();
  EXPECT_TRUE(machine(2).server.calls.empty());
  EXPECT_EQ(value(statistics_.notices_unknown), 3u);

  const std::uint32_t xid = send(machine(5), kNotify, notice("nas", 9));
  upstream_->server.answer(next_call(*upstream_), result(LK_DENIED_GRACE_PERIOD));
  EXPECT_TRUE(reply(machine(5), xid).empty());
  EXPECT_EQ(next_call(machine(2)).procedure.procedure, 6u);
  EXPECT_EQ(value(statistics_.upstream_reboots), 1u);
}

TEST_F(LockRestarts, a_notice_of_the_upstream_from_an_interface_that_may_not_lock_is_matched_too) {
  locked(machine(2), {});
  const std::uint32_t other = send(machine(66), kNotify, notice("client", 9));
  EXPECT_TRUE(denied(machine(66), other));
  const std::uint32_t xid = send(machine(66), kNotify, notice("filer", 9));
  upstream_->server.answer(next_call(*upstream_), result(LK_DENIED_GRACE_PERIOD));
  EXPECT_TRUE(reply(machine(66), xid).empty());
  next_call(machine(2));
}

TEST_F(LockRestarts, one_notice_at_a_time_has_the_upstream_tested) {
  locked(machine(2), {});
  send(machine(5), kNotify, notice("nas", 9));
  next_call(*upstream_);
  refused(machine(6), "nas", 9);
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
}

TEST_F(LockRestarts, a_notice_that_is_not_understood_is_logged) {
  locked(machine(2), {});
  CapturedLog log;
  refused(machine(5), "client", 9);
  refused(machine(5), "client", 9);
  EXPECT_NE(log.text().find("127.0.0.5 sent a notice of the restart of 'client'"), std::string::npos)
      << log.text();
  const std::string once = log.text();
  EXPECT_EQ(once.find("sent a notice"), once.rfind("sent a notice"));
}

}  // namespace
}  // namespace sluice::locks
