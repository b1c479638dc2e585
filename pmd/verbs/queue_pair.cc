// SPDX-License-Identifier: Apache-2.0
//
// The part of VerbsQueuePair from connect() to its end: its stages, its completions, and its regions for
// calls, with the part of VerbsDevice that has them registered.
#include "pmd/verbs/queue_pair.h"

#include <cstring>

#include "dataplane/base/invariant.h"
#include "pmd/verbs/device.h"

namespace sluice::rdma::verbs {

VerbsQueuePair::VerbsQueuePair(VerbsDevice& device, std::uint16_t slot, std::uint16_t generation,
                               Hardware& hardware)
    : device_(device),
      domain_(hardware.limits.domain),
      shares_receives_(device.shared_receives() != nullptr),
      hardware_(hardware),
      qp_(hardware.qp),
      extended_(hardware.extended),
      number_(static_cast<QueuePairNumber>(hardware.qp->qp_num)),
      slot_(slot),
      generation_(generation),
      max_inline_(hardware.max_inline),
      sends_(hardware.limits.send_depth),
      receives_(hardware.limits.recv_depth),
      max_reads_(device.max_posted_reads()),
      held_(max_reads_ != 0 ? hardware.limits.send_depth : 0) {
  static_cast<void>(SLUICE_INVARIANT(sends_.depth() > 0 && receives_.depth() > 0, queue_pair_state));
  device_.add_depth(std::size_t{sends_.depth()} + receives_.depth());
}

VerbsQueuePair::~VerbsQueuePair() {
  stop_posting();
  device_.release(*this, holds_device());
  device_.forget_completions_of(number_);
  device_.remove_depth(std::size_t{sends_.depth()} + receives_.depth());
}

void VerbsQueuePair::stop_posting() noexcept {
  static_cast<void>(SLUICE_INVARIANT(chain_length_ <= kClassicBatch, ring_index));
  if (!has_ended()) stage_.transition(QueuePairStage::Ended);
  held_.clear();
  chain_length_ = 0;
  if (!staged_) return;
  staged_ = false;
  device_.remove_staged(*this);
  if (extended_ != nullptr) ibv_wr_abort(extended_);
}

void VerbsQueuePair::lose() noexcept {
  note_broken();
  stop_posting();
  device_.end(*this);
}

bool VerbsQueuePair::connect(const RcAttributes& attributes) noexcept {
  if (!stage_.is(QueuePairStage::Init)) return false;
  stage_.transition(QueuePairStage::Connecting);
  hardware_.attributes = attributes;
  device_.ask(SetupStep::Connect, slot_);
  return true;
}

void VerbsQueuePair::on_connected(bool done) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!stage_.is(QueuePairStage::Init), queue_pair_state));
  if (has_ended()) return;
  if (done)
    stage_.transition(QueuePairStage::Connected);
  else
    on_error_event();
}

void VerbsQueuePair::on_error_event() noexcept {
  note_broken();
  to_error();
}

void VerbsQueuePair::to_error() noexcept {
  if (has_ended()) return;
  ring_doorbell();
  if (has_ended()) return;  // the provider refused
  stage_.transition(QueuePairStage::Ended);
  device_.fail(slot_);
}

void VerbsQueuePair::on_failed() noexcept {
  if (!stage_.is(QueuePairStage::Flushing)) stage_.transition(QueuePairStage::Flushing);
  flush_sends_after_device();
  flush_receives_after_device();
}

/// Called when the ibv_qp is destroyed and the device no longer accesses memory for this queue pair.
void VerbsQueuePair::on_destroyed() noexcept {
  static_cast<void>(SLUICE_INVARIANT(has_ended(), queue_pair_state));
  device_sends_ = sends_.tail();
  device_receives_ = receives_.tail();
  on_failed();
}

// --- Completions: translation of the provider's, and flushing of work requests that the provider leaves

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
  SLUICE_INVARIANT_DEBUG(cookie.slot == slot_ && cookie.generation == generation_, table_index);
  note_error(completion, cookie.receive);
  if (!cookie.receive)
    on_send(cookie.index, completion);
  else if (receives_.holds(cookie.index))
    on_receive(receives_.pop().wr_id, completion);
  after_completion(completion.status);
  if (!held_.empty()) [[unlikely]]
    release_held();
}

/// Counts an error, and records it for the log if it ends the connection.
void VerbsQueuePair::note_error(const Completion& completion, bool receive) noexcept {
  if (completion.status == IBV_WC_SUCCESS || completion.status == IBV_WC_WR_FLUSH_ERR) return;
  ++device_.stats().error_completions;
  if (has_ended()) return;
  SLUICE_INVARIANT_DEBUG(receive || sends_.depth() > 0, queue_pair_state);
  device_.add_notice({.queue_pair = static_cast<std::uint32_t>(number_),
                      .vendor_error = completion.vendor_error,
                      .status = completion.status,
                      .kind = receive ? Notices::Kind::ReceiveFailed : Notices::Kind::SendFailed});
}

void VerbsQueuePair::after_completion(ibv_wc_status status) noexcept {
  if (status != IBV_WC_SUCCESS && !has_ended()) {
    stage_.transition(QueuePairStage::Ended);
    device_.add_failed(*this);
  }
  flush_sends_after_device();
  flush_receives_after_device();
}

void VerbsQueuePair::on_shared_receive(const Completion& completion,
                                       std::span<const std::byte> message) noexcept {
  SLUICE_INVARIANT_DEBUG(shares_receives_, queue_pair_state);
  if (has_ended()) return;
  Completion judged = completion;
  if (receives_.empty()) {
    ++device_.stats().receive_overruns;
    note_broken();
    return after_completion(IBV_WC_RNR_RETRY_EXC_ERR);
  }
  const RecvWr to = receives_.pop();
  if (completion.status == IBV_WC_SUCCESS) judged.status = copy(message, to.sge);
  note_error(judged, true);
  on_receive(to.wr_id, judged);
  after_completion(judged.status);
}

/// Copies a message into a Receive with the checks that the device performs for its own Receives.
ibv_wc_status VerbsQueuePair::copy(std::span<const std::byte> message, const Sge& to) const noexcept {
  if (message.empty()) return IBV_WC_SUCCESS;
  if (message.size() > to.length) return IBV_WC_LOC_LEN_ERR;
  if (!device_.memory().covers(to)) return IBV_WC_LOC_PROT_ERR;
  SLUICE_INVARIANT_DEBUG(message.size() <= to.length, buffer_bounds);
  std::memcpy(to.address, message.data(), message.size());
  return IBV_WC_SUCCESS;
}

void VerbsQueuePair::on_send(std::uint32_t index, const Completion& completion) noexcept {
  SLUICE_INVARIANT_DEBUG(device_sends_ - sends_.tail() <= sends_.head() - sends_.tail(), ring_index);
  if (!sends_.holds(index)) return;
  while (true) {
    const bool last = sends_.tail() == index;
    const SendEntry entry = sends_.pop();
    if (max_reads_ != 0 && entry.opcode == WcOpcode::RdmaRead) --reads_;
    // Earlier unsignaled work requests have succeeded, because a failed or flushed one has a completion.
    const WcStatus status = last ? status_of(completion, entry.opcode) : WcStatus::Success;
    if (status == WcStatus::Success && entry.opcode == WcOpcode::LocalInvalidate)
      device_.memory().unbind(entry.rkey, *this);
    if (entry.signaled || status != WcStatus::Success)
      device_.complete({.wr_id = entry.wr_id,
                        .byte_len = completion.byte_len,
                        .qp = number_,
                        .status = status,
                        .opcode = entry.opcode,
                        .vendor_error = last ? completion.vendor_error : 0});
    if (last) return;
  }
}

void VerbsQueuePair::on_receive(std::uint64_t wr_id, const Completion& completion) noexcept {
  WorkCompletion out{
      .wr_id = wr_id, .qp = number_, .opcode = WcOpcode::Receive, .vendor_error = completion.vendor_error};
  out.status = status_of(completion, WcOpcode::Receive);
  if (out.status == WcStatus::Success) {
    heard_ = true;
    out.byte_len = completion.byte_len;
    if (completion.flags & IBV_WC_WITH_INV) {
      out.remote_invalidate = true;
      out.rkey = static_cast<Rkey>(completion.invalidated);
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
/// flushes, because not every provider completes work requests posted in Error. Does nothing before the
/// ibv_qp is in Error, because until then the peer may read and write through its windows.
void VerbsQueuePair::flush_sends_after_device() noexcept {
  if (!stage_.is(QueuePairStage::Flushing) || sends_.tail() != device_sends_) return;
  while (!sends_.empty()) {
    const SendEntry entry = sends_.pop();
    ++device_sends_;
    static_cast<void>(SLUICE_INVARIANT(device_sends_ == sends_.tail(), ring_index));
    ++device_.stats().flushed_by_driver;
    device_.complete(
        {.wr_id = entry.wr_id, .qp = number_, .status = WcStatus::WrFlushError, .opcode = entry.opcode});
  }
}

void VerbsQueuePair::flush_receives_after_device() noexcept {
  SLUICE_INVARIANT_DEBUG(
      shares_receives_ || device_receives_ - receives_.tail() <= receives_.head() - receives_.tail(),
      ring_index);
  if (!stage_.is(QueuePairStage::Flushing) || (!shares_receives_ && receives_.tail() != device_receives_))
    return;
  while (!receives_.empty()) {
    ++device_receives_;
    ++device_.stats().flushed_by_driver;
    device_.complete({.wr_id = receives_.pop().wr_id,
                      .qp = number_,
                      .status = WcStatus::WrFlushError,
                      .opcode = WcOpcode::Receive});
  }
}

// --- Regions for calls, on a device without memory windows

bool VerbsQueuePair::register_region(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                     AccessFlags access, std::uint64_t wr_id) noexcept {
  if (!stage_.is(QueuePairStage::Connected) || bytes.empty() || bytes.size() > UINT32_MAX) return false;
  if (!device_.memory().covers({bytes.data(), static_cast<std::uint32_t>(bytes.size()), lkey})) return false;
  return device_.register_region(
      window, *this,
      {.pd = device_.protection_domain(domain_), .bytes = bytes, .access = access, .wr_id = wr_id});
}

bool VerbsQueuePair::deregister_region(MemoryWindow window, std::uint64_t wr_id,
                                       std::uint8_t flags) noexcept {
  return device_.deregister_region(window, *this, wr_id, (flags & kSignaled) != 0);
}

MemoryWindow VerbsDevice::allocate_window() {
  if (port_.limits.max_call_regions == 0) return memory_.allocate_window();
  const MemoryWindow window = call_regions_.allocate();
  grow_completions();
  return window;
}

ProtectionDomain VerbsDevice::allocate_domain() {
  if (port_.limits.max_call_regions == 0) return {};
  if (config_.shared_receives > 0)
    throw SetupError(
        "Shared Receives are of one protection domain, and an upstream of a device without memory windows "
        "has "
        "a domain of its own. Set shared_receives = 0 in [device].");
  return memory_.add_domain();
}

bool VerbsDevice::register_region(MemoryWindow window, VerbsQueuePair& qp,
                                  const CallRegions::Registration& registration) noexcept {
  if (!call_regions_.begin(window, qp, registration)) return false;
  ask(SetupStep::RegisterRegion, static_cast<std::uint16_t>(window.number));
  return true;
}

bool VerbsDevice::deregister_region(MemoryWindow window, VerbsQueuePair& qp, std::uint64_t wr_id,
                                    bool signaled) noexcept {
  if (!call_regions_.end(window, qp, wr_id, signaled)) return false;
  ask(SetupStep::DeregisterRegion, static_cast<std::uint16_t>(window.number));
  return true;
}

/// Requests the deregistration of the regions of a queue pair that ends, because other queue pairs of its
/// domain could access them.
void VerbsDevice::end_regions(const VerbsQueuePair& qp) noexcept {
  call_regions_.end_all(qp, [this](std::uint16_t index) { ask(SetupStep::DeregisterRegion, index); });
}

void VerbsDevice::take_region(const SetupResult& result) noexcept {
  const bool registered = result.step == SetupStep::RegisterRegion;
  const CallRegions::Result region = registered ? call_regions_.on_registered(result.slot, result.done)
                                                : call_regions_.on_deregistered(result.slot);
  static_cast<void>(SLUICE_INVARIANT(region.owner != nullptr, queue_pair_state));
  const auto number = static_cast<std::uint32_t>(region.owner->number());
  const bool ended = region.owner->state() == QueuePair::State::Error;
  statistics_.call_regions_registered += registered && result.done;
  statistics_.call_regions_refused += !result.done;
  if (region.completes)
    complete({.wr_id = region.wr_id,
              .qp = region.owner->number(),
              .rkey = static_cast<Rkey>(region.rkey),
              .status = ended         ? WcStatus::WrFlushError
                        : result.done ? WcStatus::Success
                                      : WcStatus::BindError,
              .opcode = registered ? WcOpcode::RegisterRegion : WcOpcode::LocalInvalidate});
  if (result.done) return;
  notices_.add({.queue_pair = number,
                .kind = registered ? Notices::Kind::RegionNotMade : Notices::Kind::RegionNotEnded});
  if (registered)
    region.owner->to_error();
  else
    request(Request::Detach);  // the peers can access the region as long as the device is open
}

}  // namespace sluice::rdma::verbs
