// SPDX-License-Identifier: Apache-2.0
//
// Transition table of calls that a relay forwards.
#include "dataplane/gateway/rdma_upstream/relay_client.h"
#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/base/transition_checks.h"

namespace sluice::rdma_upstream_test {
namespace {

using rdma_upstream::RelayCall;

TEST(RelayCallStates, every_state_is_reached_and_left) {
  expect_rest_is_left_and_reached(rdma_upstream::kRelayCallTransitions);
}

TEST(RelayCallStates, a_call_that_was_not_sent_has_no_reply) {
  const CountedInvariants counted;
  RelayCall call{};
  call.transition(RelayCall::State::Waiting);
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 0u);
  call.transition(RelayCall::State::Held);
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 1u);
}

TEST(RelayCallStates, a_call_that_was_lost_is_not_delivered_again) {
  const CountedInvariants counted;
  RelayCall call{};
  call.transition(RelayCall::State::Waiting);
  call.transition(RelayCall::State::Lost);
  call.transition(RelayCall::State::Lost);
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 1u);
}

}  // namespace
}  // namespace sluice::rdma_upstream_test
