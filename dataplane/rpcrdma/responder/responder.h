// SPDX-License-Identifier: Apache-2.0
//
// The responder role of one connection: its call slots, and the state machine that processes calls in them
// (RFC 8166; rows V1-022 to V1-060, V1-080 to V1-130). Confined to one reactor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/fixed_containers.h"
#include "dataplane/base/intrusive_lists.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/responder/responder_context.h"
#include "dataplane/rpcrdma/v2/session.h"

namespace sluice::rpcrdma {

class alignas(kCacheLine) Responder final : private service::CallHost {
 public:
  /// Called at setup. `reply_region` holds capacity.slots() buffers of capacity.reply_buffer_bytes,
  /// buffer_stride() apart. `client` represents the peer to services.
  Responder(ResponderContext& context, Link& link, v2::Session& session, service::Client& client,
            const ConnectionCapacity& capacity, rdma::MemoryRegion reply_region);

  /// Starts a connection. `grant` calls may be outstanding, limited by the number of slots. With `hold_calls`
  /// they wait until set_holding(false) because the peer must authenticate itself first (V2-062).
  /// `sole_service` is ConnectionConfig::sole_service.
  void open(std::uint32_t grant, bool hold_calls, service::Service* sole_service) noexcept;
  bool holds_calls() const noexcept { return holds_calls_; }
  void set_holding(bool holds_calls) noexcept { holds_calls_ = holds_calls; }
  std::uint32_t slot_count() const noexcept { return open_slots_; }
  Credits grant() const noexcept { return static_cast<Credits>(grant_); }
  /// Sets the grant, clamped to between 1 and the number of slots. It takes effect with the next reply, and
  /// calls in flight stay valid (V1-048).
  void set_grant(std::uint32_t grant) noexcept;
  /// Returns the number of calls received since open().
  std::uint64_t calls() const noexcept { return calls_; }
  /// Returns the maximum number of busy slots since the previous call of this function.
  std::uint32_t take_peak() noexcept { return std::exchange(peak_busy_, busy_); }
  /// Enables recording of calls in CallMeasurement::trace, starting with the next call that begins.
  void set_traced(bool traced) noexcept;
  bool traced() const noexcept { return traced_; }
  std::uint32_t busy_slots() const noexcept { return busy_; }
  /// Returns the number of calls replied to since open(); served_ns() is their total duration.
  std::uint64_t served() const noexcept { return served_; }
  std::uint64_t served_ns() const noexcept { return served_ns_; }
  struct OldestCall {
    CallSlot::State state = CallSlot::State::Free;  ///< Free: there is no call
    std::uint64_t begun_ns = 0;
  };
  /// Returns the oldest call in a slot as of the last complete round of tick(). oldest_call_age_ns() is its
  /// age in ns.
  const OldestCall& oldest_call() const noexcept { return oldest_; }
  std::uint64_t oldest_call_age_ns() const noexcept {
    return oldest_.state != CallSlot::State::Free ? turn_ns() - oldest_.begun_ns : 0;
  }
  /// Returns the bytes of shared memory that the responder holds.
  std::uint64_t shared_bytes() const noexcept {
    return context_.memory.calls.held_bytes(call_account_) +
           context_.memory.replies.held_bytes(reply_account_);
  }

  /// Returns the message into which the next received message is decoded, in the call slot that will be used
  /// next. The caller may use it until on_call(), or until the next message.
  ReceivedMessage& next_message() noexcept { return free_.empty() ? context_.message : free_.top().message_; }
  /// Handles a plain call: a whole call without chunks, with equal XIDs in both headers. Takes over its
  /// Receive buffer, which has the index `buffer`.
  template <std::uint32_t kVersion>
  void on_plain_call(std::uint16_t buffer, std::span<const std::byte> bytes) noexcept;
  /// Handles a call, or a message to be refused. Takes over the Receive buffer and the assembled payload.
  void on_call(const ReceivedMessage& message, const Refusal& refusal) noexcept;
  /// Checks the next slots, round robin. Closes the link if a call waits too long for the peer, and finds the
  /// oldest call.
  void tick() noexcept;
  /// Serves calls that were waiting for a slot or for admission.
  void serve_pending() noexcept;

  void on_reads_done(std::uint16_t slot) noexcept;
  void on_reply_sent(std::uint16_t slot) noexcept;
  /// Handles the completion of a part of a continued reply in version 2, including a flushed one.
  void on_part_sent(std::uint16_t slot) noexcept;
  /// Handles a failed or flushed work request of a slot. `last` is true for the request that ends the set.
  void on_failed(std::uint16_t slot, bool last) noexcept;
  /// Records that the peer's memory refused an RDMA Read or Write of this slot; a retransmission of the call
  /// will be refused (V1-039).
  void note_failed_transfer(std::uint16_t slot) noexcept {
    context_.failed_transfers.add(link_.peer(), slots_[slot].message_.header.fixed.xid,
                                  link_.context().now_ns());
  }

  /// Retries slots that were waiting for room in the send queue or for credits.
  void retry_send_room() noexcept;
  /// Continues a slot that was waiting for memory and has been removed from its queue.
  void resume(CallSlot& slot) noexcept { advance(slot); }

  /// Called when the connection is closed: abandons all waiting calls. Slots that have posted work requests
  /// or that a service is using become free later.
  void on_connection_lost() noexcept;
  bool quiescent() const noexcept { return posted_ == 0; }
  bool idle() const noexcept { return busy_ == 0; }

 private:
  struct ReplyPlan;

  void set_state(CallSlot& slot, CallSlot::State state) noexcept;
  template <CallSlot::State kFrom, CallSlot::State... kNext>
  void step(CallSlot& slot) noexcept;
  void count_state(CallSlot& slot) noexcept;
  void look_for_oldest(const CallSlot& slot) noexcept;
  bool is_stalled(const CallSlot& slot, std::uint64_t now_ns) const noexcept;
  /// Returns the time of the iteration without reading the clock. Between completions it is the time of the
  /// last control pass.
  std::uint64_t turn_ns() const noexcept {
    return larger_of(context_.measurement.times.turn_ns(), link_.context().now_ns());
  }
  void note_state(CallSlot& slot) noexcept;
  [[gnu::cold]] void add_state_time(CallSlot& slot, std::uint64_t now_ns) noexcept;
  [[gnu::cold]] void note_end(CallSlot& slot, bool replied, bool slow) noexcept;
  segment::TraceRecord record_of(const CallSlot& slot) const noexcept;
  segment::CallStatus status_of(const CallSlot& slot) const noexcept {
    const bool success = !slot.refusal_ && slot.outcome_ == CallSlot::Outcome::Success;
    return success ? segment::CallStatus::success : failure_of(slot);
  }
  segment::CallStatus failure_of(const CallSlot& slot) const noexcept;

  // Functions for RX, from the Receive buffer to the service.
  void begin(const ReceivedMessage& message, const Refusal& refusal) noexcept;
  CallSlot& take_slot() noexcept;
  void start(CallSlot& slot) noexcept;
  template <std::uint32_t kVersion>
  void begin_plain_call(std::uint16_t buffer, std::span<const std::byte> bytes) noexcept;
  void end_advance(CallSlot& slot) noexcept;
  void advance(CallSlot& slot) noexcept;
  void check_call(CallSlot& slot) noexcept;
  void place_call(CallSlot& slot) noexcept;
  void placed(CallSlot& slot, service::Placement placement) noexcept;
  void await_reply_memory(CallSlot& slot) noexcept;
  bool keep_eligible_chunks(CallSlot& slot) noexcept;
  void close_gaps(CallSlot& slot, const CallLayout& pulled) noexcept;
  void assemble_inline_parts(CallSlot& slot) noexcept;
  /// Stages all RDMA Reads of the call and returns their bytes, or nothing if the stage is full.
  std::optional<std::uint64_t> stage_reads(CallSlot& slot) noexcept;
  void post_reads(CallSlot& slot) noexcept;
  bool xid_agrees(CallSlot& slot, std::span<const std::byte> message) noexcept;
  void dispatch_pulled(CallSlot& slot) noexcept;
  void dispatch_payload(CallSlot& slot) noexcept;
  void dispatch(CallSlot& slot, std::span<const std::byte> message) noexcept;
  bool counts_agree(const CallSlot& slot) const noexcept;
  bool chunks_stand_at_items(const CallSlot& slot) const noexcept;
  bool decode_rpc(CallSlot& slot, xdr::Reader& reader) noexcept;
  template <typename Prepare>
  bool find_service(CallSlot& slot, xdr::Reader& reader, const Prepare& prepare) noexcept;
  void refuse_program(CallSlot& slot) noexcept;
  void enter_service(CallSlot& slot) noexcept;
  void execute(CallSlot& slot) noexcept;
  void run_service(CallSlot& slot) noexcept;
  void refuse(CallSlot& slot, std::uint64_t& counter, const v2::Error& error = kRefuseXdr) noexcept;
  bool within_chunk_limits(CallSlot& slot) noexcept;

  // Functions called by the service.
  void on_complete(service::Call& call, rpc::AcceptStat stat) noexcept override;
  bool on_grow_results(service::Call& call, std::size_t bytes) noexcept override;
  void on_placed(service::Call& call, service::Placement placement) noexcept override;
  void on_await_memory(service::Call& call) noexcept override;
  std::uint64_t reply_room(const service::Call& call) const noexcept override;
  std::optional<rdma::Lkey> message_lkey(const service::Call& call) const noexcept override;
  void on_reply_too_long(service::Call& call, std::uint64_t bytes) noexcept override;
  void advance_completed(CallSlot& slot) noexcept;
  void begin_pushing(CallSlot& slot) noexcept;
  void answer(CallSlot& slot, CallSlot::Outcome outcome) noexcept;

  // Functions for TX, from the results to the Send.
  bool prepare_results(CallSlot& slot) noexcept;
  bool reserve_headroom(CallSlot& slot, std::size_t headroom) noexcept;
  void finish_payload(CallSlot& slot) noexcept;
  void finish_other_payload(CallSlot& slot) noexcept;
  void push_reply(CallSlot& slot) noexcept;
  bool stage_plain_reply(CallSlot& slot, bool version_2) noexcept;
  void push_other_reply(CallSlot& slot) noexcept;
  void return_receive(CallSlot& slot) noexcept;
  void on_reply_staged(CallSlot& slot) noexcept;
  bool reply_will_fit(CallSlot& slot, std::uint64_t results_bytes) noexcept;
  bool plan_reply(CallSlot& slot, ReplyPlan& plan) noexcept;
  void refuse_long_reply(CallSlot& slot, std::uint64_t bytes) noexcept;
  bool choose_mechanism(CallSlot& slot, ReplyPlan& plan, bool pieces_fit) noexcept;
  bool continues_replies() const noexcept;
  bool may_push_now(CallSlot& slot, const ReplyPlan& plan) noexcept;
  std::uint32_t offer_credits(CallSlot& slot) noexcept;
  bool stage_parts(CallSlot& slot, const ReplyPlan& plan) noexcept;
  bool stage_reply(CallSlot& slot, ReplyPlan& plan) noexcept;
  bool may_refuse_now(CallSlot& slot) noexcept;
  bool stage_refusal(CallSlot& slot) noexcept;
  rdma::Rkey handle_to_invalidate(const CallSlot& slot) noexcept;
  bool stage_writes(CallSlot& slot, std::span<const rdma::Sge> sources, const WriteChunk& target) noexcept;
  std::span<const rdma::Sge> payload_sources(CallSlot& slot, const ReplyPlan& plan) noexcept;
  std::span<const rdma::Sge> item_sources(CallSlot& slot, const service::ResultItem& item) noexcept;
  void count_sent(const CallSlot& slot, const ReplyPlan& plan) noexcept;

  /// Queues the slot until the send queue has room for `work_requests`.
  void wait_for_send_room(CallSlot& slot, std::size_t work_requests) noexcept;
  void wait_for_credit(CallSlot& slot) noexcept;
  void abandon(CallSlot& slot) noexcept;
  void finish(CallSlot& slot, bool replied = false) noexcept;
  void let_go(CallSlot& slot, bool replied) noexcept;
  void give_back(CallSlot& slot) noexcept;
  void release_extras(CallSlot& slot) noexcept;
  void release_assembly(CallSlot& slot) noexcept;

  // Members that every call uses come first, as in the link.
  ResponderContext& context_;
  Link& link_;
  FixedArray<CallSlot> slots_;
  CallSlotStack free_;
  std::uint64_t calls_ = 0;
  std::uint64_t served_ = 0;
  std::uint64_t served_ns_ = 0;
  service::Service* sole_service_ = nullptr;
  std::uint32_t busy_ = 0;
  std::uint32_t peak_busy_ = 0;
  std::uint32_t posted_ = 0;    ///< slots with an outstanding signaled work request
  std::uint32_t replying_ = 0;  ///< slots in posted_ that are Replying
  std::uint32_t grant_ = 1;
  rdma::Lkey reply_lkey_;
  bool holds_calls_ = false;
  bool serving_pending_ = false;  ///< serve_pending() is on the stack, so the next call is in order
  bool traced_ = false;
  bool retrying_ = false;  ///< retry_send_room() is on the stack

  /// A message that waits for a slot. A client may send its next call as soon as it has a reply, which can be
  /// before the completion of that reply's Send is handled.
  struct Pending {
    ReceivedMessage message;
    Refusal refusal;
  };
  v2::Session& session_;
  CallSlotQueue waiting_send_room_;
  FixedRing<Pending> pending_;
  service::Client& client_;
  FixedArray<service::CallStorage> storage_;  ///< storage of each slot
  std::uint32_t max_slots_;
  std::uint32_t open_slots_ = 0;
  static constexpr std::uint64_t kSlotRoundNs = 1'000'000'000;
  PacedRound slot_round_{kSlotRoundNs};
  std::uint32_t next_checked_ = 0;  ///< index of a slot
  OldestCall oldest_;
  OldestCall oldest_so_far_;  ///< oldest call of the current round
  SharedMemory::Account call_account_;
  SharedMemory::Account reply_account_;
  ShareAccount refusal_account_;
};

}  // namespace sluice::rpcrdma
