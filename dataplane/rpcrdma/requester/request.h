// SPDX-License-Identifier: Apache-2.0
//
// A call as it is given to the requester, and what comes back. The requester's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/rpcrdma/wire/header.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "pmd/work_request.h"

namespace sluice::rpcrdma {

class Requester;

/// Registered pieces that one request may name, all its items together.
inline constexpr std::size_t kMaxRequestPieces = 32;
inline constexpr std::size_t kMaxReadItems = 8;
inline constexpr std::size_t kMaxWriteItems = kMaxWriteChunks;
/// Segments of one request, after splitting at RequesterConfig::max_segment_bytes.
inline constexpr std::size_t kMaxRequestSegments = 168;

/// A reduced argument: taken out of the payload, read by the responder from `pieces`.
struct ReadItem {
  Position position{};  ///< in the unreduced RPC message, behind the count word (V1-077)
  std::span<const rdma::Sge> pieces;
};

/// Room for a reduced result. Empty pieces make a chunk without segments, which asks for that result inline.
struct WriteItem {
  std::span<const rdma::Sge> pieces;
  /// Version 2: offered at first; the rest only when the responder asks for it (V2-105). Zero: all.
  std::uint32_t first_offer_bytes = 0;
};

enum class CallStatus : std::uint8_t {
  Ok,             ///< a reply arrived; its RPC header is the caller's to judge
  ChunkError,     ///< RDMA_ERROR, ERR_CHUNK (permanent, V1-027)
  Refused,        ///< RDMA2_ERROR; Reply::error() says why
  VersionError,   ///< RDMA_ERROR, ERR_VERS (V1-029)
  UnusableReply,  ///< a reply that contradicts the call's chunks, or cannot be decoded (V1-036)
  TooLarge,       ///< cannot be sent with this connection's thresholds or limits (V1-067, V1-168)
  TimedOut,
  Cancelled,
  ConnectionLost,  ///< Request::send_once: it was sent, and its connection ended before the reply
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

/// What the caller's completion sees; valid during that call only.
class Reply {
 public:
  CallStatus status() const noexcept { return status_; }
  rpc::Xid xid() const noexcept { return xid_; }
  /// CallStatus::Ok: the RPC reply message, without the results that were placed.
  std::span<const std::byte> message() const noexcept { return message_; }
  /// Where the data of the eligible result is that the call's write item `index` was for, given the count
  /// word in the message. Only asked for results that are there: what comes back for absent ones does not
  /// matter (V1-109).
  ItemResult item(std::size_t index, std::uint32_t count) const noexcept;
  /// Bytes that came back in the chunk of write item `index`.
  std::uint64_t returned(std::size_t index) const noexcept {
    return index < returned_.size() ? returned_[index] : 0;
  }
  /// CallStatus::VersionError: what the responder supports.
  rpc::VersionRange supported() const noexcept { return error_.supported; }
  /// CallStatus::Refused.
  const v2::Error& error() const noexcept { return error_; }

 private:
  friend class Requester;
  CallStatus status_ = CallStatus::Ok;
  rpc::Xid xid_{};
  std::span<const std::byte> message_;
  bool version_2_ = false;
  std::uint16_t slot_ = 0;
  v2::Error error_;
  std::size_t write_items_ = 0;
  std::span<const std::uint64_t> returned_;       ///< bytes per write item
  std::span<const std::uint8_t> write_segments_;  ///< offered, per write item
};

using Completion = void (*)(void* context, const Reply& reply) noexcept;

struct Request {
  /// The RPC call message with the reduced arguments taken out, pad included. Its first word is replaced by
  /// the XID, unless RequesterConfig::keep_xids. Copied.
  std::span<const std::byte> payload;
  /// The memory of items stays the callee's until the completion; the arrays themselves are copied.
  std::span<const ReadItem> reads{};
  std::span<const WriteItem> writes{};
  /// Upper bound of the RPC reply message without placed results (V1-118).
  std::uint32_t max_reply_bytes = 0;
  bool as_long_call = false;       ///< position-zero chunk even if it fits inline (V1-114)
  bool offer_reply_chunk = false;  ///< Reply chunk even if the reply fits inline
  /// Version 2: may be executed twice, so that it is sent again when the responder asks for larger chunks
  /// (D2-47).
  bool repeatable = false;
  /// Not sent again over another connection once it was sent: it ends as ConnectionLost. For RPCSEC_GSS, whose
  /// servers drop a sequence number that they know (RFC 2203, section 5.3.3.1).
  bool send_once = false;
  /// Goes before all calls that wait, with the credit that RequesterConfig::spare_credit keeps.
  bool urgent = false;
  std::uint64_t deadline_ns = 0;  ///< of the clock of expire(), at which it ends as TimedOut; zero: never
  Completion completion = nullptr;
  void* context = nullptr;
};

/// The XID of a call that was taken, or nothing. One word, which is returned in a register: a std::optional would be
/// put together in memory and read back before its parts are there.
class SubmittedXid {
 public:
  constexpr SubmittedXid() noexcept = default;
  constexpr explicit SubmittedXid(rpc::Xid xid) noexcept : word_(kTaken | static_cast<std::uint32_t>(xid)) {}

  constexpr bool has_value() const noexcept { return word_ != 0; }
  constexpr explicit operator bool() const noexcept { return has_value(); }
  /// There is one.
  constexpr rpc::Xid operator*() const noexcept { return static_cast<rpc::Xid>(word_); }

 private:
  static constexpr std::uint64_t kTaken = std::uint64_t{1} << 32;
  std::uint64_t word_ = 0;
};

struct RequesterConfig {
  std::uint32_t requests = 128;          ///< request slots: calls queued and outstanding; a power of two
  std::uint32_t inline_bytes = 4096;     ///< largest Send
  std::uint32_t credits_requested = 64;  ///< constant in every call (V1-040)
  std::uint32_t windows = 512;           ///< memory windows for all requests
  /// For Long Calls and Reply chunks. A call that has both needs two.
  std::uint32_t long_buffers = 8;
  std::uint32_t long_buffer_bytes = 128 * 1024;
  std::uint32_t max_segment_bytes = 1u << 30;  ///< registration limit: longer pieces become several segments
  /// For peers that take one segment in a chunk only (F-03): items in several pieces go through a bounce
  /// buffer.
  bool single_segment_chunks = false;
  /// For old responders that want room for XDR round-up in Write chunks (V1-103): items of other lengths go
  /// through a bounce buffer.
  bool round_up_write_chunks = false;
  std::uint32_t bounce_buffers = 0;  ///< needed by the two above: one for each call that is so treated
  std::uint32_t bounce_buffer_bytes = 1u << 20;
  /// Debugging: the caller must not change arguments while the responder may read them (V1-141). Sums them
  /// when they are exposed and when they are not any more; a difference is counted in exposed_memory_changed.
  bool check_exposed_memory = false;
  bool reverse = false;  ///< calls of the side that did not open the connection: no chunks in version 1
  bool reverse_chunks = false;  ///< version 2: such calls may have chunks, if the peer takes them (V2-135)
  /// Version 2: calls and replies up to this size are continued rather than moved by chunks.
  std::uint32_t continue_up_to = 16 * 1024;
  /// Calls keep the XIDs that they come with, for callers whose XIDs are signed, or mean something to the
  /// responder. No two outstanding ones may have the same.
  bool keep_xids = false;
  /// Version 1: the last credit of several is kept for Request::urgent.
  bool spare_credit = false;
  bool remote_invalidation = true;  ///< version 2: name a handle that the responder may invalidate
};

}  // namespace sluice::rpcrdma
