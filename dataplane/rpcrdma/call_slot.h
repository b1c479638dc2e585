// SPDX-License-Identifier: Apache-2.0
//
// One credit = one call slot: the place of one RPC at the responder, from its Receive to the completion of
// its reply.
#pragma once

#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/call_layout.h"
#include "dataplane/rpcrdma/v1.h"
#include "dataplane/service/service.h"

namespace sluice::rpcrdma {

class Responder;

/// A message as it lies in its Receive buffer.
struct ReceivedMessage {
  std::uint16_t buffer = 0;  ///< index of the Receive buffer
  std::span<const std::byte> bytes;
  v1::Header header;

  std::span<const std::byte> payload() const noexcept { return bytes.subspan(header.header_bytes); }
};

/// Why a call gets an RDMA_ERROR instead of a reply.
enum class Refusal : std::uint8_t { None, ErrVers, ErrChunk };

class CallSlot final : public service::Call {
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

  /// How the RPC ends, when it ends with an RPC reply.
  enum class Outcome : std::uint8_t { Success, AcceptError, AuthError, RpcMismatch };

  State state() const noexcept { return state_; }
  Responder& owner() noexcept { return *responder_; }
  CallSlot* next = nullptr;  ///< link of the one queue it waits in

 private:
  friend class Responder;

  std::array<std::byte, service::kCallStateBytes>& state_bytes() noexcept { return Call::state_bytes_; }

  // Set once.
  Responder* responder_ = nullptr;
  std::uint16_t index_ = 0;
  std::span<std::byte> reply_buffer_;

  // Of the call.
  State state_ = State::Free;
  Refusal refusal_ = Refusal::None;
  bool advancing_ = false;  ///< advance() is on the stack: complete() only changes the state
  bool completed_ = false;
  bool with_service_ = false;  ///< place() or execute() was called, so release() is due
  bool into_sink_ = false;     ///< the RDMA Reads go to the service's pieces
  bool holds_receive_ = false;
  bool queued_ = false;      ///< waits in one of the queues of those that need memory or room
  bool impossible_ = false;  ///< the service asked for more result memory than there ever is
  Outcome outcome_ = Outcome::Success;
  rpc::AcceptStat stat_ = rpc::AcceptStat::Success;
  ReceivedMessage message_;
  CallLayout layout_;
  service::Service* service_ = nullptr;
  rpc::VersionRange supported_;        ///< of the program, when the call's version is not
  std::byte* call_memory_ = nullptr;   ///< assembled call
  std::byte* reply_memory_ = nullptr;  ///< payload of a large reply

  // Of the reply: the payload stream starts at payload_, in reply_buffer_ or in reply_memory_.
  std::byte* payload_ = nullptr;
  std::uint32_t payload_bytes_ = 0;
};

}  // namespace sluice::rpcrdma
