// SPDX-License-Identifier: Apache-2.0
//
// The responder role of one connection: its call slots, and the state machine that takes a call through them
// (RFC 8166; rows V1-022 to V1-060, V1-080 to V1-130). One reactor.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/fixed_array.h"
#include "dataplane/base/fixed_ring.h"
#include "dataplane/base/intrusive_queue.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/paced_round.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/link/link.h"
#include "dataplane/rpcrdma/responder/responder_context.h"

namespace sluice::rpcrdma {

class alignas(kCacheLine) Responder final : private service::CallHost {
 public:
  /// Setup: `reply_region` holds capacity.slots() buffers of capacity.reply_buffer_bytes,
  /// buffer_stride() apart. `client` is the
  /// peer, as services see it.
  Responder(ResponderContext& context, Link& link, service::Client& client,
            const ConnectionCapacity& capacity, rdma::MemoryRegion reply_region);

  /// The connection starts; `grant` calls may be outstanding, at most the slots there are. With `hold_calls`
  /// they wait until set_holding(false): the peer has to show who it is first (V2-062). `sole_service` is that of
  /// ConnectionConfig.
  void open(std::uint32_t grant, bool hold_calls, service::Service* sole_service) noexcept;
  bool holds_calls() const noexcept { return holds_calls_; }
  void set_holding(bool holds_calls) noexcept { holds_calls_ = holds_calls; }
  std::uint32_t slot_count() const noexcept { return open_slots_; }
  Credits grant() const noexcept { return static_cast<Credits>(grant_); }
  /// Takes effect with the next reply; calls in flight stay valid (V1-048). Clamped to 1 and the slots there
  /// are.
  void set_grant(std::uint32_t grant) noexcept;
  /// Calls taken since the connection was opened.
  std::uint64_t calls() const noexcept { return calls_; }
  /// Most calls in slots at once since the last time this was asked.
  std::uint32_t take_peak() noexcept { return std::exchange(peak_busy_, busy_); }
  /// The calls of a traced connection are noted in CallMeasurement::trace,
  /// from the first that begins afterwards.
  void set_traced(bool traced) noexcept;
  bool traced() const noexcept { return traced_; }
  std::uint32_t busy_slots() const noexcept { return busy_; }
  /// Calls whose replies are out, since the connection was opened, and the time that they took together.
  std::uint64_t served() const noexcept { return served_; }
  std::uint64_t served_ns() const noexcept { return served_ns_; }
  struct OldestCall {
    CallSlot::State state = CallSlot::State::Free;  ///< Free: there is none
    std::uint64_t begun_ns = 0;
  };
  /// Of the calls in slots, as of the last round of tick() over all of them; how long ago that began, in ns.
  const OldestCall& oldest_call() const noexcept { return oldest_; }
  std::uint64_t oldest_call_age_ns() const noexcept {
    return oldest_.state != CallSlot::State::Free ? turn_ns() - oldest_.begun_ns : 0;
  }
  /// Of memory that connections share.
  std::uint64_t shared_bytes() const noexcept {
    return context_.memory.calls.held_bytes(call_account_) +
           context_.memory.replies.held_bytes(reply_account_);
  }

  /// Where a message that has arrived is decoded: in the call slot that is the next to be used. It is the
  /// caller's until on_call(), or until the next message.
  ReceivedMessage& next_message() noexcept { return free_.empty() ? context_.message : free_.top().message_; }
  /// A call without chunks that is whole, with the same XID in both headers: what most messages are. It lies in the
  /// Receive buffer of that index, which is taken over.
  template <std::uint32_t kVersion>
  void on_plain_call(std::uint16_t buffer, std::span<const std::byte> bytes) noexcept;
  /// A call, or a message to be refused. Takes over the Receive buffer and the assembled payload.
  void on_call(const ReceivedMessage& message, const Refusal& refusal) noexcept;
  /// Looks at one slot, the next one each time: closes the link when its call waits too long for the peer, and finds the
  /// oldest call.
  void tick() noexcept;
  /// Calls that waited for a slot, or to be admitted.
  void serve_pending() noexcept;

  void on_reads_done(std::uint16_t slot) noexcept;
  void on_reply_sent(std::uint16_t slot) noexcept;
  /// Version 2: a part of a continued reply has gone out, or was flushed.
  void on_part_sent(std::uint16_t slot) noexcept;
  /// A work request of this slot failed or was flushed; `last` if it was the one that ends the set.
  void on_failed(std::uint16_t slot, bool last) noexcept;
  /// The peer's memory refused an RDMA Read or Write of this slot: its retransmission is refused (V1-039).
  void note_failed_transfer(std::uint16_t slot) noexcept {
    context_.failed_transfers.add(link_.peer(), slots_[slot].message_.header.fixed.xid,
                                  link_.context().now_ns());
  }

  /// Slots that waited for room in the send queue.
  void retry_send_room() noexcept;
  /// A slot of this connection that waited for memory; it has been taken from its queue.
  void resume(CallSlot& slot) noexcept { advance(slot); }

  /// The connection has ended: everything that waits is given up. Slots with posted work requests, and slots
  /// the service has, become free later.
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
  /// Costs no look at the clock. Between completions it is the time of the last control pass.
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

  // RX: from the Receive buffer to the service.
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
  /// Bytes of all RDMA Reads of the call; nothing when the stage is full.
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
  bool within_version_2(CallSlot& slot) noexcept;

  // From the service.
  void on_complete(service::Call& call, rpc::AcceptStat stat) noexcept override;
  bool on_grow_results(service::Call& call, std::size_t bytes) noexcept override;
  void on_placed(service::Call& call, service::Placement placement) noexcept override;
  void on_await_memory(service::Call& call) noexcept override;
  std::uint64_t reply_room(const service::Call& call) const noexcept override;
  std::optional<rdma::Lkey> message_lkey(const service::Call& call) const noexcept override;
  void on_reply_too_long(service::Call& call, std::uint64_t bytes) noexcept override;
  void complete(CallSlot& slot, rpc::AcceptStat stat) noexcept;
  void advance_completed(CallSlot& slot) noexcept;
  void begin_pushing(CallSlot& slot) noexcept;
  void answer(CallSlot& slot, CallSlot::Outcome outcome) noexcept;

  // TX: from the results to the Send.
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
  bool choose_version_1(const CallSlot& slot, ReplyPlan& plan, bool pieces_fit) noexcept;
  bool choose_version_2(const CallSlot& slot, ReplyPlan& plan, bool pieces_fit) noexcept;
  bool stage_parts(CallSlot& slot, const ReplyPlan& plan) noexcept;
  bool stage_reply(CallSlot& slot, ReplyPlan& plan) noexcept;
  bool may_refuse_now(CallSlot& slot) noexcept;
  bool stage_refusal(CallSlot& slot) noexcept;
  rdma::Rkey handle_to_invalidate(const CallSlot& slot) noexcept;
  bool stage_writes(CallSlot& slot, std::span<const rdma::Sge> sources, const WriteChunk& target) noexcept;
  std::span<const rdma::Sge> payload_sources(CallSlot& slot, const ReplyPlan& plan) noexcept;
  std::span<const rdma::Sge> item_sources(CallSlot& slot, const service::ResultItem& item) noexcept;
  void count_sent(const CallSlot& slot, const ReplyPlan& plan) noexcept;

  /// `work_requests` is what it takes.
  void wait_for_send_room(CallSlot& slot, std::size_t work_requests) noexcept;
  void wait_for_credit(CallSlot& slot) noexcept;
  void abandon(CallSlot& slot) noexcept;
  void finish(CallSlot& slot) noexcept;
  void let_go(CallSlot& slot, bool replied) noexcept;
  void give_back(CallSlot& slot) noexcept;
  void release_extras(CallSlot& slot) noexcept;
  void release_assembly(CallSlot& slot) noexcept;

  // What every call needs comes first, as in the link.
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
  std::uint32_t posted_ = 0;    ///< slots with a signaled work request out
  std::uint32_t replying_ = 0;  ///< of those, with their Send
  std::uint32_t grant_ = 1;
  rdma::Lkey reply_lkey_;
  bool holds_calls_ = false;
  bool serving_pending_ = false;  ///< serve_pending() is on the stack: the next call is not out of order
  bool traced_ = false;
  bool retrying_ = false;  ///< the first of waiting_send_room_ has its turn

  /// Messages that wait for a slot: a client may send as soon as it has a reply, before we see its
  /// completion.
  struct Pending {
    ReceivedMessage message;
    Refusal refusal;
  };
  CallSlotQueue waiting_send_room_;
  FixedRing<Pending> pending_;
  service::Client& client_;
  FixedArray<service::CallStorage> storage_;  ///< of the slots
  std::uint32_t max_slots_;
  std::uint32_t open_slots_ = 0;
  static constexpr std::uint64_t kSlotRoundNs = 1'000'000'000;
  PacedRound slot_round_{kSlotRoundNs};
  std::uint32_t next_checked_ = 0;  ///< slot
  OldestCall oldest_;
  OldestCall oldest_so_far_;  ///< of this round
  SharedMemory::Account call_account_;
  SharedMemory::Account reply_account_;
  ShareAccount refusal_account_;
};

}  // namespace sluice::rpcrdma
