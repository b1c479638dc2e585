// SPDX-License-Identifier: Apache-2.0
//
// A call as submitted to the requester, and its reply. Used by the requester's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/wire/header.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "pmd/memory.h"
#include "pmd/work_request.h"

namespace sluice::rpcrdma {

class Requester;

/// Maximum registered pieces of one request, over all its items.
inline constexpr std::size_t kMaxRequestPieces = 32;
inline constexpr std::size_t kMaxReadItems = 8;
inline constexpr std::size_t kMaxWriteItems = kMaxWriteChunks;
/// Maximum segments of one request, after splitting at RequesterConfig::max_segment_bytes.
inline constexpr std::size_t kMaxRequestSegments = 168;

/// A reduced argument, removed from the payload; the responder reads it from `pieces`.
struct ReadItem {
  Position position{};  ///< in the unreduced RPC message, after the count word (V1-077)
  std::span<const rdma::Sge> pieces;
};

/// Memory for a reduced result. Without pieces it becomes a chunk without segments, which requests an inline
/// result.
struct WriteItem {
  std::span<const rdma::Sge> pieces;
  /// Version 2: bytes offered at first. The rest is offered when the responder requests it (V2-105). Zero:
  /// all.
  std::uint32_t first_offer_bytes = 0;
};

enum class CallStatus : std::uint8_t {
  Ok,             ///< a reply arrived; the caller checks its RPC header
  ChunkError,     ///< RDMA_ERROR, ERR_CHUNK (permanent, V1-027)
  Refused,        ///< RDMA2_ERROR; see Reply::error()
  VersionError,   ///< RDMA_ERROR, ERR_VERS (V1-029)
  UnusableReply,  ///< a reply that contradicts the call's chunks, or cannot be decoded (V1-036)
  TooLarge,       ///< cannot be sent with this connection's thresholds or limits (V1-067, V1-168)
  TimedOut,
  Cancelled,
  /// Request::send_once: the connection was closed after the call was sent and before its reply.
  ConnectionLost,
};
const char* to_string(CallStatus status) noexcept;

struct ItemResult {
  enum class Where : std::uint8_t {
    Placed,  ///< `count` bytes are in the write item's pieces
    Inline,  ///< the data follows its count word in the message (V1-190)
    Defect,  ///< the returned chunk contradicts the count
  };
  Where where = Where::Defect;
};

/// Outcome of a call, passed to its completion and valid only during that function call.
class Reply {
 public:
  CallStatus status() const noexcept { return status_; }
  rpc::Xid xid() const noexcept { return xid_; }
  /// Returns the RPC reply message without the placed results, for CallStatus::Ok.
  std::span<const std::byte> message() const noexcept { return message_; }
  /// Returns where the result of write item `index` is, given the count word in the message. Call it only for
  /// results that the reply contains; chunks of absent results may have any content (V1-109).
  ItemResult item(std::size_t index, std::uint32_t count) const noexcept;
  /// Returns the bytes written to the chunk of write item `index`.
  std::uint64_t returned(std::size_t index) const noexcept {
    return index < returned_.size() ? returned_[index] : 0;
  }
  /// Returns the versions that the responder supports, for CallStatus::VersionError.
  rpc::VersionRange supported() const noexcept { return error_.supported; }
  /// Returns the responder's error, for CallStatus::Refused.
  const v2::Error& error() const noexcept { return error_; }

 private:
  friend class Requester;
  CallStatus status_ = CallStatus::Ok;
  rpc::Xid xid_{};
  std::span<const std::byte> message_;
  bool exact_chunks_ = false;  ///< VersionRules::exact_chunks
  std::uint16_t slot_ = 0;
  v2::Error error_;
  std::size_t write_items_ = 0;
  std::span<const std::uint64_t> returned_;       ///< bytes per write item
  std::span<const std::uint8_t> write_segments_;  ///< offered segments per write item
};

using Completion = void (*)(void* context, const Reply& reply) noexcept;

struct Request {
  /// RPC call message with the reduced arguments removed, including their padding. It is copied, and its
  /// first word is replaced by the XID unless RequesterConfig::keep_xids is set.
  std::span<const std::byte> payload;
  /// Items. The arrays are copied; the requester uses the memory of the items until the completion.
  std::span<const ReadItem> reads{};
  std::span<const WriteItem> writes{};
  /// Upper bound of the RPC reply message without placed results (V1-118).
  std::uint32_t max_reply_bytes = 0;
  bool as_long_call = false;       ///< use a position-zero chunk even if the call fits inline (V1-114)
  bool offer_reply_chunk = false;  ///< offer a Reply chunk even if the reply fits inline
  /// Version 2: the call may be executed twice, so it is sent again if the responder requests larger chunks
  /// (D2-47).
  bool repeatable = false;
  /// The call is never sent again on another connection; it ends as ConnectionLost. Used for RPCSEC_GSS,
  /// because servers drop a repeated sequence number (RFC 2203, section 5.3.3.1).
  bool send_once = false;
  /// Sent before all waiting calls; it may use the credit that RequesterConfig::spare_credit reserves.
  bool urgent = false;
  /// Time of the clock of expire() at which the call ends as TimedOut; zero: never.
  std::uint64_t deadline_ns = 0;
  Completion completion = nullptr;
  void* context = nullptr;
};

/// XID of a submitted call, or nothing. It is one word, returned in a register; a std::optional would be
/// assembled in memory and loaded before its stores have completed.
class SubmittedXid {
 public:
  constexpr SubmittedXid() noexcept = default;
  constexpr explicit SubmittedXid(rpc::Xid xid) noexcept : word_(kTaken | static_cast<std::uint32_t>(xid)) {}

  constexpr bool has_value() const noexcept { return word_ != 0; }
  constexpr explicit operator bool() const noexcept { return has_value(); }
  /// Returns the XID. Requires has_value().
  constexpr rpc::Xid operator*() const noexcept { return static_cast<rpc::Xid>(word_); }

 private:
  static constexpr std::uint64_t kTaken = std::uint64_t{1} << 32;
  std::uint64_t word_ = 0;
};

struct RequesterConfig {
  std::uint32_t requests = 128;          ///< request slots: calls queued and outstanding; a power of two
  std::uint32_t inline_bytes = 4096;     ///< largest Send, in bytes
  std::uint32_t credits_requested = 64;  ///< equal in every call (V1-040)
  /// Memory windows for all requests; on a device without memory windows, regions that are registered for one
  /// request each.
  std::uint32_t windows = 512;
  rdma::ProtectionDomain domain{};  ///< of its queue pairs; see rdma::Device::allocate_domain()
  /// On a device without memory windows, segments of at most this size are copied through a pool of
  /// `pool_buffers`, which the peer can access as long as the connection exists. Zero: every segment has a
  /// region, and so has one that finds the pool empty.
  std::uint32_t pool_buffer_bytes = 0;
  std::uint32_t pool_buffers = 0;
  /// Buffers for Long Calls and Reply chunks. A call with both uses two.
  std::uint32_t long_buffers = 8;
  std::uint32_t long_buffer_bytes = 128 * 1024;
  /// Buffers for Reply chunks of at most short_reply_bytes, which are used before long buffers. With as many
  /// as requests, calls with such replies never wait for each other.
  std::uint32_t short_reply_buffers = 0;
  std::uint32_t short_reply_bytes = 16u << 10;
  std::uint32_t max_segment_bytes = 1u << 30;  ///< registration limit; longer pieces become several segments
  /// Workaround for peers that support only one segment per chunk (F-03): items in several pieces use a
  /// bounce buffer.
  bool single_segment_chunks = false;
  /// Workaround for old responders that require room for XDR round-up in Write chunks (V1-103): items of
  /// other lengths use a bounce buffer.
  bool round_up_write_chunks = false;
  std::uint32_t bounce_buffers = 0;  ///< required by the two options above, one for each affected call
  std::uint32_t bounce_buffer_bytes = 1u << 20;
  /// Debugging aid for the rule that callers must not change arguments while the responder may read them
  /// (V1-141). Compares their checksums before and after exposure and counts differences in
  /// exposed_memory_changed.
  bool check_exposed_memory = false;
  bool reverse = false;         ///< calls of the passive side: no chunks in version 1
  bool reverse_chunks = false;  ///< version 2: reverse calls may have chunks if the peer supports it (V2-135)
  /// Version 2: calls and replies up to this size are continued instead of using chunks.
  std::uint32_t continue_up_to = 16 * 1024;
  /// Calls keep the XIDs in their payload, for callers whose XIDs are signed or have a meaning for the
  /// responder. Outstanding calls must have distinct XIDs.
  bool keep_xids = false;
  /// Version 1: reserves the last of several credits for Request::urgent.
  bool spare_credit = false;
  bool remote_invalidation = true;  ///< version 2: name a handle that the responder may invalidate
};

}  // namespace sluice::rpcrdma
