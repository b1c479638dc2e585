// SPDX-License-Identifier: Apache-2.0
//
// The requester role: RPC calls over one connection at a time, kept across a reconnect (RFC 8166; rows V1-040
// to V1-069, V1-090 to V1-130, V1-138 to V1-174). One reactor, or the one thread of a client.
//
// A call waits in order for a credit, memory windows and long-message memory; it never goes out without them
// (V1-056). Its chunk memory is fenced before its completion is called, whatever the outcome (V1-140,
// V1-142).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/base/intrusive_queue.h"
#include "dataplane/rpcrdma/link/config.h"
#include "dataplane/rpcrdma/link/counters.h"
#include "dataplane/rpcrdma/wire/v1.h"
#include "dataplane/rpcrdma/wire/v2.h"
#include "dataplane/service/api/service.h"
#include "pmd/buffer_pool.h"

namespace sluice::rpcrdma {

class Connection;
class Requester;
struct ReceivedMessage;
struct Shared;

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
  v2::Error error_;
  bool version_2_ = false;
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
  std::uint64_t deadline_ns = 0;  ///< Shared::now_ns at which it ends as TimedOut; zero: never
  Completion completion = nullptr;
  void* context = nullptr;
};

struct RequesterConfig {
  std::uint32_t requests = 128;          ///< request slots: calls queued and outstanding; a power of two
  std::uint32_t inline_bytes = 4096;     ///< largest Send
  std::uint32_t credits_requested = 64;  ///< constant in every call (V1-040)
  std::uint32_t windows = 512;           ///< memory windows for all requests
  std::uint32_t long_buffers = 8;        ///< for Long Calls and Reply chunks
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
  bool remote_invalidation = true;  ///< version 2: name a handle that the responder may invalidate
};

class Requester {
 public:
  /// Setup.
  Requester(Shared& shared, rdma::Device& device, const RequesterConfig& config);
  ~Requester();
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  /// Takes a call. Nothing when all request slots are in use. The completion comes later, never from within
  /// submit(), except for CallStatus::TooLarge, which comes at once.
  std::optional<rpc::Xid> submit(const Request& request) noexcept;
  /// Ends a call early: its completion comes as Cancelled once its memory is fenced. False when it has ended.
  bool cancel(rpc::Xid xid) noexcept;
  /// Ends all calls.
  void cancel_all() noexcept;
  /// Reverse direction: a whole RPC message; see service::Client::call_back().
  bool call_back(std::span<const std::byte> call, service::Client::CallBackDone done, void* context) noexcept;
  /// Reverse direction: calls wait until the peer's upper layer said it is ready (V1-170).
  void set_peer_ready(bool ready) noexcept;
  /// Ends calls whose deadline has passed. Linear in the request slots: once in a while.
  void expire(std::uint64_t now_ns) noexcept;

  std::uint32_t outstanding() const noexcept { return outstanding_; }
  /// With those of calls that were given up.
  std::uint32_t awaited_replies() const noexcept { return outstanding_ + abandoned_; }
  std::uint32_t free_requests() const noexcept { return free_count_; }
  Credits granted() const noexcept { return static_cast<Credits>(granted_); }
  bool is_outstanding(rpc::Xid xid) const noexcept;
  bool connected() const noexcept { return connection_ != nullptr && established_; }
  /// To a connection, be it established, on its way or ending.
  bool attached() const noexcept { return connection_ != nullptr; }
  std::uint32_t reconnects() const noexcept { return attachments_ > 0 ? attachments_ - 1 : 0; }

  // From the connection.
  void attach(Connection& connection) noexcept;
  void on_established() noexcept;
  /// The queue pair is gone and with it all remote access: pending calls will be sent again (V1-152, V1-153).
  void detach() noexcept;
  bool quiescent() const noexcept { return posted_ == 0; }
  void on_reply(const ReceivedMessage& message) noexcept;
  void on_error(const v1::Header& header) noexcept;
  void on_error(rpc::Xid xid, const v2::Error& error) noexcept;
  /// The connection goes on with version 1: what was sent in version 2 is sent again.
  void on_fallback() noexcept;
  void on_part_sent(std::uint16_t slot) noexcept;
  void on_unusable(rpc::Xid xid) noexcept;
  void on_call_sent(std::uint16_t slot) noexcept;
  void on_invalidated(std::uint16_t slot) noexcept;
  void on_invalidation_failed(std::uint16_t slot) noexcept;
  /// Sends what credits and memory allow.
  void pump() noexcept;

 private:
  /// A result whose Write chunk is in the bounce buffer, and the caller's pieces that it belongs to.
  struct Bounced {
    std::byte* from = nullptr;  ///< null: it is not bounced
    std::uint8_t first_piece = 0;
    std::uint8_t pieces = 0;
  };

  struct Slot {
    enum class State : std::uint8_t {
      Free,
      Waiting,      ///< for a credit, windows, memory, room in the send queue, or a connection
      Outstanding,  ///< sent; waits for its reply
      Fencing,      ///< ended; waits for the invalidation of its windows
      Draining,     ///< completed; waits for the completion of its Send before the buffer is used again
      Resending,    ///< refused, to be sent in another shape: waits until its memory is fenced and its Send
                    ///< complete
    };
    State state = State::Free;
    bool send_posted = false;
    bool fence_unposted = false;  ///< Fencing, but its invalidations wait for room in the send queue
    bool fence_failed = false;
    bool fencing = false;  ///< its invalidations are not complete
    bool holds_receive = false;
    bool force_long = false;
    bool force_reply_chunk = false;
    bool repeatable = false;
    bool resent = false;            ///< once is enough (V2-105, V2-114)
    bool unreduced = false;         ///< its arguments go in the payload: the responder takes no Read chunks
    bool whole = false;             ///< they have been put there
    bool sent_no_msg = false;       ///< as RDMA2_NOMSG
    bool results_in_reply = false;  ///< no Write chunks: the responder fills none
    bool in_sequence = false;       ///< some of its parts have gone out
    bool cancelled = false;         ///< in the middle of its parts, or Resending: it ends when that is over
    bool answered = false;          ///< in the middle of its parts, and its caller knows
    CallStatus cancelled_as = CallStatus::Cancelled;
    std::uint16_t index = 0;
    std::uint16_t receive = 0;
    rpc::Xid xid{};
    std::uint32_t payload_bytes = 0;
    std::uint32_t max_reply_bytes = 0;
    std::uint64_t deadline_ns = 0;
    std::uint64_t sequence = 0;  ///< of submission: the order in which pending calls are sent again
    Completion completion = nullptr;
    void* context = nullptr;
    service::Client::CallBackDone call_back_done = nullptr;  ///< with its own context
    void* call_back_context = nullptr;
    std::byte* send_buffer = nullptr;   ///< header room of inline_bytes, then the payload
    std::byte* call_memory = nullptr;   ///< payload that is longer than a Send
    std::byte* reply_memory = nullptr;  ///< Reply chunk
    std::byte* assembly = nullptr;      ///< continued reply, in Shared::assembly_memory
    std::uint64_t continued_bytes = 0;  ///< of the payload, sent in parts
    std::uint32_t parts_posted = 0;
    std::uint32_t reply_chunk_least = 0;             ///< asked for by the responder
    std::uint32_t max_segments = ~std::uint32_t{0};  ///< asked for by the responder
    rdma::Rkey invalidate{};                         ///< handle that the responder may invalidate
    bool invalidated = false;                        ///< it has
    std::byte* bounce_memory = nullptr;
    std::uint32_t bounce_used = 0;
    std::uint64_t exposed_sum = 0;  ///< check_exposed_memory
    std::uint8_t read_items = 0;
    std::uint8_t write_items = 0;
    std::uint8_t piece_count = 0;
    std::uint16_t window_count = 0;
    std::uint32_t reply_chunk_bytes = 0;
    std::array<Position, kMaxReadItems> read_positions;
    std::array<std::uint8_t, kMaxReadItems> read_pieces;  ///< pieces per item
    std::array<std::uint8_t, kMaxWriteItems> write_pieces;
    std::array<std::uint32_t, kMaxWriteItems> write_offers;  ///< bytes per write item
    std::array<rdma::Sge, kMaxRequestPieces> pieces;         ///< of reads, then of writes
    std::array<rdma::MemoryWindow, kMaxRequestSegments> windows;
    std::array<Segment, kMaxRequestSegments> segments;  ///< as offered: reads, position zero, writes, reply
    std::array<std::uint8_t, kMaxWriteItems> write_segments;  ///< segments per write item
    std::uint16_t first_write_segment = 0;
    std::uint16_t segment_count = 0;
    std::array<std::uint64_t, kMaxWriteItems> returned;
    std::array<Bounced, kMaxWriteItems> bounced;
    std::array<rdma::Sge, kMaxRequestPieces> callers_pieces;  ///< of bounced results
    std::uint8_t callers_piece_count = 0;
    Reply reply;
    QueueLink<Slot> link;  ///< of the one queue it is in
  };

  using SlotQueue = IntrusiveQueue<Slot, &Slot::link>;

  /// What a call looks like on the wire, given the connection's thresholds.
  struct Shape {
    bool long_call = false;
    bool continued = false;
    std::uint32_t reply_chunk_bytes = 0;  ///< zero: none
    std::uint32_t segments = 0;
    std::size_t header_bytes = 0;
    bool possible = false;
  };

  Slot& slot_of(rpc::Xid xid) noexcept;
  Slot* find(rpc::Xid xid) noexcept;
  rdma::Sge payload_of(const Slot& slot) const noexcept;
  bool copy_request(Slot& slot, const Request& request) noexcept;
  bool copy_pieces(Slot& slot, std::span<const rdma::Sge> pieces) noexcept;
  bool needs_bounce(const Request& request) const noexcept;
  bool result_needs_bounce(std::span<const rdma::Sge> pieces) const noexcept;
  bool bounce_argument(Slot& slot, std::span<const rdma::Sge> pieces) noexcept;
  bool bounce_result(Slot& slot, std::uint32_t item, std::span<const rdma::Sge> pieces) noexcept;
  std::byte* bounce_room(Slot& slot, std::uint64_t bytes) noexcept;
  void return_bounced(Slot& slot) noexcept;
  std::uint64_t sum_arguments(const Slot& slot) const noexcept;
  Shape shape_of(const Slot& slot) const noexcept;
  Shape shape_v1(const Slot& slot) const noexcept;
  Shape shape_v2(const Slot& slot) const noexcept;
  Shape shape_v2(const Slot& slot, bool long_call, bool reply_chunk) const noexcept;
  /// Of the first `bytes` of some pieces.
  std::uint32_t segments_of(std::span<const rdma::Sge> pieces,
                            std::uint64_t bytes = ~std::uint64_t{0}) const noexcept;
  std::uint32_t segments_of(std::uint64_t bytes) const noexcept;
  std::uint32_t max_segment_bytes() const noexcept;
  bool version_2() const noexcept;
  bool may_send(const Slot& slot) noexcept;
  bool send(Slot& slot) noexcept;
  bool take_resources(Slot& slot, const Shape& shape) noexcept;
  bool expose(Slot& slot, std::span<const rdma::Sge> pieces, std::uint64_t bytes,
              rdma::AccessFlags access) noexcept;
  bool stage_send(Slot& slot, const Shape& shape) noexcept;
  bool stage_send(Slot& slot, const Shape& shape, const CallChunks& chunks) noexcept;
  bool check_returned_chunks(Slot& slot, const MessageHeader& header) noexcept;
  bool stage_parts(Slot& slot, const Shape& shape) noexcept;
  bool give_up(Slot& slot, CallStatus status) noexcept;
  bool refuse_in_parts(rpc::Xid xid, const v2::Error& error) noexcept;
  bool replan(Slot& slot, const v2::Error& error) noexcept;
  bool unreduce(Slot& slot) noexcept;
  void resend(Slot& slot) noexcept;
  void requeue(Slot& slot) noexcept;
  std::uint32_t fenced_by_us(const Slot& slot) const noexcept;
  void set_outcome(Slot& slot, CallStatus status) noexcept;
  void end_call(Slot& slot, CallStatus status) noexcept;
  void fence(Slot& slot) noexcept;
  void deliver(Slot& slot) noexcept;
  void free_windows(Slot& slot) noexcept;
  void recycle(Slot& slot) noexcept;

  Shared& shared_;
  const RequesterConfig config_;
  Counters& counters() noexcept;
  Connection* connection_ = nullptr;
  bool established_ = false;
  bool peer_ready_ = true;
  std::uint32_t attachments_ = 0;
  bool no_msg_refused_ = false;  ///< version 2: the responder does not know RDMA2_NOMSG
  std::uint32_t granted_ = 1;    ///< version 1: of the latest reply; one on a new connection (V1-046)
  std::uint32_t outstanding_ = 0;
  std::uint32_t abandoned_ = 0;  ///< ended by us, but the responder may still answer: they hold their credit
  std::uint32_t held_receives_ = 0;  ///< by calls that are being fenced
  std::uint64_t sequence_ = 0;
  std::uint32_t posted_ = 0;  ///< signaled work requests that are out
  std::uint32_t free_count_ = 0;
  std::uint32_t xid_sequence_;
  std::vector<rpc::Xid> xids_;  ///< by slot; keep_xids
  rdma::MemoryRegion send_region_;
  rdma::BufferPool long_memory_;
  rdma::BufferPool bounce_memory_;
  std::vector<rdma::MemoryWindow> windows_;  ///< free ones
  std::size_t free_windows_ = 0;
  std::unique_ptr<Slot[]> slots_;
  SlotQueue free_;
  SlotQueue waiting_;
  SlotQueue unfenced_;              ///< Fencing, waiting for room in the send queue
  std::vector<Slot*> by_sequence_;  ///< scratch of detach()
};

}  // namespace sluice::rpcrdma
