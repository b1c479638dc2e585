// SPDX-License-Identifier: Apache-2.0
//
// Tables of legal transitions. Every state is reachable and can return to rest. Forbidden transitions are
// listed again here.
#include <gtest/gtest.h>

#include <set>

#include "dataplane/rpcrdma/link/link_state.h"
#include "dataplane/rpcrdma/requester/slot.h"
#include "dataplane/rpcrdma/responder/call_slot.h"

namespace sluice::rpcrdma {
namespace {

template <typename State>
std::set<int> reachable(State from, int states) {
  std::set<int> seen{static_cast<int>(from)};
  for (bool grown = true; grown;) {
    grown = false;
    for (const int at : std::set(seen))
      for (int to = 0; to < states; ++to)
        if (may_follow(static_cast<State>(at), static_cast<State>(to))) grown |= seen.insert(to).second;
  }
  return seen;
}

template <typename State>
void expect_a_way_there_and_back(State rest, int states) {
  EXPECT_EQ(reachable(rest, states).size(), static_cast<std::size_t>(states));
  for (int at = 0; at < states; ++at)
    EXPECT_TRUE(reachable(static_cast<State>(at), states).contains(static_cast<int>(rest))) << "state " << at;
}

TEST(States, every_call_slot_state_is_reached_and_left) {
  using State = CallSlot::State;
  expect_a_way_there_and_back(State::Free, segment::kSlotStateCount);
  EXPECT_FALSE(may_follow(State::Free, State::Executing));
  EXPECT_FALSE(may_follow(State::Executing, State::Free)) << "the service still has the call";
  EXPECT_FALSE(may_follow(State::Replying, State::Pushing)) << "answered twice";
  EXPECT_FALSE(may_follow(State::Pulling, State::Pushing));
}

TEST(States, every_request_state_is_reached_and_left) {
  using State = RequestSlot::State;
  expect_a_way_there_and_back(State::Free, static_cast<int>(State::AwaitingSendDone) + 1);
  EXPECT_FALSE(may_follow(State::Free, State::AwaitingReply));
  EXPECT_FALSE(may_follow(State::AwaitingReply, State::Free)) << "the caller does not know";
  EXPECT_FALSE(may_follow(State::AwaitingSendDone, State::AwaitingTurn)) << "the caller knows";
  EXPECT_FALSE(may_follow(State::AwaitingDetach, State::AwaitingResend)) << "its memory is not fenced";
  EXPECT_FALSE(may_follow(State::AwaitingLastPart, State::AwaitingNextPart));
}

TEST(States, a_link_is_opened_closed_and_drained_in_this_order) {
  for (int from = 0; from < 3; ++from)
    for (int to = 0; to < 3; ++to)
      EXPECT_EQ(may_follow(static_cast<LinkState>(from), static_cast<LinkState>(to)), to == (from + 1) % 3);
}

TEST(States, V2_016_a_settled_version_does_not_change) {
  for (const VersionState settled : {VersionState::Version1, VersionState::Version2})
    for (int to = 0; to < 4; ++to) EXPECT_FALSE(may_follow(settled, static_cast<VersionState>(to)));
  EXPECT_TRUE(may_follow(VersionState::AwaitingAnswer, VersionState::Version1));
  EXPECT_FALSE(may_follow(VersionState::AwaitingFirstMessage, VersionState::AwaitingAnswer));
}

}  // namespace
}  // namespace sluice::rpcrdma
