// SPDX-License-Identifier: Apache-2.0
//
// VerbsQueuePair: translates the provider's completions, and flushes what the provider does not.
#include <cstring>

#include "pmd/verbs/device.h"

namespace sluice::rdma::verbs {
namespace {

WcStatus status_of(const Completion& completion, WcOpcode opcode) noexcept {
  switch (completion.status) {
    case IBV_WC_SUCCESS:
      return WcStatus::Success;
    case IBV_WC_WR_FLUSH_ERR:
      return WcStatus::WrFlushError;
    case IBV_WC_REM_INV_REQ_ERR:
      return WcStatus::RemoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR:
      return WcStatus::RemoteAccessError;
    case IBV_WC_REM_OP_ERR:
    case IBV_WC_REM_ABORT_ERR:
    case IBV_WC_BAD_RESP_ERR:
      return WcStatus::RemoteOperationError;
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RESP_TIMEOUT_ERR:
      return WcStatus::RetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return WcStatus::RnrRetryExceeded;
    case IBV_WC_MW_BIND_ERR:
      return WcStatus::BindError;
    case IBV_WC_LOC_LEN_ERR:
      return WcStatus::LocalLengthError;
    default:
      break;
  }
  // Providers differ in the status of a failed bind or invalidation; rxe reports a Send that is longer than
  // its Receive as an operation error.
  if (opcode == WcOpcode::LocalInvalidate || opcode == WcOpcode::BindWindow) return WcStatus::BindError;
  return opcode == WcOpcode::Receive && completion.status == IBV_WC_LOC_QP_OP_ERR
             ? WcStatus::LocalLengthError
             : WcStatus::LocalProtectionError;
}

}  // namespace

void VerbsQueuePair::on_completion(const Cookie& cookie, const Completion& completion) noexcept {
  if (completion.status != IBV_WC_SUCCESS && completion.status != IBV_WC_WR_FLUSH_ERR)
    ++device_.stats().error_completions;
  if (!cookie.receive)
    on_send(cookie.index, completion);
  else if (receives_.holds(cookie.index))
    on_receive(receives_.pop().wr_id, completion);
  after_completion(completion.status);
}

void VerbsQueuePair::after_completion(ibv_wc_status status) noexcept {
  if (status != IBV_WC_SUCCESS && state_ != State::Error) {
    state_ = State::Error;
    device_.add_failed(*this);
  }
  flush_sends_after_device();
  flush_receives_after_device();
}

void VerbsQueuePair::on_shared_receive(const Completion& completion,
                                       std::span<const std::byte> message) noexcept {
  if (state_ == State::Error) return;
  Completion judged = completion;
  if (receives_.empty()) {
    ++device_.stats().receive_overruns;
    return after_completion(IBV_WC_RNR_RETRY_EXC_ERR);
  }
  const RecvWr to = receives_.pop();
  if (completion.status == IBV_WC_SUCCESS) judged.status = copy(message, to.sge);
  if (judged.status != IBV_WC_SUCCESS && judged.status != IBV_WC_WR_FLUSH_ERR)
    ++device_.stats().error_completions;
  on_receive(to.wr_id, judged);
  after_completion(judged.status);
}

/// Makes the checks that the device makes for a Receive of its own.
ibv_wc_status VerbsQueuePair::copy(std::span<const std::byte> message, const Sge& to) const noexcept {
  if (message.empty()) return IBV_WC_SUCCESS;
  if (message.size() > to.length) return IBV_WC_LOC_LEN_ERR;
  if (!device_.memory().covers(to)) return IBV_WC_LOC_PROT_ERR;
  std::memcpy(to.address, message.data(), message.size());
  return IBV_WC_SUCCESS;
}

void VerbsQueuePair::on_send(std::uint32_t index, const Completion& completion) noexcept {
  if (!sends_.holds(index)) return;
  while (true) {
    const bool last = sends_.tail() == index;
    const SendEntry entry = sends_.pop();
    // Earlier unsignaled ones have succeeded: a failed or flushed one has a completion.
    const WcStatus status = last ? status_of(completion, entry.opcode) : WcStatus::Success;
    if (status == WcStatus::Success && entry.opcode == WcOpcode::LocalInvalidate)
      device_.memory().unbind(entry.rkey, *this);
    if (entry.signaled || status != WcStatus::Success)
      device_.complete({.wr_id = entry.wr_id,
                        .byte_len = completion.byte_len,
                        .qp = number_,
                        .status = status,
                        .opcode = entry.opcode});
    if (last) return;
  }
}

void VerbsQueuePair::on_receive(std::uint64_t wr_id, const Completion& completion) noexcept {
  WorkCompletion out{.wr_id = wr_id, .qp = number_, .opcode = WcOpcode::Receive};
  out.status = status_of(completion, WcOpcode::Receive);
  if (out.status == WcStatus::Success) {
    heard_ = true;
    out.byte_len = completion.byte_len;
    if (completion.flags & IBV_WC_WITH_INV) {
      out.remote_invalidate = true;
      out.invalidated = static_cast<Rkey>(completion.invalidated);
      device_.memory().unbind(completion.invalidated, *this);
    }
    if (completion.flags & IBV_WC_WITH_IMM) {
      out.has_immediate = true;
      out.immediate = completion.immediate;
    }
  }
  device_.complete(out);
}

/// Flushes work requests that were posted in Error or whose ibv_qp was destroyed, after those that the device
/// flushes: not every provider completes what is posted in Error. Not before the ibv_qp is in Error: until then the peer
/// may read and write through its windows.
void VerbsQueuePair::flush_sends_after_device() noexcept {
  if (!let_go_ || sends_.tail() != device_sends_) return;
  while (!sends_.empty()) {
    const SendEntry entry = sends_.pop();
    ++device_sends_;
    ++device_.stats().flushed_by_driver;
    device_.complete(
        {.wr_id = entry.wr_id, .qp = number_, .status = WcStatus::WrFlushError, .opcode = entry.opcode});
  }
}

void VerbsQueuePair::flush_receives_after_device() noexcept {
  if (!let_go_ || (!shares_receives_ && receives_.tail() != device_receives_)) return;
  while (!receives_.empty()) {
    ++device_receives_;
    ++device_.stats().flushed_by_driver;
    device_.complete({.wr_id = receives_.pop().wr_id,
                      .qp = number_,
                      .status = WcStatus::WrFlushError,
                      .opcode = WcOpcode::Receive});
  }
}

}  // namespace sluice::rdma::verbs
