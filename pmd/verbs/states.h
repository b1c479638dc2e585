// SPDX-License-Identifier: Apache-2.0
//
// States of a verbs device, of the slots of its queue pairs, of each ibv_qp and of each queue pair, with
// their legal transitions. Plain values; only the thread that owns one may call. None of them changes per
// message.
#pragma once

#include <cstdint>

#include "dataplane/base/invariant.h"
#include "dataplane/base/transition_table.h"

namespace sluice::rdma::verbs {

/// A state that only transition() changes. A transition that the table does not allow fails an invariant.
template <typename State, State kLast, const TransitionTable<State, kLast>& kTransitions>
class StateMachine {
 public:
  bool is(State state) const noexcept { return state_ == state; }
  State state() const noexcept { return state_; }
  void transition(State to) noexcept {
    static_cast<void>(SLUICE_INVARIANT(kTransitions.allows(state_, to), queue_pair_state));
    state_ = to;
  }

 private:
  State state_{};
};

/// Presence of the device. Owned by the reactor.
enum class Presence : std::uint8_t {
  Attached,
  Leaving,    ///< its queue pairs are being destroyed
  Detaching,  ///< Detach is pending
  Detached,   ///< not found again by handle_events() yet
  Attaching,  ///< Attach is pending
};
/// Successors of each state of the device.
inline constexpr TransitionTable<Presence, Presence::Attaching> kPresenceTransitions{
    {Presence::Leaving},                       // Attached
    {Presence::Detaching},                     // Leaving
    {Presence::Detached},                      // Detaching
    {Presence::Attaching},                     // Detached
    {Presence::Attached, Presence::Detached},  // Attaching (Detached if the device was not there after all)
};
using PresenceMachine = StateMachine<Presence, Presence::Attaching, kPresenceTransitions>;

/// Phase of the slot of a queue pair, by the results of the set-up thread. Owned by the reactor.
enum class SlotPhase : std::uint8_t {
  Free,
  Making,      ///< Make is pending
  Made,        ///< in Init or ReadyToSend
  Failing,     ///< Fail is pending
  Ending,      ///< Fail is pending, and Destroy follows
  Failed,      ///< in Error
  Destroying,  ///< Destroy is pending
  Destroyed,   ///< release() is pending
};
/// Successors of each phase of a slot.
inline constexpr TransitionTable<SlotPhase, SlotPhase::Destroyed> kSlotTransitions{
    {SlotPhase::Making},                      // Free
    {SlotPhase::Free, SlotPhase::Made},       // Making (Free if the device refuses)
    {SlotPhase::Failing, SlotPhase::Ending},  // Made
    {SlotPhase::Ending, SlotPhase::Failed},   // Failing
    {SlotPhase::Failed},                      // Ending
    {SlotPhase::Destroying},                  // Failed
    {SlotPhase::Destroyed},                   // Destroying
    {SlotPhase::Free},                        // Destroyed
};
using SlotMachine = StateMachine<SlotPhase, SlotPhase::Destroyed, kSlotTransitions>;

/// State in which the last successful step has left an ibv_qp. Owned by the set-up thread.
enum class HardwareState : std::uint8_t {
  None,  ///< there is no ibv_qp
  Init,  ///< also after a Connect that the device has refused
  ReadyToSend,
  Error,
};
/// Successors of each state of an ibv_qp. Destroy follows a Fail that the device has refused, too.
inline constexpr TransitionTable<HardwareState, HardwareState::Error> kHardwareTransitions{
    {HardwareState::Init},                                                    // None
    {HardwareState::None, HardwareState::ReadyToSend, HardwareState::Error},  // Init
    {HardwareState::None, HardwareState::Error},                              // ReadyToSend
    {HardwareState::None},                                                    // Error
};
using HardwareMachine = StateMachine<HardwareState, HardwareState::Error, kHardwareTransitions>;

/// State of a region that is registered for one call. Owned by the reactor.
enum class CallRegionState : std::uint8_t {
  Free,
  Registering,  ///< its registration is pending
  Abandoned,    ///< its registration is pending, and its deregistration follows
  Registered,
  Deregistering,  ///< its deregistration is pending
};
/// Successors of each state of a region for a call.
inline constexpr TransitionTable<CallRegionState, CallRegionState::Deregistering> kCallRegionTransitions{
    {CallRegionState::Registering},  // Free
    {CallRegionState::Free, CallRegionState::Abandoned,
     CallRegionState::Registered},     // Registering (Free if the device refuses)
    {CallRegionState::Deregistering},  // Abandoned
    {CallRegionState::Deregistering},  // Registered
    {CallRegionState::Free},           // Deregistering
};
using CallRegionMachine =
    StateMachine<CallRegionState, CallRegionState::Deregistering, kCallRegionTransitions>;

/// Stage of a queue pair, which QueuePair::State summarizes. Owned by the reactor.
enum class QueuePairStage : std::uint8_t {
  Init,
  Connecting,  ///< State::Init; Connect is pending
  Connected,   ///< State::ReadyToSend
  Ended,       ///< State::Error; the device may access the memory of outstanding work requests
  Flushing,    ///< State::Error; the device only flushes, and the driver flushes what the device leaves
};
/// Successors of each stage of a queue pair, which is never connected again.
inline constexpr TransitionTable<QueuePairStage, QueuePairStage::Flushing> kQueuePairTransitions{
    {QueuePairStage::Connecting, QueuePairStage::Ended},  // Init
    {QueuePairStage::Connected, QueuePairStage::Ended},   // Connecting
    {QueuePairStage::Ended},                              // Connected
    {QueuePairStage::Flushing},                           // Ended
    {},                                                   // Flushing
};
using QueuePairMachine = StateMachine<QueuePairStage, QueuePairStage::Flushing, kQueuePairTransitions>;

}  // namespace sluice::rdma::verbs
