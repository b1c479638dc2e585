// SPDX-License-Identifier: Apache-2.0
#include "dataplane/reactor/commands.h"

#include "tests/unit/reactor/reactor_lab.h"

namespace sluice::reactor {
namespace {

using segment::End;

class FollowerTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kCmId = 41;

  rpcrdma::CloseReason reason_after(End how, std::uint32_t reason = 0) {
    EXPECT_TRUE(parts_.wanted.end(number_, incarnation_, how, reason));
    EXPECT_TRUE(parts_.reconciler.poll());
    EXPECT_FALSE(connection_.is_open());
    return connection_.close_reason();
  }
  std::uint32_t granted() { return static_cast<std::uint32_t>(connection_.responder().grant()); }
  segment::ConnectionUse& use() { return parts_.segment.area().use[number_]; }
  segment::ConnectionInfo entry() { return parts_.segment.entry(number_); }

  FakeDevice device_;
  Parts parts_{device_};
  rpcrdma::Connection& connection_ = parts_.establish(kCmId);
  const std::uint16_t number_ = connection_.number();
  const std::uint32_t incarnation_ = parts_.incarnation(connection_);
};

TEST_F(FollowerTest, nothing_wanted_is_no_work) {
  EXPECT_FALSE(parts_.reconciler.poll());
  EXPECT_EQ(parts_.counters.wants_followed, 0u);
}

TEST_F(FollowerTest, a_pass_takes_a_bounded_number_of_hints) {
  for (std::size_t i = 0; i < kHintsPerPass + 1; ++i) parts_.wanted.hint(number_);
  EXPECT_FALSE(parts_.reconciler.poll()) << "a hint alone changes nothing";
  EXPECT_EQ(parts_.segment.area().wanted.hints.size(), 1u);
}

TEST_F(FollowerTest, a_hint_at_what_is_no_connection_harms_nobody) {
  for (const std::uint32_t number : {kConnections, ~0u, 3u}) parts_.wanted.hint(number);
  EXPECT_FALSE(parts_.reconciler.poll());
}

TEST_F(FollowerTest, what_is_wanted_of_another_incarnation_is_not_followed) {
  for (const std::uint32_t other : {incarnation_ + 1, incarnation_ + 2}) {
    parts_.wanted.end(number_, other, End::Disconnect);
    parts_.wanted.grant(number_, other, {.credits = 1});
  }
  EXPECT_FALSE(parts_.reconciler.poll());
  parts_.reconciler.reconcile(connection_);
  EXPECT_TRUE(connection_.is_open());
  EXPECT_EQ(granted(), 8u);
  EXPECT_FALSE(parts_.wanted.grant(number_, incarnation_, {.credits = 1})) << "nor is it written over";
}

TEST_F(FollowerTest, a_grant_changes_the_credits_and_shows_it) {
  EXPECT_TRUE(parts_.wanted.grant(number_, incarnation_, {.credits = 3}));
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(granted(), 3u);
  EXPECT_EQ(use().granted.load(), 3u);
  EXPECT_EQ(use().followed_grant.load(), parts_.segment.area().wanted.words[number_].grant.load());
  EXPECT_EQ(parts_.counters.wants_followed, 1u);
  parts_.wanted.hint(number_);
  EXPECT_FALSE(parts_.reconciler.poll()) << "once";
}

TEST_F(FollowerTest, a_look_finds_what_no_hint_has_told) {
  parts_.wanted.grant(number_, incarnation_, {.credits = 3});
  parts_.reconciler.reconcile(connection_);
  EXPECT_EQ(granted(), 3u);
  EXPECT_EQ(parts_.counters.wants_found, 1u);
  EXPECT_FALSE(parts_.reconciler.poll());
  EXPECT_EQ(parts_.counters.wants_found, 1u);
}

TEST_F(FollowerTest, a_grant_with_another_class_moves_the_connection_there) {
  parts_.wanted.grant(number_, incarnation_, {.credits = 5, .client_class = 2});
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(connection_.client_class(), 2u);
  EXPECT_EQ(entry().client_class, 2u);
  EXPECT_EQ(use().client_class.load(), 2u);
}

TEST_F(FollowerTest, no_word_of_a_hostile_writer_is_followed_beyond_the_limits) {
  parts_.segment.area().wanted.words[number_].grant = segment::pack(incarnation_, 0xFEFFFFFF);
  parts_.segment.area().wanted.words[number_].course = segment::pack(incarnation_, 0xFFFFFC1F);
  parts_.reconciler.reconcile(connection_);
  EXPECT_LE(granted(), rpcrdma::kMaxCredits);
  EXPECT_LT(connection_.client_class(), segment::kMaxClasses);
  EXPECT_TRUE(connection_.is_open());
  EXPECT_LE(connection_.peer_host().view().size(), kMaxHostNameBytes);
}

TEST_F(FollowerTest,
       a_draining_connection_has_a_single_credit_and_gets_back_what_is_wanted_when_that_is_called_off) {
  parts_.wanted.drain(number_, incarnation_, true);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_TRUE(parts_.connections.record(connection_).draining);
  EXPECT_EQ(granted(), 1u);
  parts_.wanted.drain(number_, incarnation_, false);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(granted(), 8u);
  parts_.wanted.drain(number_, incarnation_, true);
  EXPECT_TRUE(parts_.reconciler.poll());
  parts_.wanted.grant(number_, incarnation_, {.credits = 6});
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(granted(), 1u);
  parts_.wanted.drain(number_, incarnation_, false);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(granted(), 6u);
}

/// The control plane's last heartbeat was at time 1.
TEST_F(FollowerTest, without_a_control_plane_a_connection_has_all_its_credits_until_there_is_one_again) {
  parts_.reconciler.observe(7, 1);
  parts_.wanted.grant(number_, incarnation_, {.credits = 3});
  parts_.reconciler.observe(7, segment::kHeartbeatTimeoutNs);
  parts_.reconciler.reconcile(connection_);
  EXPECT_EQ(granted(), 3u) << "it may still be there";
  parts_.reconciler.observe(7, segment::kHeartbeatTimeoutNs + 1);
  parts_.reconciler.reconcile(connection_);
  EXPECT_EQ(granted(), 8u);
  EXPECT_EQ(use().granted.load(), 8u);
  EXPECT_EQ(parts_.counters.credits_restored, 1u);
  parts_.reconciler.reconcile(connection_);
  EXPECT_EQ(parts_.counters.credits_restored, 1u) << "once";
  // The control plane's desired state is unchanged after its return, because the word has not changed.
  parts_.reconciler.observe(8, segment::kHeartbeatTimeoutNs + 2);
  parts_.reconciler.reconcile(connection_);
  EXPECT_EQ(granted(), 3u);
  EXPECT_EQ(use().granted.load(), 3u);
}

TEST_F(FollowerTest, a_control_plane_that_writes_without_a_heartbeat_is_followed) {
  parts_.reconciler.observe(7, 1);
  parts_.reconciler.observe(7, segment::kHeartbeatTimeoutNs + 1);
  parts_.reconciler.reconcile(connection_);
  parts_.wanted.grant(number_, incarnation_, {.credits = 2});
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(granted(), 2u);
}

TEST_F(FollowerTest, a_draining_connection_gets_no_credits_when_the_control_plane_goes_away) {
  parts_.reconciler.observe(7, 1);
  parts_.wanted.drain(number_, incarnation_, true);
  EXPECT_TRUE(parts_.reconciler.poll());
  parts_.reconciler.observe(7, 2 * segment::kHeartbeatTimeoutNs);
  parts_.reconciler.reconcile(connection_);
  EXPECT_EQ(granted(), 1u);
}

TEST_F(FollowerTest, one_whose_peer_is_ready_is_open) {
  parts_.wanted.established(number_, incarnation_);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_TRUE(parts_.connections.record(connection_).established);
  EXPECT_EQ(entry().state, segment::ConnectionState::Open);
}

TEST_F(FollowerTest, one_whose_peer_has_gone_ends) {
  EXPECT_EQ(reason_after(End::PeerGone), rpcrdma::CloseReason::PeerClosed);
}

TEST_F(FollowerTest, one_that_is_to_be_disconnected_ends_for_that_reason) {
  EXPECT_EQ(reason_after(End::Disconnect, static_cast<std::uint32_t>(rpcrdma::CloseReason::NotAuthenticated)),
            rpcrdma::CloseReason::NotAuthenticated);
}

TEST_F(FollowerTest, without_a_reason_or_for_one_that_is_none_the_end_is_local) {
  EXPECT_EQ(reason_after(End::Disconnect, 255), rpcrdma::CloseReason::LocalClose);
}

TEST_F(FollowerTest, the_first_end_stands_and_nothing_is_followed_after_it) {
  parts_.wanted.end(number_, incarnation_, End::Disconnect,
                    static_cast<std::uint32_t>(rpcrdma::CloseReason::NotAuthenticated));
  EXPECT_FALSE(parts_.wanted.end(number_, incarnation_, End::PeerGone));
  parts_.wanted.admit(number_, incarnation_, HostName("late"), 2);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(connection_.close_reason(), rpcrdma::CloseReason::NotAuthenticated);
  EXPECT_TRUE(connection_.peer_host().empty());
}

TEST_F(FollowerTest, an_admission_shows_the_host_and_moves_the_connection_to_its_class) {
  EXPECT_TRUE(parts_.wanted.admit(number_, incarnation_, HostName("host"), 2));
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(connection_.client_class(), 2u);
  EXPECT_EQ(entry().client_class, 2u);
  EXPECT_EQ(connection_.peer_host().view(), "host");
  EXPECT_EQ(entry().host.view(), "host");
  EXPECT_EQ(granted(), 8u) << "credits stay";
  EXPECT_FALSE(parts_.wanted.admit(number_, incarnation_, HostName("other"), 3)) << "the first host stands";
}

TEST_F(FollowerTest, an_admission_without_a_class_leaves_it) {
  parts_.wanted.grant(number_, incarnation_, {.credits = 5, .client_class = 2});
  parts_.wanted.admit(number_, incarnation_, HostName("host"), segment::kKeepClass);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(connection_.client_class(), 2u);
  EXPECT_EQ(granted(), 5u);
}

TEST_F(FollowerTest, an_admission_ends_the_holding_of_calls) {
  ReactorConfig config = lab_config();
  config.version2.hold_calls = true;
  FakeDevice device;
  Parts holding(device, config);
  rpcrdma::Connection& held = holding.establish(kCmId);
  ASSERT_TRUE(held.holds_calls());
  holding.wanted.admit(held.number(), holding.incarnation(held), HostName("host"), segment::kKeepClass);
  EXPECT_TRUE(holding.reconciler.poll());
  EXPECT_FALSE(held.holds_calls());
}

TEST_F(FollowerTest, parameters_are_what_the_connection_works_with) {
  const segment::Parameters set = {
      .send_bytes = 2048, .max_segment_bytes = 65536, .max_segments = 7, .reverse = 0};
  EXPECT_TRUE(parts_.wanted.parameters(number_, incarnation_, set));
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_EQ(connection_.agreement().send_bytes, 2048u);
  EXPECT_EQ(connection_.agreement().max_segment_bytes, 65536u);
  EXPECT_EQ(connection_.agreement().max_segments, 7u);
  EXPECT_FALSE(parts_.wanted.parameters(number_, incarnation_, {})) << "the first set stands";
}

TEST_F(FollowerTest, calls_are_traced_until_that_is_no_longer_wanted) {
  parts_.wanted.trace(number_, incarnation_, true);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_TRUE(connection_.responder().traced());
  parts_.wanted.trace(number_, incarnation_, false);
  EXPECT_TRUE(parts_.reconciler.poll());
  EXPECT_FALSE(connection_.responder().traced());
}

TEST_F(FollowerTest, the_next_connection_in_a_place_has_none_of_what_was_wanted_of_the_last) {
  parts_.wanted.drain(number_, incarnation_, true);
  parts_.wanted.end(number_, incarnation_, End::PeerGone);
  EXPECT_TRUE(parts_.reconciler.poll());
  parts_.settle();
  parts_.setup.report_closed();
  parts_.segment.events();
  rpcrdma::Connection& next = parts_.establish(kCmId);
  ASSERT_EQ(next.number(), number_);
  parts_.reconciler.reconcile(next);
  EXPECT_TRUE(next.is_open());
  EXPECT_FALSE(parts_.connections.record(next).draining);
}

}  // namespace
}  // namespace sluice::reactor
