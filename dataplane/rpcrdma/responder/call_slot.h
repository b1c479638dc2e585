// SPDX-License-Identifier: Apache-2.0
//
// One credit = one call slot: the place of one RPC at the responder, from its Receive to the completion of
// its reply.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/intrusive_stack.h"
#include "dataplane/base/share_ledger.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/responder/call_layout.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "dataplane/segment/trace.h"
#include "dataplane/service/api/service.h"
#include "pmd/buffer_pool.h"

namespace sluice::rpcrdma {

class Responder;

class alignas(kCacheLine) CallSlot final : public service::Call, private ShareWaiter {
 public:
  enum class State : std::uint8_t {
    Free,                 ///< waits for a call
    Received,             ///< has a call in its Receive buffer; nothing is checked yet
    AwaitingCallMemory,   ///< waits for a long-call buffer
    AwaitingReadRoom,     ///< waits for room in the send queue for its RDMA Reads
    Pulling,              ///< waits for its RDMA Reads
    Executing,            ///< waits for the service
    AwaitingReplyMemory,  ///< waits for a large reply buffer
    Pushing,              ///< its reply waits for room in the send queue
    Replying,             ///< RDMA Writes and Send are posted: waits for the Send's completion
  };

  static_assert(static_cast<std::size_t>(State::Replying) + 1 == segment::kSlotStateCount);

  /// How the RPC ends, when it ends with an RPC reply.
  enum class Outcome : std::uint8_t { Success, AcceptError, AuthError, RpcMismatch };

  State state() const noexcept { return state_; }
  Responder& owner() noexcept { return *responder_; }

 private:
  friend class Responder;

  void on_share() noexcept override;
  /// For memory, or for room in the send queue.
  bool waits() const noexcept { return link.linked() || share_link.linked(); }
  std::uint32_t xid() const noexcept { return static_cast<std::uint32_t>(message_.header.fixed.xid); }
  std::span<const std::byte>& message_span() noexcept { return Call::message_; }
  const std::span<const std::byte>& message_span() const noexcept { return Call::message_; }

  // What every call needs, in as few cache lines as it takes; behind the call's own. In the order in which a new call
  // sets them, so that several are one store.
  bool advancing_ = false;  ///< advance() is on the stack: complete() leaves the state to it
  bool holds_receive_ = false;
  bool with_service_ = false;  ///< place() or execute() was called, so release() is due
  bool completed_ = false;
  bool into_sink_ = false;   ///< the RDMA Reads go to the service's pieces
  bool impossible_ = false;  ///< the service asked for more result memory than there ever is
  bool traced_ = false;      ///< its connection was traced when it began
  /// No chunks, no handle to invalidate, no refusal, and no memory but its own.
  bool plain_ = true;
  State state_ = State::Free;
  State counted_state_ =
      State::Free;  ///< what slots_in_state has it as: it does not follow every step of a turn
  Outcome outcome_ = Outcome::Success;
  std::uint16_t procedure_ = segment::kOtherProcedure;  ///< in the call table
  std::uint16_t index_ = 0;
  std::uint16_t sent_before_ = kNoWr;  ///< slot whose reply's Send completes with this one's
  std::uint32_t payload_bytes_ = 0;
  rpc::AcceptStat stat_ = rpc::AcceptStat::Success;
  // Of the reply: the payload stream starts at payload_, in reply_buffer_ or in reply_memory_.
  std::byte* payload_ = nullptr;
  std::span<std::byte> reply_buffer_;
  service::Service* service_ = nullptr;
  const service::Binding* binding_ = nullptr;  ///< the service's
  std::uint64_t begun_ns_ = 0;
  std::uint64_t state_since_ns_ = 0;  ///< up to where state_ns_ counts; begun_ns_: not at all yet
  std::uint64_t progress_ns_ = 0;     ///< when it began to wait for the peer, or a part of its reply went out

 public:
  StackLink<CallSlot> free_link;  ///< of the free slots of its connection

 private:
  ReceivedMessage message_;  ///< its chunks are the first of what only some calls need

  Responder* responder_ = nullptr;
  std::byte* call_memory_ = nullptr;   ///< call with its Read chunks
  std::byte* reply_memory_ = nullptr;  ///< payload of a large reply
  v2::CreditWord credit_;              ///< of the reply's last Send
  std::uint32_t parts_posted_ = 0;     ///< parts whose Sends are not complete
  std::uint64_t continued_bytes_ = 0;  ///< of the payload stream, sent in parts so far (version 2)
  Refusal refusal_;                    ///< of a slot that is Free: none

  CallLayout layout_;
  rpc::VersionRange supported_;     ///< of the program, when the call's version is not
  std::size_t wanted_results_ = 0;  ///< bytes that the service has asked for in vain
  std::uint32_t wanted_room_ = 0;   ///< work requests that there was no room for; none: it waits for a credit

  std::array<std::uint64_t, segment::kSlotStateCount> state_ns_{};

 public:
  QueueLink<CallSlot> link;  ///< of the queue for room in the send queue
};

/// What may follow each state of a call slot, as bits. Any state but Replying and Pulling ends in Free when
/// the connection is lost; those two end there when the driver has given their work requests back.
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

/// Executing is the service's time, and waiting for memory is ours.
constexpr bool waits_for_peer(CallSlot::State state) noexcept {
  using enum CallSlot::State;
  return state == AwaitingReadRoom || state == Pulling || state == Pushing || state == Replying;
}

using CallSlotQueue = IntrusiveQueue<CallSlot, &CallSlot::link>;
using CallSlotStack = IntrusiveStack<CallSlot, &CallSlot::free_link>;

}  // namespace sluice::rpcrdma
