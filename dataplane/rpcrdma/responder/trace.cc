// SPDX-License-Identifier: Apache-2.0
//
// How calls ended, and what is noted of slow ones and of those of a traced connection.
#include "dataplane/rpcrdma/responder/steps.h"

namespace sluice::rpcrdma {

using State = CallSlot::State;

void Responder::set_traced(bool traced) noexcept {
  traced_ = traced;
}

void Responder::add_state_time(CallSlot& slot, std::uint64_t now_ns) noexcept {
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

/// As of now, which has been noted as the end of its last state.
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
  // Of one that has begun and ended in the same turn there is nothing in it.
  if (record.total_ns > 0) record.state_ns = slot.state_ns_;
  for (const service::ResultItem& item : slot.items()) record.reply_bytes += item.bytes;
  return record;
}

/// A call that is over: of a connection that was traced when it began and is still, or one that took long.
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
