// SPDX-License-Identifier: Apache-2.0
//
// The place of one call at the requester, from submit() until its buffers may be used again. One reactor, or
// the one thread of a client.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/requester/request.h"
#include "dataplane/service/api/service.h"
#include "pmd/memory.h"

namespace sluice::rpcrdma {

/// A result whose Write chunk is in the bounce buffer, and the caller's pieces that it belongs to.
struct BouncedResult {
  std::byte* from = nullptr;  ///< null: it is not bounced
  std::uint8_t first_piece = 0;
  std::uint8_t pieces = 0;
};

/// What only some calls need: chunks, parts, a second try, memory beside the Send's. A free slot has it as it is here.
struct CallForm {
  /// Where the reduced arguments are.
  enum class Arguments : std::uint8_t {
    InChunks,
    ToBeUnreduced,  ///< the responder takes no Read chunks: they go back into the payload
    InPayload,
  };

  /// The caller gave the call up, or the responder refused it, where it cannot end: between its parts, or
  /// while it is fenced to be sent again. It ends so when that is over.
  std::optional<CallStatus> ends_as;
  bool force_long = false;         ///< Request::as_long_call
  bool force_reply_chunk = false;  ///< Request::offer_reply_chunk

  // The form in which it goes out; what a refusal changes for the second try.
  Arguments arguments = Arguments::InChunks;
  bool resent = false;                             ///< once is enough (V2-105, V2-114)
  bool results_in_reply = false;                   ///< no Write chunks: the responder fills none
  bool sent_no_msg = false;                        ///< as RDMA2_NOMSG
  std::uint32_t reply_chunk_least = 0;             ///< bytes that the responder asked for
  std::uint32_t max_segments = ~std::uint32_t{0};  ///< that the responder takes
  std::uint64_t continued_bytes = 0;               ///< of the payload, sent in parts

  std::uint32_t bounce_used = 0;
  std::uint32_t reply_chunk_bytes = 0;
  rdma::Rkey invalidate{};   ///< handle that the responder may invalidate
  bool invalidated = false;  ///< its reply says that it has
  std::uint8_t read_items = 0;
  std::uint8_t write_items = 0;
  std::uint8_t piece_count = 0;
  std::uint8_t callers_piece_count = 0;
  std::uint16_t window_count = 0;
  std::uint16_t first_write_segment = 0;
  std::uint16_t segment_count = 0;
};

/// What only a call with chunks needs. Far from the slots: with it a slot would have pages of its own, and the TLB room
/// for few of them.
struct ChunkArrays {
  std::array<Position, kMaxReadItems> read_positions;
  std::array<std::uint8_t, kMaxReadItems> read_pieces;  ///< pieces per item
  std::array<std::uint8_t, kMaxWriteItems> write_pieces;
  std::array<std::uint32_t, kMaxWriteItems> write_offers;  ///< bytes per write item
  std::array<rdma::Sge, kMaxRequestPieces> pieces;         ///< of reads, then of writes
  std::array<rdma::MemoryWindow, kMaxRequestSegments> windows;
  std::array<Segment, kMaxRequestSegments> segments;  ///< as offered: reads, position zero, writes, reply
  std::array<std::uint8_t, kMaxWriteItems> write_segments;  ///< segments per write item
  std::array<std::uint64_t, kMaxWriteItems> returned;
  std::array<BouncedResult, kMaxWriteItems> bounced;
  std::array<rdma::Sge, kMaxRequestPieces> callers_pieces;  ///< of bounced results
};

/// What every call needs, in one cache line.
struct alignas(kCacheLine) PlainRequest {
  enum class State : std::uint8_t {
    Free,               ///< waits for a request
    AwaitingTurn,       ///< waits for a credit, windows, memory, room in the send queue, or a connection
    AwaitingNextPart,   ///< some of its parts are out; waits for the same to send the others
    AwaitingLastPart,   ///< the same, but refused and reported: the rest only ends the sequence (D2-40)
    AwaitingReply,      ///< sent
    AwaitingFenceRoom,  ///< waits for room in the send queue to invalidate its windows
    AwaitingFence,      ///< waits for the invalidation of its windows
    AwaitingDetach,     ///< the invalidation failed: waits for the end of the queue pair (V1-143)
    AwaitingResend,     ///< fenced, and goes out again in another shape when its Sends are complete
    AwaitingSendDone,  ///< its caller has the outcome; waits for the completion of its Send to use the buffer
  };
  /// What is done when its memory is fenced.
  enum class AfterFence : std::uint8_t { Deliver, Resend };

  State state = State::Free;  ///< changed by Requester::transition() and step() alone
  AfterFence after_fence = AfterFence::Deliver;
  bool plain = false;  ///< sent at once, without anything of its CallForm
  // As it was submitted.
  bool repeatable = false;
  bool send_once = false;
  bool urgent = false;
  std::uint16_t index = 0;
  std::uint16_t receive = kNoReceive;  ///< that holds the reply until it is delivered
  rpc::Xid xid{};
  std::uint32_t payload_bytes = 0;
  std::uint32_t max_reply_bytes = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t sequence = 0;  ///< of submission: the order in which pending calls are sent again
  Completion completion = nullptr;
  void* context = nullptr;
  /// Among the Sends of this requester, of the whole message or of its last part: see SendOrder. No state, since the reply
  /// may come before the completion of the Send that it answers.
  std::uint64_t send_number = 0;
};
static_assert(sizeof(PlainRequest) == kCacheLine);

struct RequestSlot : PlainRequest, CallForm {
  Reply reply;                                             ///< of a call that is not plain
  std::uint32_t parts_posted = 0;                          ///< that the driver has
  service::Client::CallBackDone call_back_done = nullptr;  ///< with its own context
  void* call_back_context = nullptr;
  QueueLink<RequestSlot> link;  ///< of the one queue it is in

  // Memory.
  std::byte* call_memory = nullptr;   ///< payload that is longer than a Send
  std::byte* reply_memory = nullptr;  ///< Reply chunk
  std::byte* assembly = nullptr;      ///< continued reply, in LinkContext::assembly
  std::byte* bounce_memory = nullptr;
  std::uint64_t exposed_sum = 0;  ///< RequesterConfig::check_exposed_memory

  ChunkArrays* chunks = nullptr;

  bool in_parts() const noexcept {
    return state == State::AwaitingNextPart || state == State::AwaitingLastPart;
  }
  bool being_fenced() const noexcept {
    return state == State::AwaitingFenceRoom || state == State::AwaitingFence ||
           state == State::AwaitingDetach;
  }
  bool being_resent() const noexcept {
    return state == State::AwaitingResend || (being_fenced() && after_fence == AfterFence::Resend);
  }
};

using RequestQueue = IntrusiveQueue<RequestSlot, &RequestSlot::link>;

/// What may follow each state of a request slot, as bits. Back to AwaitingTurn leads the end of the queue
/// pair, with which all remote access is gone.
inline constexpr auto kAfterRequestState = [] {
  using enum RequestSlot::State;
  constexpr auto any_of = [](auto... states) {
    return static_cast<std::uint16_t>(((1u << static_cast<unsigned>(states)) | ...));
  };
  return std::array{
      any_of(AwaitingTurn, AwaitingSendDone),  // Free: the latter ends what cannot be sent
      any_of(AwaitingNextPart, AwaitingReply, AwaitingFenceRoom, AwaitingFence,
             AwaitingSendDone),                                                 // AwaitingTurn
      any_of(AwaitingTurn, AwaitingLastPart, AwaitingReply, AwaitingSendDone),  // AwaitingNextPart
      any_of(AwaitingReply, AwaitingSendDone),                                  // AwaitingLastPart
      any_of(AwaitingTurn, AwaitingFenceRoom, AwaitingFence, AwaitingResend,
             AwaitingSendDone),                                                // AwaitingReply
      any_of(AwaitingTurn, AwaitingFence, AwaitingSendDone),                   // AwaitingFenceRoom
      any_of(AwaitingTurn, AwaitingDetach, AwaitingResend, AwaitingSendDone),  // AwaitingFence
      any_of(AwaitingTurn, AwaitingSendDone),                                  // AwaitingDetach
      any_of(AwaitingTurn, AwaitingSendDone),                                  // AwaitingResend
      any_of(Free),                                                            // AwaitingSendDone
  };
}();
static_assert(kAfterRequestState.size() ==
              static_cast<std::size_t>(RequestSlot::State::AwaitingSendDone) + 1);
constexpr bool may_follow(RequestSlot::State from, RequestSlot::State to) noexcept {
  return (kAfterRequestState[static_cast<std::size_t>(from)] >> static_cast<unsigned>(to) & 1) != 0;
}

}  // namespace sluice::rpcrdma
