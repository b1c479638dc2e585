// SPDX-License-Identifier: Apache-2.0
//
// How calls ended, and what is noted of those of a traced connection.
#include "dataplane/rpcrdma/responder/responder.h"

namespace sluice::rpcrdma {

using State = CallSlot::State;

void Responder::set_traced(bool traced) noexcept {
  traced_ = traced;
  for (std::uint32_t i = 0; i < max_slots_; ++i) slots_[i].state_since_ns_ = 0;
}

/// Of a call that was there before the trace nothing is known of the states that it has been in.
void Responder::note_state(CallSlot& slot) noexcept {
  if (slot.state_ != State::Free && slot.state_since_ns_ == 0) return;
  const std::uint64_t now_ns = context_.measurement.times.now_ns();
  if (slot.state_ == State::Free)
    slot.state_ns_ = {};
  else
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

/// A call of a traced connection whose reply is out.
void Responder::note_call(const CallSlot& slot) noexcept {
  if (context_.measurement.trace == nullptr || slot.state_since_ns_ == 0) return;
  segment::TraceRecord record{.connection = link_.number(),
                              .xid = static_cast<std::uint32_t>(slot.message_.header.fixed.xid),
                              .program = slot.header_.program,
                              .version = slot.header_.version,
                              .procedure = slot.header_.procedure,
                              .status = status_of(slot),
                              .begun_ns = slot.begun_ns_,
                              .total_ns = slot.state_since_ns_ - slot.begun_ns_,
                              .call_bytes = slot.arguments_.size() + slot.placed_bytes_,
                              .reply_bytes = slot.payload_bytes_,
                              .state_ns = slot.state_ns_};
  for (const service::ResultItem& item : slot.items()) record.reply_bytes += item.bytes;
  context_.measurement.trace->add(record);
}

}  // namespace sluice::rpcrdma
