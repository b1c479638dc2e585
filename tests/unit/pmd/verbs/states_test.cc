// SPDX-License-Identifier: Apache-2.0
//
// State machines of the verbs driver: every state is reached from the first one and leads back to it, and a
// forbidden transition is a failed invariant.
#include "pmd/verbs/states.h"

#include <initializer_list>

#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/base/transition_checks.h"

namespace sluice::rdma::verbs {
namespace {

TEST(VerbsStates, every_state_is_reached_and_left) {
  expect_rest_is_left_and_reached(kPresenceTransitions);
  expect_rest_is_left_and_reached(kSlotTransitions);
  expect_rest_is_left_and_reached(kHardwareTransitions);
}

/// Checks that each of the transitions from the first state is legal.
template <typename State, State kLast, const TransitionTable<State, kLast>& kTransitions>
void expect_legal(StateMachine<State, kLast, kTransitions> machine, std::initializer_list<State> states) {
  const CountedInvariants counted;
  for (const State state : states) {
    machine.transition(state);
    EXPECT_TRUE(machine.is(state));
  }
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 0u);
}

TEST(VerbsStates, a_device_is_removed_and_returns) {
  using enum Presence;
  expect_legal(PresenceMachine{}, {Leaving, Detaching, Detached, Attaching, Detached, Attaching, Attached});
}

TEST(VerbsStates, a_queue_pair_ends_in_one_step_or_in_two) {
  using enum SlotPhase;
  expect_legal(SlotMachine{}, {Making, Made, Failing, Failed, Destroying, Destroyed, Free, Making, Free});
  expect_legal(SlotMachine{}, {Making, Made, Ending, Failed, Destroying, Destroyed, Free});
  expect_legal(SlotMachine{}, {Making, Made, Failing, Ending, Failed, Destroying, Destroyed, Free});
}

TEST(VerbsStates, a_device_is_not_closed_while_its_queue_pairs_exist) {
  const CountedInvariants counted;
  PresenceMachine presence;
  presence.transition(Presence::Detaching);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 1u);
  EXPECT_FALSE(kPresenceTransitions.allows(Presence::Leaving, Presence::Detached));
}

TEST(VerbsStates, a_queue_pair_is_not_destroyed_before_it_is_in_error) {
  const CountedInvariants counted;
  SlotMachine slot;
  slot.transition(SlotPhase::Making);
  slot.transition(SlotPhase::Made);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 0u);
  slot.transition(SlotPhase::Destroying);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 1u);
}

TEST(VerbsStates, a_slot_is_not_free_before_its_queue_pair_is_destroyed) {
  using enum SlotPhase;
  for (const SlotPhase phase : {Made, Failing, Ending, Failed, Destroying})
    EXPECT_FALSE(kSlotTransitions.allows(phase, Free)) << static_cast<int>(phase);
}

TEST(VerbsStates, a_queue_pair_in_error_is_not_connected) {
  const CountedInvariants counted;
  HardwareMachine hardware;
  hardware.transition(HardwareState::Init);
  hardware.transition(HardwareState::Error);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 0u);
  hardware.transition(HardwareState::ReadyToSend);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 1u);
}

TEST(VerbsStates, a_queue_pair_that_has_ended_is_not_connected_again) {
  const CountedInvariants counted;
  QueuePairMachine stage;
  stage.transition(QueuePairStage::Connecting);
  stage.transition(QueuePairStage::Ended);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 0u);
  stage.transition(QueuePairStage::Connected);
  EXPECT_EQ(counted.failed(Invariant::queue_pair_state), 1u);
}

TEST(VerbsStates, a_queue_pair_is_not_created_over_an_existing_one) {
  using enum HardwareState;
  for (const HardwareState state : {Init, ReadyToSend, Error})
    EXPECT_FALSE(kHardwareTransitions.allows(state, Init)) << static_cast<int>(state);
}

}  // namespace
}  // namespace sluice::rdma::verbs
