// SPDX-License-Identifier: Apache-2.0
//
// Transition tables of the gateways: every state is reached from the first one and leads back to it, and a
// forbidden transition is a failed invariant.
#include <gtest/gtest.h>

#include "dataplane/gateway/rdma_server/server_connection.h"
#include "dataplane/gateway/tcp_upstream/upstream_connection.h"
#include "dataplane/gateway/tcp_upstream/upstream_shared.h"
#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/base/transition_checks.h"

namespace sluice::tcp_upstream_test {
namespace {

TEST(GatewayStates, every_state_is_reached_and_left) {
  expect_rest_is_left_and_reached(tcp_upstream::kCallTransitions);
  expect_rest_is_left_and_reached(tcp_upstream::kConnectionTransitions);
  expect_rest_is_left_and_reached(rdma_server::kClientCallTransitions);
  expect_rest_is_left_and_reached(rdma_server::kServerConnectionTransitions);
}

TEST(GatewayStates, a_call_that_was_never_admitted_is_not_sent) {
  const CountedInvariants counted;
  tcp_upstream::ForwardedCall call{};
  call.transition(tcp_upstream::ForwardedCall::State::AwaitingReply);
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 1u);
}

TEST(GatewayStates, an_xid_of_another_call_is_not_removed) {
  const CountedInvariants counted;
  tcp_upstream::XidTable table(4, 1);
  tcp_upstream::ForwardedCall first{}, second{};
  first.xid = second.xid = table.next();
  table.add(first);
  table.remove(second);
  EXPECT_EQ(table.find(first.xid), &first);
  EXPECT_EQ(counted.failed(Invariant::xid_table), 1u);
}

TEST(GatewayStates, a_call_is_not_removed_from_a_list_that_it_is_not_in) {
  const CountedInvariants counted;
  tcp_upstream::ForwardedCallList one, other;
  tcp_upstream::ForwardedCall call{};
  one.push_back(call);
  other.remove(call);
  EXPECT_EQ(one.first(), &call);
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(counted.failed(Invariant::list_membership), 1u);
}

TEST(GatewayStates, a_call_is_not_added_to_two_lists) {
  const CountedInvariants counted;
  tcp_upstream::ForwardedCallList one, other;
  tcp_upstream::ForwardedCall first{}, second{};
  one.push_back(first);
  one.push_back(second);
  other.push_back(second);
  EXPECT_TRUE(other.empty());
  EXPECT_EQ(one.size(), 2u);
  EXPECT_EQ(counted.failed(Invariant::list_membership), 1u);
}

TEST(GatewayStates, an_xid_is_taken_over_only_by_a_call_that_has_it) {
  const CountedInvariants counted;
  tcp_upstream::XidTable table(2, 1);
  tcp_upstream::ForwardedCall call{}, orphan{}, stranger{};
  call.xid = orphan.xid = table.next();
  table.add(call);
  table.add(orphan);
  EXPECT_EQ(table.find(call.xid), &orphan);
  EXPECT_EQ(counted.failed(Invariant::xid_table), 0u);
  stranger.xid = call.xid + 4;  // has the same slot
  table.add(stranger);
  EXPECT_EQ(counted.failed(Invariant::xid_table), 1u);
}

TEST(GatewayStates, a_call_that_is_given_up_keeps_its_message_in_the_send_queue) {
  using State = tcp_upstream::ForwardedCall::State;
  tcp_upstream::ForwardedCall waits{}, answered{};
  waits.state = State::Sending;
  answered.state = State::Replied;
  waits.give_up();
  answered.give_up();
  EXPECT_EQ(waits.state, State::GivenUp);
  EXPECT_TRUE(waits.in_send_queue() && waits.at_upstream());
  EXPECT_EQ(answered.state, State::Discarded);
  EXPECT_TRUE(answered.in_send_queue() && !answered.at_upstream());
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
