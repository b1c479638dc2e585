// SPDX-License-Identifier: Apache-2.0
//
// The requester role: RPC calls over one connection at a time, preserved across reconnects (RFC 8166; rows
// V1-040 to V1-069, V1-090 to V1-130, V1-138 to V1-174). Confined to one reactor, or to the thread of a
// client.
//
// Calls wait in order for a credit, memory windows and long-message memory, and are never sent without them
// (V1-056). The chunk memory of a call is fenced before its completion is called, regardless of the outcome
// (V1-140, V1-142).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/link/received_message.h"
#include "dataplane/rpcrdma/requester/request.h"
#include "dataplane/rpcrdma/requester/slot.h"
#include "dataplane/rpcrdma/v2/session.h"
#include "dataplane/rpcrdma/wire/v1.h"
#include "pmd/buffer_pool.h"
#include "pmd/memory.h"

#include "dataplane/base/invariant.h"

namespace sluice::rpcrdma {

/// Tracks which Sends of a requester are complete. A queue pair completes Sends in posting order, and a
/// completion covers all preceding unsignaled Sends. Each Send therefore has a number, and most completions
/// touch no slot. Confined to one reactor, or to the thread of a client.
class SendOrder {
 public:
  /// Called at setup. `slots`, a power of two, have at most one outstanding Send each.
  explicit SendOrder(std::uint32_t slots) : slots_(slots) {}

  /// Adds the next Send, which belongs to `slot`. Returns its number.
  std::uint64_t add(std::uint16_t slot) noexcept {
    SLUICE_INVARIANT_DEBUG(added_ - done_ < slots_.size() && slot < slots_.size(), ring_index);
    slots_[++added_ & (slots_.size() - 1)] = slot;
    return added_;
  }
  bool is_done(std::uint64_t number) const noexcept { return number <= done_; }
  bool all_done() const noexcept { return done_ == added_; }
  /// Called when a slot waits only for the completion of its Send.
  void await() noexcept {
    SLUICE_INVARIANT_DEBUG(awaiting_ < slots_.size(), pool_balance);
    ++awaiting_;
  }

  /// Completes the Send with this number and all Sends before it. If any slot waits, `ended` is called with
  /// the slots of the newly completed Sends and returns true if its slot was waiting.
  template <typename Ended>
  void complete(std::uint64_t number, const Ended& ended) noexcept {
    SLUICE_INVARIANT_DEBUG(number <= added_, ring_index);
    while (awaiting_ > 0 && done_ < number) {
      ++done_;
      if (ended(slots_[done_ & (slots_.size() - 1)])) --awaiting_;
    }
    if (done_ < number) done_ = number;
  }

 private:
  std::uint64_t added_ = 0;
  std::uint64_t done_ = 0;
  std::uint32_t awaiting_ = 0;
  std::vector<std::uint16_t> slots_;  ///< indexed by number
};

/// Resources that a requester shares with the connections of its engine; see Engine::requester_context(). The
/// engine must outlive the requester.
class RequesterContext {
 public:
  explicit RequesterContext(LinkContext& links) noexcept : links_(&links) {}

 private:
  friend class Requester;
  LinkContext* links_;
};

class Requester {
 public:
  /// Called at setup.
  Requester(RequesterContext context, rdma::Device& device, const RequesterConfig& config);
  ~Requester();
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  /// Submits a call. Returns nothing if all request slots are in use. The completion is called later, never
  /// from within submit(), except for CallStatus::TooLarge, which is reported immediately.
  SubmittedXid submit(const Request& request) noexcept;
  /// Cancels a call: its completion is called with Cancelled once its memory is fenced. Returns false if the
  /// call has already ended.
  bool cancel(rpc::Xid xid) noexcept;
  /// Cancels all calls.
  void cancel_all() noexcept;
  /// Sends a call in the reverse direction from a complete RPC message; see service::Client::call_back().
  bool call_back(std::span<const std::byte> call, service::Client::CallBackDone done, void* context) noexcept;
  /// Holds calls of the reverse direction until the peer's upper layer is ready (V1-170).
  void set_peer_ready(bool ready) noexcept;
  /// Keeps the memory of a reply, called within its completion. If the reply arrived in the Reply chunk,
  /// returns its memory, which stays unchanged until release_reply(). Otherwise returns null, and message()
  /// is valid during the completion only.
  std::byte* keep_reply(const Reply& reply) noexcept;
  /// Returns the memory key of a result of keep_reply().
  rdma::Lkey kept_reply_lkey(const std::byte* memory) const noexcept { return reply_pool(memory).lkey(); }
  void release_reply(std::byte* memory) noexcept { reply_pool(memory).release(memory); }
  /// Ends calls whose deadline has passed. Linear in the request slots, so call it at a low rate.
  void expire(std::uint64_t now_ns) noexcept;

  /// Returns the protection domain for its queue pairs.
  rdma::ProtectionDomain domain() const noexcept { return config_.domain; }
  std::uint32_t outstanding() const noexcept { return outstanding_; }
  /// Returns the number of awaited replies, including those to abandoned calls.
  std::uint32_t awaited_replies() const noexcept { return outstanding_ + abandoned_; }
  std::uint32_t free_requests() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  /// Returns the credits granted by the latest reply; in version 2 the peer's limit.
  Credits granted() const noexcept;
  bool is_outstanding(rpc::Xid xid) const noexcept;
  bool connected() const noexcept { return established_; }
  /// Returns true if every request slot, window and buffer has been returned. For tests; requires that no
  /// call is in progress.
  bool balanced() const noexcept;
  /// Returns true if attached to a connection that is being established, open, or draining.
  bool attached() const noexcept { return link_ != nullptr; }
  std::uint32_t reconnects() const noexcept { return attachments_ > 0 ? attachments_ - 1 : 0; }

  // Called by the connection.
  void attach(Link& link, v2::Session& session) noexcept;
  void on_established() noexcept;
  /// Called when the queue pair has been destroyed, which ends all remote access. Pending calls will be sent
  /// again (V1-152, V1-153).
  void detach() noexcept;
  bool quiescent() const noexcept { return posted_ == 0 && sends_.all_done(); }
  void on_reply(const ReceivedMessage& message) noexcept;
  /// Returns the call that a reply belongs to if both are plain: a reply without chunks or invalidation,
  /// whose RPC message has the XID of its header. Returns null if the reply must be handled by on_reply().
  RequestSlot* plain_call_of(std::span<const std::byte> message, std::size_t header_bytes) noexcept {
    const std::uint32_t xid = xdr::load_u32(message.data());
    // A plain call never has an XID chosen by its caller.
    RequestSlot& slot = slots_[xid & (config_.requests - 1)];
    const bool is_its = slot.plain && slot.state == RequestSlot::State::AwaitingReply &&
                        static_cast<std::uint32_t>(slot.xid) == xid;
    return is_its && message.size() >= header_bytes + rpc::kMinDeniedReplyBytes ? &slot : nullptr;
  }
  template <std::uint32_t kVersion>
  void take_plain_reply(RequestSlot& slot, std::uint16_t buffer, std::span<const std::byte> message) noexcept;
  void on_error(const v1::Header& header) noexcept;
  void on_error(rpc::Xid xid, const v2::Error& error) noexcept;
  /// Continues with version 1 and sends calls of version 2 again.
  void on_fallback() noexcept;
  void on_part_sent(std::uint16_t slot) noexcept;
  void on_unusable(rpc::Xid xid) noexcept;
  void on_call_sent(std::uint16_t slot) noexcept;
  void on_invalidated(std::uint16_t slot) noexcept;
  void on_invalidation_failed(std::uint16_t slot) noexcept;
  // Only on a device without memory windows. `slot` is kNoWr for the pool.
  void on_registered(std::uint16_t slot, rdma::Rkey rkey) noexcept;
  void on_registration_failed(std::uint16_t slot) noexcept;
  /// Sends waiting calls, as far as credits and memory allow.
  void pump() noexcept {
    if (!waiting_.empty() || !unfenced_.empty()) send_waiting();
  }

 private:
  using Slot = RequestSlot;

  /// Form of a call on the wire, given the connection's thresholds.
  struct Shape {
    bool long_call = false;
    bool continued = false;
    std::uint32_t reply_chunk_bytes = 0;  ///< zero: none
    std::uint32_t segments = 0;
    std::size_t header_bytes = 0;
    bool possible = false;
    bool plain = false;  ///< the common call: no chunks, and one Send for the call and one for its reply
    bool version_2 = false;
  };

  void transition(Slot& slot, Slot::State to) noexcept;
  template <Slot::State kFrom, Slot::State kTo>
  void step(Slot& slot) noexcept;
  Slot& slot_of(rpc::Xid xid) noexcept;
  Slot* find(rpc::Xid xid) noexcept;
  rdma::Sge payload_of(const Slot& slot) const noexcept;
  bool copy_request(Slot& slot, const Request& request) noexcept;
  bool copy_pieces(Slot& slot, std::span<const rdma::Sge> pieces) noexcept;
  bool needs_bounce(const Request& request) const noexcept {
    return (config_.single_segment_chunks || config_.round_up_write_chunks) && any_bounces(request);
  }
  bool any_bounces(const Request& request) const noexcept;
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
  /// Returns the number of segments for the first `bytes` of some pieces.
  std::uint32_t segments_of(std::span<const rdma::Sge> pieces,
                            std::uint64_t bytes = ~std::uint64_t{0}) const noexcept;
  std::uint32_t segments_of(std::uint64_t bytes) const noexcept;
  std::uint32_t take_read_segments(const Slot& slot, std::span<const rdma::Sge>& pieces) const noexcept;
  std::uint32_t max_segment_bytes() const noexcept;
  bool may_send(const Slot& slot) noexcept;
  bool send(Slot& slot) noexcept;
  void on_sent(Slot& slot, const Shape& shape) noexcept;
  bool take_resources(Slot& slot, const Shape& shape) noexcept;
  bool expose(Slot& slot, std::span<const rdma::Sge> pieces, std::uint64_t bytes,
              rdma::AccessFlags access) noexcept;
  // On a device without memory windows.
  bool register_segments(Slot& slot, const Shape& shape) noexcept;
  bool expose_segment(Slot& slot, const rdma::Sge& piece, rdma::AccessFlags access) noexcept;
  bool expose_in_pool(Slot& slot, const rdma::Sge& piece, rdma::AccessFlags access) noexcept;
  void request_pool_key() noexcept;
  bool end_outdated(Slot& slot) noexcept;
  void deregister(Slot& slot) noexcept;
  void take_from_pool(Slot& slot) noexcept;
  void return_to_pool(Slot& slot) noexcept;
  bool bind(Slot& slot, const rdma::Sge& piece, rdma::AccessFlags access) noexcept;
  void send_waiting() noexcept;
  template <std::uint32_t kVersion>
  bool fits_plain(std::size_t payload_bytes, std::uint32_t max_reply_bytes) const noexcept;
  template <std::uint32_t kVersion>
  bool is_plain(const Slot& slot) const noexcept;
  bool is_plain_and_ready(const Request& request) const noexcept;
  template <std::uint32_t kVersion>
  bool sends_at_once(const Request& request) noexcept;
  template <std::uint32_t kVersion>
  SubmittedXid submit_plain(const Request& request) noexcept;
  Slot& take_slot(const Request& request, std::uint16_t index) noexcept;
  std::uint32_t long_buffers_for_first() const noexcept;
  bool has_buffers_for(const Slot& slot, const Shape& shape) const noexcept;
  /// Returns the pool that `memory`, of a Reply chunk, is of.
  const rdma::BufferPool& reply_pool(const std::byte* memory) const noexcept {
    return short_replies_.contains(memory) ? short_replies_ : long_memory_;
  }
  rdma::BufferPool& reply_pool(const std::byte* memory) noexcept {
    return short_replies_.contains(memory) ? short_replies_ : long_memory_;
  }
  bool take_reply_memory(Slot& slot, std::uint32_t bytes) noexcept;
  SubmittedXid submit_other(const Request& request) noexcept;
  bool has_credit(bool urgent) const noexcept;
  void set_sent(Slot& slot, std::uint16_t index) noexcept;
  void stage_plain_send(Slot& slot, std::uint16_t index, bool version_2) noexcept;
  /// Returns the send buffer of a slot: room for a header that ends at inline_bytes, followed by the payload.
  std::byte* send_buffer(std::uint16_t index) const noexcept {
    return send_region_.bytes.data() + std::size_t{send_stride_} * index;
  }
  void end_delivery(Slot& slot, std::uint16_t receive) noexcept;
  void clear(Slot& slot) noexcept;
  void count_send(v2::CreditWord credit) noexcept;
  bool stage_send(Slot& slot, const Shape& shape) noexcept;
  bool stage_send(Slot& slot, const Shape& shape, const CallChunks& chunks) noexcept;
  void on_unknown_xid() noexcept;
  bool check_returned_chunks(Slot& slot, const MessageHeader& header) noexcept;
  bool stage_parts(Slot& slot, const Shape& shape) noexcept;
  bool give_up(Slot& slot, CallStatus status) noexcept;
  bool refuse_in_parts(rpc::Xid xid, const v2::Error& error) noexcept;
  bool replan(Slot& slot, const v2::Error& error) noexcept;
  std::uint64_t unreduced_bytes(const Slot& slot) const noexcept;
  bool unreduce(Slot& slot) noexcept;
  void resend(Slot& slot) noexcept;
  void requeue(Slot& slot) noexcept;
  std::uint32_t fenced_by_us(const Slot& slot) const noexcept;
  void set_outcome(Slot& slot, CallStatus status) noexcept;
  void end_call(Slot& slot, CallStatus status) noexcept;
  void fence(Slot& slot) noexcept;
  void deliver(Slot& slot) noexcept;
  bool end_send(std::uint16_t index) noexcept;
  bool send_done(const Slot& slot) const noexcept { return sends_.is_done(slot.send_number); }
  void free_windows(Slot& slot) noexcept;
  void recycle(Slot& slot) noexcept;
  void forget_refusal(Slot& slot) noexcept;
  void detach(Slot& slot) noexcept;

  LinkContext& context_;
  const RequesterConfig config_;
  /// True if the configurations of the requester and its connection allow plain calls: the requester chooses
  /// XIDs, and a Send has room for the header.
  bool plain_calls_ = false;
  Counters& counters() noexcept;
  Link* link_ = nullptr;      ///< null: calls wait for a connection
  bool established_ = false;  ///< valid only with a link
  bool peer_ready_ = true;
  std::uint32_t attachments_ = 0;
  bool no_msg_refused_ = false;  ///< version 2: the responder does not support RDMA2_NOMSG
  std::uint32_t granted_ = 1;    ///< version 1: credits of the latest reply; one on a new connection (V1-046)
  std::uint32_t outstanding_ = 0;
  /// Calls that this end has abandoned but the responder may still answer. They hold their credit.
  std::uint32_t abandoned_ = 0;
  std::uint32_t held_receives_ = 0;  ///< Receives held by calls that are being fenced
  std::uint64_t sequence_ = 0;
  SendOrder sends_;           ///< Sends of whole calls, or of their last parts
  std::uint32_t posted_ = 0;  ///< outstanding signaled work requests, without those in sends_
  std::uint32_t xid_sequence_;
  std::vector<rpc::Xid> xids_;       ///< indexed by slot; used with keep_xids
  const std::uint32_t send_stride_;  ///< bytes from one send buffer to the next
  rdma::MemoryRegion send_region_;
  Reply plain_reply_;  ///< reply to the plain call that is being delivered
  rdma::BufferPool long_memory_;
  rdma::BufferPool short_replies_;
  rdma::BufferPool bounce_memory_;
  /// True on a device without memory windows: regions are registered instead, and windows_ has their numbers.
  const bool by_regions_;
  rdma::MemoryRegion pool_region_;
  rdma::BufferPool pool_;  ///< buffers that the peer can access, of pool_region_
  rdma::MemoryWindow pool_window_;
  enum class PoolState : std::uint8_t { Inaccessible, Registering, Accessible };
  PoolState pool_state_ = PoolState::Inaccessible;  ///< of the current connection
  rdma::Rkey pool_key_{};
  std::vector<rdma::MemoryWindow> windows_;  ///< the first free_windows_ are free
  std::size_t free_windows_ = 0;
  FixedArray<ChunkArrays> chunk_arrays_;
  FixedArray<RegionArrays> region_arrays_;
  FixedArray<Slot> slots_;
  FixedStack<std::uint16_t> free_;  ///< indices of free slots
  RequestQueue waiting_;
  RequestQueue unfenced_;           ///< calls in AwaitingFenceRoom
  v2::Session* session_ = nullptr;  ///< version 2 on link_; null without a link
  std::vector<Slot*> by_sequence_;  ///< scratch space of detach()
};

}  // namespace sluice::rpcrdma
