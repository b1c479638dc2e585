// SPDX-License-Identifier: Apache-2.0
//
// Control planes that are killed after each step of a LOCK. Afterwards, either the client has the lock or the
// lock is free.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/controlplane/locks/lock_lab.h"

namespace sluice::locks {
namespace {

using namespace lab;

enum class Step { Received, Recorded, Sent, Granted, Answered };
enum class Client { RepeatsItsLock, GivesUp, Restarts };

/// An upstream with one file, which one owner at a time can lock.
class InterruptedLocks : public Locks {
 protected:
  InterruptedLocks() {
    path_ = testing::TempDir() + "sluice-interrupted-" + std::to_string(::getpid());
    std::filesystem::remove(path_);
    settings_.state = path_;
  }
  ~InterruptedLocks() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".new");
  }
  /// Destroys the service without an orderly stop.
  void kill() {
    service_.reset();
    for (auto& [last, machine] : machines_) machine->stream.reset();
    upstream_->stream.reset();
    statistics_.held = statistics_.owners = 0;
    settings_.proxy.first_id = 90'000;
  }
  /// Executes the calls that the upstream has received.
  void serve() {
    for (const Call& call : std::exchange(upstream_->server.calls, {})) execute(call);
  }
  void execute(const Call& call) {
    if (call.procedure.procedure == 2) {
      const Decoded<lk_lockargs> arguments(&xdr_lk_lockargs, call.arguments);
      const std::uint32_t svid = arguments->alock.svid;
      const bool free = holder_ == 0 || holder_ == svid;
      if (free) holder_ = svid;
      upstream_->server.answer(call, result(free ? LK_GRANTED : LK_DENIED));
    } else if (call.procedure.procedure == 4) {
      const Decoded<lk_unlockargs> arguments(&xdr_lk_unlockargs, call.arguments);
      const std::uint32_t svid = arguments->alock.svid;
      if (holder_ == svid) holder_ = 0;
      upstream_->server.answer(call, result(LK_GRANTED));
    }
  }
  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Returns when the file has more records than before.
  void until_recorded(const std::string& before) {
    until([&] { return content().size() > before.size(); });
  }
  /// Begins a LOCK and kills the control plane after step `last`. Returns the XID.
  std::uint32_t lock_until(Step last) {
    start();
    const std::string before = content();
    upstream_->registered = last >= Step::Sent;
    const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({}));
    if (last == Step::Recorded) until_recorded(before);
    if (last >= Step::Sent) {
      const Call call = next_call(*upstream_);
      if (last >= Step::Granted) execute(call);
    }
    if (last == Step::Answered) reply(machine(2), xid);
    kill();
    upstream_->registered = true;
    return xid;
  }
  lk_stat answered(std::uint32_t xid) {
    std::optional<Bytes> message;
    until([&] {
      serve();
      machine(2).stream->receive();
      return (message = machine(2).stream->next()).has_value();
    });
    if (!message) return LK_FAILED;
    xdr::Reader reader(*message);
    EXPECT_EQ(static_cast<std::uint32_t>(rpc::decode_reply(reader).header.xid), xid);
    return Decoded<lk_res>(&xdr_lk_res, {reader.rest().begin(), reader.rest().end()})->stat;
  }

  std::string path_;
  std::uint32_t holder_ = 0;  ///< svid
};

class InterruptedAtEachStep : public InterruptedLocks,
                              public testing::WithParamInterface<std::tuple<Step, Client>> {};

TEST_P(InterruptedAtEachStep, a_lock_is_its_clients_or_nobodys) {
  const auto [last, client] = GetParam();
  const std::uint32_t xid = lock_until(last);
  if (client == Client::RepeatsItsLock) {
    send(machine(2), nlm(2), lock_arguments({}), xid);
    EXPECT_EQ(answered(xid), LK_GRANTED);
    EXPECT_EQ(value(statistics_.held), 1u);
  }
  if (client != Client::Restarts) {
    send(machine(2), nlm(4), unlock_arguments({}), xid + 1);
    EXPECT_EQ(answered(xid + 1), LK_GRANTED);
  } else {
    send(machine(2), kNotify, notice("client", 5));
  }
  until([&] { return serve(), value(statistics_.owners) == 0 && holder_ == 0; });
  EXPECT_EQ(holder_, 0u);
  kill();
  start();
  EXPECT_EQ(value(statistics_.owners), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, InterruptedAtEachStep,
                         testing::Combine(testing::Values(Step::Received, Step::Recorded, Step::Sent,
                                                          Step::Granted, Step::Answered),
                                          testing::Values(Client::RepeatsItsLock, Client::GivesUp,
                                                          Client::Restarts)));

TEST_F(InterruptedLocks, a_lock_of_the_previous_control_plane_is_asked_for_again_before_the_clients_calls) {
  lock_until(Step::Sent);
  start();
  const Call again = next_call(*upstream_);
  ASSERT_EQ(again.procedure.procedure, 2u);
  const Decoded<lk_lockargs> arguments(&xdr_lk_lockargs, again.arguments);
  EXPECT_EQ(arguments->alock.svid, 5000u);
  EXPECT_FALSE(arguments->block);
  const std::uint32_t xid = send(machine(2), nlm(4), unlock_arguments({}));
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty()) << "a server with several threads could execute it first";
  execute(again);
  EXPECT_EQ(answered(xid), LK_GRANTED);
  EXPECT_EQ(holder_, 0u);
}

TEST_F(InterruptedLocks, a_lock_that_was_not_granted_is_forgotten) {
  holder_ = 1;
  lock_until(Step::Sent);
  start();
  until([&] { return serve(), value(statistics_.owners) == 0; });
  kill();
  start();
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
}

TEST_F(InterruptedLocks, a_lock_whose_client_knows_that_it_was_denied_is_not_asked_for_again) {
  settled(machine(2), 2, lock_arguments({}), LK_DENIED);
  kill();
  start();
  EXPECT_EQ(value(statistics_.owners), 0u);
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
}

TEST_F(InterruptedLocks, a_client_that_repeats_its_lock_in_the_grace_period_settles_it) {
  lock_until(Step::Granted);
  start();
  upstream_->server.answer(next_call(*upstream_), result(LK_DENIED_GRACE_PERIOD));
  turns();
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({.reclaim = true}));
  EXPECT_EQ(answered(xid), LK_GRANTED);
  send(machine(2), nlm(4), unlock_arguments({}), xid + 1);
  EXPECT_EQ(answered(xid + 1), LK_GRANTED);
  now_ns_ += kRepeatLockNs;
  until([&] { return value(statistics_.owners) == 0; });
  kill();
  start();
  turns();
  EXPECT_TRUE(upstream_->server.calls.empty());
  EXPECT_EQ(holder_, 0u);
}

TEST_F(InterruptedLocks, during_the_upstreams_grace_period_calls_go_through_and_the_lock_is_asked_for_later) {
  lock_until(Step::Sent);
  start();
  upstream_->server.answer(next_call(*upstream_), result(LK_DENIED_GRACE_PERIOD));
  turns();
  const std::uint32_t xid = send(machine(2), nlm(2), lock_arguments({.handle = "handle-2", .reclaim = true}));
  const Call reclaim = next_call(*upstream_);
  upstream_->server.answer(reclaim, result(LK_GRANTED));
  reply(machine(2), xid);
  kill();  // a further restart loses nothing
  start();
  upstream_->server.answer(next_call(*upstream_), result(LK_DENIED_GRACE_PERIOD));
  turns();
  now_ns_ += kRepeatLockNs;
  execute(next_call(*upstream_));
  until([&] { return value(statistics_.held) == 2; });
}

TEST_F(InterruptedLocks, a_client_that_restarts_during_the_grace_period_leaves_nothing) {
  lock_until(Step::Granted);
  start();
  upstream_->server.answer(next_call(*upstream_), result(LK_DENIED_GRACE_PERIOD));
  turns();
  send(machine(2), kNotify, notice("client", 5));
  until([&] { return serve(), holder_ == 0; });
  now_ns_ += kReleaseAgainNs;
  until([&] { return serve(), value(statistics_.owners) == 0; });
  EXPECT_EQ(holder_, 0u);
}

}  // namespace
}  // namespace sluice::locks
