// SPDX-License-Identifier: Apache-2.0
//
// Slot of one call at the requester, from submit() until its buffers may be reused. Confined to one reactor,
// or to the thread of a client.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/link/wr_id.h"
#include "dataplane/rpcrdma/requester/request.h"
#include "dataplane/service/api/service.h"
#include "pmd/memory.h"

namespace sluice::rpcrdma {

/// A result whose Write chunk is in the bounce buffer, and the caller's pieces that receive it.
struct BouncedResult {
  std::byte* from = nullptr;  ///< null: not bounced
  std::uint8_t first_piece = 0;
  std::uint8_t pieces = 0;
};

/// Fields that only some calls use: chunks, parts, a second attempt, memory beyond the send buffer. A free
/// slot has these defaults.
struct CallForm {
  /// Location of the reduced arguments.
  enum class Arguments : std::uint8_t {
    InChunks,
    ToBeUnreduced,  ///< the responder supports no Read chunks, so the arguments must return to the payload
    InPayload,
  };

  /// Outcome of a call that was abandoned or refused while it cannot end, between its parts or while it is
  /// fenced for a resend. The call ends with this status afterwards.
  std::optional<CallStatus> ends_as;
  bool force_long = false;         ///< Request::as_long_call
  bool force_reply_chunk = false;  ///< Request::offer_reply_chunk

  // Form of the call on the wire, which a refusal changes for the second attempt.
  Arguments arguments = Arguments::InChunks;
  bool resent = false;                             ///< resent at most once (V2-105, V2-114)
  bool results_in_reply = false;                   ///< no Write chunks because the responder fills none
  bool sent_no_msg = false;                        ///< sent as RDMA2_NOMSG
  std::uint32_t reply_chunk_least = 0;             ///< bytes that the responder requires
  std::uint32_t max_segments = ~std::uint32_t{0};  ///< maximum that the responder accepts
  std::uint64_t continued_bytes = 0;               ///< bytes of the payload sent in parts

  std::uint32_t bounce_used = 0;
  std::uint32_t reply_chunk_bytes = 0;
  rdma::Rkey invalidate{};   ///< handle that the responder may invalidate
  bool invalidated = false;  ///< the reply has invalidated it
  std::uint8_t read_items = 0;
  std::uint8_t write_items = 0;
  std::uint8_t piece_count = 0;
  std::uint8_t callers_piece_count = 0;
  std::uint16_t window_count = 0;
  std::uint16_t registered = 0;      ///< of window_count; only on a device without memory windows
  std::uint8_t exposed_version = 0;  ///< version in which its segments were registered; zero: they are not
  std::uint16_t first_write_segment = 0;
  std::uint16_t segment_count = 0;
};

/// Fields that only calls with chunks use. They are stored apart from the slots because otherwise each slot
/// would span separate pages and cause TLB misses.
struct ChunkArrays {
  std::array<Position, kMaxReadItems> read_positions;
  std::array<std::uint8_t, kMaxReadItems> read_pieces;  ///< pieces per item
  std::array<std::uint8_t, kMaxWriteItems> write_pieces;
  std::array<std::uint32_t, kMaxWriteItems> write_offers;  ///< bytes per write item
  std::array<rdma::Sge, kMaxRequestPieces> pieces;         ///< pieces of reads, then of writes
  std::array<rdma::MemoryWindow, kMaxRequestSegments> windows;
  std::array<Segment, kMaxRequestSegments> segments;  ///< as offered: reads, position zero, writes, reply
  std::array<std::uint8_t, kMaxWriteItems> write_segments;  ///< segments per write item
  std::array<std::uint64_t, kMaxWriteItems> returned;
  std::array<BouncedResult, kMaxWriteItems> bounced;
  std::array<rdma::Sge, kMaxRequestPieces> callers_pieces;  ///< pieces of bounced results
};

/// Fields that only calls with chunks use on a device without memory windows.
struct RegionArrays {
  std::array<std::uint8_t, kMaxRequestSegments> segment_of_window;
  std::array<std::byte*, kMaxRequestSegments> pooled;  ///< by segment: buffer of the pool, or null
  std::array<std::byte*, kMaxRequestSegments>
      placed;  ///< by segment: where the copied result belongs, or null
};
static_assert(kMaxRequestSegments <= 256);

/// Fields that every call uses, in one cache line.
struct alignas(kCacheLine) PlainRequest {
  enum class State : std::uint8_t {
    Free,              ///< waits for a request
    AwaitingTurn,      ///< waits for a credit, windows, memory, room in the send queue, or a connection
    AwaitingRegions,   ///< waits for the registration of its memory, on a device without memory windows
    AwaitingNextPart,  ///< some parts are sent; waits for a credit or room to send the next one
    /// Refused and reported while in AwaitingNextPart; the remaining parts only end the sequence (D2-40).
    AwaitingLastPart,
    AwaitingReply,      ///< sent
    AwaitingFenceRoom,  ///< waits for room in the send queue to invalidate its windows
    AwaitingFence,      ///< waits for the invalidation of its windows
    AwaitingDetach,     ///< the invalidation failed; waits for the destruction of the queue pair (V1-143)
    AwaitingResend,     ///< fenced; will be sent again in another shape when its Sends are complete
    AwaitingSendDone,   ///< the caller has the outcome; the buffer is in use until the Send completes
  };
  /// Next step after the memory is fenced.
  enum class AfterFence : std::uint8_t { Deliver, Resend };

  State state = State::Free;  ///< changed only by Requester::transition() and step()
  AfterFence after_fence = AfterFence::Deliver;
  bool plain = false;  ///< sent immediately, without using its CallForm
  // Copied from the request.
  bool repeatable = false;
  bool send_once = false;
  bool urgent = false;
  std::uint16_t index = 0;
  std::uint16_t receive = kNoReceive;  ///< holds the reply until it is delivered
  rpc::Xid xid{};
  std::uint32_t payload_bytes = 0;
  std::uint32_t max_reply_bytes = 0;
  std::uint64_t deadline_ns = 0;
  std::uint64_t sequence = 0;  ///< submission order, in which pending calls are sent again
  Completion completion = nullptr;
  void* context = nullptr;
  /// Number of the call's Send, or of the Send of its last part; see SendOrder. It is not a state because the
  /// reply may arrive before the completion of the Send.
  std::uint64_t send_number = 0;
};
static_assert(sizeof(PlainRequest) == kCacheLine);

struct RequestSlot : PlainRequest, CallForm {
  Reply reply;                                             ///< reply to a call that is not plain
  std::uint32_t parts_posted = 0;                          ///< parts whose Sends are outstanding
  service::Client::CallBackDone call_back_done = nullptr;  ///< called with call_back_context
  void* call_back_context = nullptr;
  QueueLink<RequestSlot> link;  ///< link of the one queue that contains the slot

  // Memory of the call.
  std::byte* call_memory = nullptr;   ///< payload that is longer than a Send
  std::byte* reply_memory = nullptr;  ///< Reply chunk
  std::byte* assembly = nullptr;      ///< continued reply, in LinkContext::assembly
  std::byte* bounce_memory = nullptr;
  std::uint64_t exposed_sum = 0;  ///< RequesterConfig::check_exposed_memory

  ChunkArrays* chunks = nullptr;
  RegionArrays* regions = nullptr;  ///< null on a device with memory windows

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

/// Legal transitions between request states, as bits. The destruction of the queue pair, which ends all
/// remote access, leads back to AwaitingTurn.
inline constexpr auto kAfterRequestState = [] {
  using enum RequestSlot::State;
  constexpr auto any_of = [](auto... states) {
    return static_cast<std::uint16_t>(((1u << static_cast<unsigned>(states)) | ...));
  };
  return std::array{
      any_of(AwaitingTurn, AwaitingSendDone),  // Free: AwaitingSendDone ends a call that cannot be sent
      any_of(AwaitingRegions, AwaitingNextPart, AwaitingReply, AwaitingFenceRoom, AwaitingFence,
             AwaitingSendDone),                                                 // AwaitingTurn
      any_of(AwaitingTurn, AwaitingFence, AwaitingSendDone),                    // AwaitingRegions
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
