// SPDX-License-Identifier: Apache-2.0
//
// Slot of one RPC at the responder, from its Receive to the completion of its reply. Each credit is backed by
// one call slot.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/responder/call_layout.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "dataplane/segment/calls.h"
#include "dataplane/service/api/service.h"
#include "pmd/buffer_pool.h"

namespace sluice::rpcrdma {

class Responder;

class alignas(kCacheLine) CallSlot final : public service::Call, private ShareWaiter {
 public:
  enum class State : std::uint8_t {
    Free,                 ///< waits for a call
    Received,             ///< holds a call in its Receive buffer; nothing is checked yet
    AwaitingCallMemory,   ///< waits for a long-call buffer
    AwaitingReadRoom,     ///< waits for room in the send queue for its RDMA Reads
    Pulling,              ///< waits for the completion of its RDMA Reads
    Executing,            ///< waits for the service
    AwaitingReplyMemory,  ///< waits for a large reply buffer
    Pushing,              ///< its reply waits for room in the send queue
    Replying,             ///< RDMA Writes and Send are posted; waits for the completion of the Send
  };

  static_assert(static_cast<std::size_t>(State::Replying) + 1 == segment::kSlotStateCount);

  /// Result of an RPC that ends with an RPC reply.
  enum class Outcome : std::uint8_t { Success, AcceptError, AuthError, RpcMismatch };

  State state() const noexcept { return state_; }
  Responder& owner() noexcept { return *responder_; }

 private:
  friend class Responder;

  void on_share() noexcept override;
  /// Returns true if the slot waits for memory, or for room in the send queue.
  bool waits() const noexcept { return link.linked() || share_link.linked(); }
  std::uint32_t xid() const noexcept { return static_cast<std::uint32_t>(message_.header.fixed.xid); }
  std::span<const std::byte>& message_span() noexcept { return Call::message_; }
  const std::span<const std::byte>& message_span() const noexcept { return Call::message_; }

  // Fields that every call uses, in as few cache lines as possible, after the fields of service::Call. They
  // are in the order in which a new call sets them, so that the compiler merges the stores.
  bool advancing_ = false;  ///< advance() is on the stack, so complete() does not change the state
  bool holds_receive_ = false;
  bool with_service_ = false;  ///< place() or execute() was called, so release() is due
  bool completed_ = false;
  bool into_sink_ = false;   ///< the RDMA Reads go to the service's pieces
  bool impossible_ = false;  ///< the service requested more result memory than any buffer has
  bool traced_ = false;      ///< the connection was traced when the call began
  /// True if the call has no chunks, no handle to invalidate, no refusal, uses only the memory of its slot,
  /// and is on a connection with shortcuts.
  bool plain_ = true;
  State state_ = State::Free;
  /// State last counted in slots_in_state, updated at the end of advance() and when the slot is freed.
  State counted_state_ = State::Free;
  Outcome outcome_ = Outcome::Success;
  std::uint16_t procedure_ = segment::kOtherProcedure;  ///< index in the call table
  std::uint16_t index_ = 0;
  std::uint16_t sent_before_ = kNoWr;  ///< slot whose reply's Send completes with this one's
  std::uint32_t payload_bytes_ = 0;
  rpc::AcceptStat stat_ = rpc::AcceptStat::Success;
  // The payload stream of the reply starts at payload_, in reply_buffer_ or in reply_memory_.
  std::byte* payload_ = nullptr;
  std::span<std::byte> reply_buffer_;
  service::Service* service_ = nullptr;
  const service::Binding* binding_ = nullptr;  ///< binding of service_
  std::uint64_t begun_ns_ = 0;
  /// End of the time in state_ns_; begun_ns_ if nothing has been added yet.
  std::uint64_t state_since_ns_ = 0;
  std::uint64_t progress_ns_ = 0;  ///< when it began to wait for the peer, or sent a part of its reply

 public:
  StackLink<CallSlot> free_link;  ///< link in the free slots of the connection

 private:
  ReceivedMessage message_;  ///< fields from its chunks on are used only by some calls

  Responder* responder_ = nullptr;
  std::byte* call_memory_ = nullptr;   ///< call assembled with its Read chunks
  std::byte* reply_memory_ = nullptr;  ///< payload of a large reply
  v2::CreditWord credit_;              ///< credit word of the reply's last Send
  std::uint32_t parts_posted_ = 0;     ///< parts whose Sends are not complete
  std::uint64_t continued_bytes_ = 0;  ///< bytes of the payload stream sent in parts (version 2)
  Refusal refusal_;                    ///< none in a slot that is Free

  CallLayout layout_;
  rpc::VersionRange supported_;     ///< supported versions of the program, if the call's version is not
  std::size_t wanted_results_ = 0;  ///< bytes that the service requested but did not get
  std::uint32_t wanted_room_ = 0;   ///< work requests that found no room; zero: the slot waits for a credit

  std::array<std::uint64_t, segment::kSlotStateCount> state_ns_{};

 public:
  QueueLink<CallSlot> link;  ///< link in the queue for room in the send queue
};

/// Legal transitions between call states, as bits. When the connection is lost, a slot in any state but
/// Replying and Pulling becomes Free. Slots in those two states become Free when the driver has returned
/// their work requests.
inline constexpr auto kAfterCallSlotState = [] {
  using enum CallSlot::State;
  constexpr auto any_of = [](auto... states) {
    return static_cast<std::uint16_t>(((1u << static_cast<unsigned>(states)) | ...));
  };
  return std::array<std::uint16_t, segment::kSlotStateCount>{
      any_of(Received),                                      // Free
      any_of(AwaitingCallMemory, Executing, Pushing, Free),  // Received
      any_of(AwaitingReadRoom, Free),                        // AwaitingCallMemory
      any_of(Pulling, Free),                                 // AwaitingReadRoom
      any_of(Executing, Free),                               // Pulling
      any_of(Executing, AwaitingCallMemory, AwaitingReadRoom, AwaitingReplyMemory, Pushing),  // Executing
      any_of(Executing, Free),  // AwaitingReplyMemory
      any_of(Replying, Free),   // Pushing
      any_of(Free),             // Replying
  };
}();
constexpr bool may_follow(CallSlot::State from, CallSlot::State to) noexcept {
  return (kAfterCallSlotState[static_cast<std::size_t>(from)] >> static_cast<unsigned>(to) & 1) != 0;
}

/// Returns true for states in which the peer must act next. Executing depends on the service, and memory on
/// this end.
constexpr bool waits_for_peer(CallSlot::State state) noexcept {
  using enum CallSlot::State;
  return state == AwaitingReadRoom || state == Pulling || state == Pushing || state == Replying;
}

using CallSlotQueue = IntrusiveQueue<CallSlot, &CallSlot::link>;
using CallSlotStack = IntrusiveStack<CallSlot, &CallSlot::free_link>;

}  // namespace sluice::rpcrdma
