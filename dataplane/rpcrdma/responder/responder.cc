// SPDX-License-Identifier: Apache-2.0
//
// State machine of call slots, from the Receive to the completion of the reply.
#include "dataplane/rpcrdma/responder/responder.h"

#include <utility>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/rpcrdma/responder/steps.h"

namespace sluice::rpcrdma {
using CallState = CallSlot::State;

Responder::Responder(ResponderContext& context, Link& link, v2::Session& session, service::Client& client,
                     const ConnectionCapacity& capacity, rdma::MemoryRegion reply_region)
    : context_(context),
      link_(link),
      slots_(capacity.slots()),
      reply_lkey_(reply_region.lkey),
      session_(session),
      pending_(std::size_t{2} * capacity.receives()),
      client_(client),
      storage_(FixedArray<service::CallStorage>::for_overwrite(capacity.slots())),
      max_slots_(capacity.slots()) {
  const std::size_t stride = buffer_stride(capacity.reply_buffer_bytes);
  for (std::uint32_t i = 0; i < max_slots_; ++i) {
    CallSlot& slot = slots_[i];
    slot.responder_ = this;
    slot.index_ = static_cast<std::uint16_t>(i);
    slot.reply_buffer_ = reply_region.bytes.subspan(i * stride, capacity.reply_buffer_bytes);
    slot.peer_ = &link.peer();
    slot.peer_host_ = &link.peer_host();
    slot.client_ = &client;
    slot.set_host(*this, storage_[i]);
  }
  context_.measurement.slots_in_state[static_cast<std::size_t>(CallState::Free)] += max_slots_;
}

void CallSlot::on_share() noexcept {
  responder_->resume(*this);
}

void Responder::open(std::uint32_t grant, bool hold_calls, service::Service* sole_service) noexcept {
  static_cast<void>(SLUICE_INVARIANT(busy_ == 0 && posted_ == 0 && replying_ == 0, pool_balance));
  static_cast<void>(SLUICE_INVARIANT(pending_.empty() && waiting_send_room_.empty(), list_membership));
  sole_service_ = sole_service;
  holds_calls_ = hold_calls;
  calls_ = peak_busy_ = 0;
  served_ = served_ns_ = 0;
  oldest_ = oldest_so_far_ = {};
  traced_ = false;
  open_slots_ = smaller_of(grant, max_slots_);
  grant_ = larger_of<std::uint32_t>(open_slots_, 1);
  free_.clear();
  for (std::uint32_t i = open_slots_; i-- > 0;) free_.push(slots_[i]);
}

void Responder::set_grant(std::uint32_t grant) noexcept {
  grant_ = bounded<std::uint32_t>(grant, 1, larger_of<std::uint32_t>(open_slots_, 1));
}

void Responder::tick() noexcept {
  if (busy_ == 0) {
    oldest_ = oldest_so_far_ = {};
    return;
  }
  const std::uint64_t now_ns = link_.context().now_ns();
  for (std::uint32_t due = slot_round_.due(now_ns, open_slots_); due > 0; --due) {
    next_checked_ = next_checked_ + 1 < open_slots_ ? next_checked_ + 1 : 0;
    static_cast<void>(SLUICE_INVARIANT(next_checked_ < max_slots_, table_index));
    const CallSlot& slot = slots_[next_checked_];
    look_for_oldest(slot);
    if (!is_stalled(slot, now_ns)) continue;
    ++link_.counters().stalled_calls;
    return link_.close(CloseReason::NoProgress);
  }
}

bool Responder::is_stalled(const CallSlot& slot, std::uint64_t now_ns) const noexcept {
  const std::uint64_t limit_ns = link_.config().progress_timeout_ns;
  return limit_ns > 0 && waits_for_peer(slot.state_) && now_ns > slot.progress_ns_ &&
         now_ns - slot.progress_ns_ >= limit_ns;
}

void Responder::look_for_oldest(const CallSlot& slot) noexcept {
  if (next_checked_ == 0) oldest_ = std::exchange(oldest_so_far_, {});
  if (slot.state_ == CallState::Free) return;
  if (oldest_so_far_.state == CallState::Free || slot.begun_ns_ < oldest_so_far_.begun_ns)
    oldest_so_far_ = {slot.state_, slot.begun_ns_};
}

void Responder::advance(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.responder_ == this && slot.index_ < max_slots_, table_index);
  slot.advancing_ = true;
  CallState before;
  do {
    before = slot.state_;
    if (slot.waits() || !link_.is_open()) break;
    switch (before) {
      case CallState::Received:
        check_call(slot);
        break;
      case CallState::AwaitingCallMemory:
        assemble_inline_parts(slot);
        break;
      case CallState::AwaitingReadRoom:
        post_reads(slot);
        break;
      case CallState::AwaitingReplyMemory:
        run_service(slot);
        break;
      case CallState::Pushing:
        push_reply(slot);
        break;
      case CallState::Free:
      case CallState::Pulling:
      case CallState::Executing:
      case CallState::Replying:
        break;
    }
    if (slot.completed_ && slot.state_ != CallState::Free && slot.state_ < CallState::Pushing)
      begin_pushing(slot);
  } while (slot.state_ != before && slot.state_ != CallState::Replying);
  end_advance(slot);
  if (!link_.is_open()) abandon(slot);
}

/// Frees a slot of a closed connection, unless the driver or the service still uses it.
void Responder::abandon(CallSlot& slot) noexcept {
  switch (slot.state_) {
    case CallState::AwaitingCallMemory:
    case CallState::AwaitingReplyMemory:
    case CallState::Received:
    case CallState::AwaitingReadRoom:
    case CallState::Pushing:
      break;
    case CallState::Free:
    case CallState::Pulling:
    case CallState::Executing:
    case CallState::Replying:
      return;
  }
  CallSlotQueue::unlink(slot);
  context_.memory.calls.forget(call_account_, slot);
  context_.memory.replies.forget(reply_account_, slot);
  context_.refusals.forget(refusal_account_, slot);
  static_cast<void>(SLUICE_INVARIANT(!slot.waits(), list_membership));
  if (slot.parts_posted_ == 0) finish(slot);  // otherwise the last part finishes it
}

// --- Functions called by the service

void Responder::on_complete(service::Call& call, rpc::AcceptStat stat) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  if (slot.completed_) return;
  SLUICE_INVARIANT_DEBUG(slot.state_ != CallState::Free && slot.state_ < CallState::Pushing, call_slot_state);
  slot.completed_ = true;
  slot.stat_ = stat;
  slot.outcome_ =
      stat == rpc::AcceptStat::Success ? CallSlot::Outcome::Success : CallSlot::Outcome::AcceptError;
  if (slot.auth_error_ != rpc::AuthStat::Ok) [[unlikely]]
    slot.outcome_ = CallSlot::Outcome::AuthError;
  if (!slot.advancing_) advance_completed(slot);
}

/// Continues a call that its service has completed while advance() was not on the stack. If the connection is
/// closed, the call is abandoned.
[[gnu::noinline]] void Responder::advance_completed(CallSlot& slot) noexcept {
  begin_pushing(slot);
  advance(slot);
}

void Responder::on_reply_too_long(service::Call& call, std::uint64_t bytes) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  if (slot.completed_) return;
  refuse_long_reply(slot, bytes);
  slot.completed_ = true;
  set_state(slot, CallState::Pushing);
  release_assembly(slot);
  if (!slot.advancing_) advance(slot);
}

bool Responder::on_grow_results(service::Call& call, std::size_t bytes) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  SharedMemory& memory = context_.memory.replies;
  slot.wanted_results_ = bytes + rpc::kMinReplyBytes;
  SLUICE_INVARIANT_DEBUG(slot.state_ != CallState::Free && !slot.completed_, call_slot_state);
  if (slot.reply_memory_ != nullptr || slot.wanted_results_ > memory.most_bytes()) {
    slot.impossible_ = true;
    return false;
  }
  slot.reply_memory_ = memory.acquire(reply_account_, slot.wanted_results_);
  if (slot.reply_memory_ == nullptr) return false;
  slot.plain_ = false;
  slot.payload_ = slot.reply_memory_;
  slot.results_ = xdr::Writer(
      {slot.reply_memory_ + rpc::kMinReplyBytes, memory.bytes_of(slot.reply_memory_) - rpc::kMinReplyBytes});
  return true;
}

/// Continues a call that another reactor has placed. The slot was Executing until now.
void Responder::on_placed(service::Call& call, service::Placement placement) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  if (slot.completed_) return;
  placed(slot, placement);
  advance(slot);
}

void Responder::on_await_memory(service::Call& call) noexcept {
  auto& slot = static_cast<CallSlot&>(call);
  await_reply_memory(slot);
  advance(slot);
}

// --- End of a call

/// Handles the completion of a reply, which also completes the preceding unsignaled Sends.
[[gnu::noinline]] void Responder::on_reply_sent(std::uint16_t index) noexcept {
  do {
    CallSlot& slot = slots_[index];
    SLUICE_INVARIANT_DEBUG(index < max_slots_ && posted_ >= replying_ && replying_ > 0, pool_balance);
    index = std::exchange(slot.sent_before_, kNoWr);
    --posted_;
    --replying_;
    let_go(slot, true);
    step<CallState::Replying, CallState::Free>(slot);
    give_back(slot);
  } while (index != kNoWr);
  if (!pending_.empty()) serve_pending();
}

void Responder::on_part_sent(std::uint16_t index) noexcept {
  if (!SLUICE_INVARIANT(index < max_slots_ && slots_[index].parts_posted_ > 0, pool_balance)) return;
  CallSlot& slot = slots_[index];
  if (--slot.parts_posted_ == 0 && !link_.is_open() && slot.state_ == CallState::Pushing) finish(slot);
}

void Responder::on_failed(std::uint16_t index, bool last) noexcept {
  if (!last) return;
  bool delivered = false;
  do {
    CallSlot& slot = slots_[index];
    static_cast<void>(SLUICE_INVARIANT(posted_ > 0 && posted_ >= replying_, pool_balance));
    index = std::exchange(slot.sent_before_, kNoWr);
    --posted_;
    if (slot.state_ == CallState::Replying) --replying_;
    finish(slot, delivered);
    // A preceding Send that was flushed had its own completion, which also ended the Sends before it. The
    // other preceding Sends have been delivered.
    delivered = true;
  } while (index != kNoWr && slots_[index].state_ == CallState::Replying);
}

void Responder::finish(CallSlot& slot, bool replied) noexcept {
  let_go(slot, replied);
  set_state(slot, CallState::Free);
  give_back(slot);
}

[[gnu::noinline]] void Responder::release_extras(CallSlot& slot) noexcept {
  slot.continued_bytes_ = 0;
  context_.memory.calls.release(std::exchange(slot.call_memory_, nullptr));
  context_.memory.replies.release(std::exchange(slot.reply_memory_, nullptr));
  release_assembly(slot);
  slot.refusal_.reset();
}

void Responder::wait_for_send_room(CallSlot& slot, std::size_t work_requests) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.state_ == CallState::Pushing || slot.state_ == CallState::AwaitingReadRoom,
                         call_slot_state);
  slot.wanted_room_ = static_cast<std::uint32_t>(work_requests);
  waiting_send_room_.push_back(slot);
  link_.wait_for_send_room();
}

/// Queues the slot until a credit arrives or a continued message ends; the connection then retries it.
void Responder::wait_for_credit(CallSlot& slot) noexcept {
  SLUICE_INVARIANT_DEBUG(slot.state_ == CallState::Pushing, call_slot_state);
  slot.wanted_room_ = 0;
  waiting_send_room_.push_back(slot);
}

void Responder::retry_send_room() noexcept {
  retrying_ = true;
  while (CallSlot* slot = waiting_send_room_.front()) {
    if (!link_.has_room(slot->wanted_room_)) {
      link_.wait_for_send_room();  // planning again before there is room is useless
      break;
    }
    waiting_send_room_.remove(*slot);
    resume(*slot);
    if (!waiting_send_room_.contains(*slot)) continue;
    waiting_send_room_.remove(*slot);
    waiting_send_room_.push_front(*slot);  // still no room: the slot stays first
    break;
  }
  retrying_ = false;
}

void Responder::on_connection_lost() noexcept {
  for (; !pending_.empty(); pending_.pop_front()) {
    std::byte* const assembly = pending_.front().message.assembly;
    link_.context().assembly.release(assembly);
  }
  waiting_send_room_.clear();
  for (std::uint32_t i = 0; i < max_slots_; ++i)
    if (!slots_[i].advancing_) abandon(slots_[i]);  // an advancing slot abandons itself
  static_cast<void>(SLUICE_INVARIANT(pending_.empty() && waiting_send_room_.empty(), list_membership));
  for (std::uint32_t i = 0; i < max_slots_; ++i)
    if (slots_[i].state_ == CallState::Executing && slots_[i].with_service_ && !slots_[i].completed_)
      slots_[i].service_->call_abandoned(slots_[i]);
  for (service::Service* service : context_.services.all()) service->client_gone(client_);
  if (sole_service_ != nullptr) sole_service_->client_gone(client_);
}

// --- Status and records of ended calls: slow calls, and calls of traced connections

void Responder::set_traced(bool traced) noexcept {
  traced_ = traced;
}

void Responder::add_state_time(CallSlot& slot, std::uint64_t now_ns) noexcept {
  static_cast<void>(SLUICE_INVARIANT(now_ns >= slot.state_since_ns_, timer_state));
  if (slot.state_since_ns_ == slot.begun_ns_) slot.state_ns_ = {};
  slot.state_ns_[static_cast<std::size_t>(slot.state_)] += now_ns - slot.state_since_ns_;
  slot.state_since_ns_ = now_ns;
}

segment::CallStatus Responder::failure_of(const CallSlot& slot) const noexcept {
  using segment::CallStatus;
  if (slot.refusal_) return CallStatus::rdma_error;
  switch (slot.outcome_) {
    case CallSlot::Outcome::Success:
      return CallStatus::success;
    case CallSlot::Outcome::AuthError:
      return CallStatus::auth_error;
    case CallSlot::Outcome::RpcMismatch:
      return CallStatus::rpc_mismatch;
    case CallSlot::Outcome::AcceptError:
      break;
  }
  switch (slot.stat_) {
    case rpc::AcceptStat::Success:
      return CallStatus::success;
    case rpc::AcceptStat::ProgUnavail:
      return CallStatus::prog_unavail;
    case rpc::AcceptStat::ProgMismatch:
      return CallStatus::prog_mismatch;
    case rpc::AcceptStat::ProcUnavail:
      return CallStatus::proc_unavail;
    case rpc::AcceptStat::GarbageArgs:
      return CallStatus::garbage_args;
    case rpc::AcceptStat::SystemErr:
      break;
  }
  return CallStatus::system_err;
}

/// Builds the record of a call as of now. note_state() must have been called.
segment::TraceRecord Responder::record_of(const CallSlot& slot) const noexcept {
  segment::TraceRecord record{.connection = link_.number(),
                              .xid = slot.xid(),
                              .program = slot.header_.program,
                              .version = slot.header_.version,
                              .procedure = slot.header_.procedure,
                              .status = status_of(slot),
                              .begun_ns = slot.begun_ns_,
                              .total_ns = slot.state_since_ns_ - slot.begun_ns_,
                              .call_bytes = slot.arguments_.size() + slot.placed_bytes_,
                              .reply_bytes = slot.payload_bytes_};
  // state_ns_ is empty if the call began and ended in one iteration.
  if (record.total_ns > 0) record.state_ns = slot.state_ns_;
  for (const service::ResultItem& item : slot.items()) record.reply_bytes += item.bytes;
  return record;
}

/// Records a call that has ended, if the connection was traced throughout the call or if the call was slow.
void Responder::note_end(CallSlot& slot, bool replied, bool slow) noexcept {
  note_state(slot);
  CallMeasurement& measurement = context_.measurement;
  const segment::TraceRecord record = record_of(slot);
  if (measurement.trace != nullptr && traced_ && slot.traced_ && replied) measurement.trace->add(record);
  if (!slow) return;
  ++link_.counters().slow_calls;
  segment::SlowCallRing& ring = *measurement.slow_calls;
  ring.add({.number = ring.written.load(std::memory_order_relaxed),
            .ended_ns = measurement.wall_clock(),
            .upstream_ns = slot.upstream_ns(),
            .peer = link_.peer(),
            .client_class = link_.client_class(),
            .replied = replied ? 1u : 0u,
            .call = record});
}

}  // namespace sluice::rpcrdma
