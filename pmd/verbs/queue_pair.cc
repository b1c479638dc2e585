// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/queue_pair.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/device.h"

namespace sluice::rdma::verbs {
namespace {

/// How long a peer is asked to wait when no Receive is posted: 0.64 ms (InfiniBand volume 1, table 45).
constexpr std::uint8_t kRnrTimer = 12;
constexpr std::uint8_t kHopLimit = 64;

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
  // Providers differ in what they call a binding or an invalidation that cannot be; rxe calls a Send that is
  // longer than its Receive an operation error.
  if (opcode == WcOpcode::LocalInvalidate || opcode == WcOpcode::BindWindow) return WcStatus::BindError;
  return opcode == WcOpcode::Receive && completion.status == IBV_WC_LOC_QP_OP_ERR
             ? WcStatus::LocalLengthError
             : WcStatus::LocalProtectionError;
}

constexpr ibv_wr_opcode verbs_opcode(SendOpcode opcode) noexcept {
  switch (opcode) {
    case SendOpcode::Send:
      return IBV_WR_SEND;
    case SendOpcode::SendWithInvalidate:
      return IBV_WR_SEND_WITH_INV;
    case SendOpcode::RdmaWrite:
      return IBV_WR_RDMA_WRITE;
    case SendOpcode::RdmaRead:
      return IBV_WR_RDMA_READ;
    case SendOpcode::LocalInvalidate:
      return IBV_WR_LOCAL_INV;
    case SendOpcode::SendWithImmediate:
      return IBV_WR_SEND_WITH_IMM;
    case SendOpcode::RdmaWriteWithImmediate:
      return IBV_WR_RDMA_WRITE_WITH_IMM;
  }
  return IBV_WR_SEND;
}

ibv_mtu mtu_of(std::uint16_t bytes) noexcept {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

}  // namespace

// --- Setup and teardown

VerbsQueuePair::VerbsQueuePair(VerbsDevice& device, const QueuePairLimits& limits)
    : device_(device),
      shares_receives_(device.shared_receives() != nullptr),
      rnr_retry_(limits.rnr_retry),
      sends_(limits.send_depth),
      receives_(limits.recv_depth) {
  generation_ = device_.take_place(*this, place_).generation;
  try {
    completions_ = &device_.completion_queue(completion_entries());
    make(limits);
    to_init();
    device_.add_depth(std::size_t{limits.send_depth} + limits.recv_depth);
  } catch (...) {
    if (qp_ != nullptr) ibv_destroy_qp(qp_);
    if (completions_ != nullptr) completions_->leave_room(completion_entries());
    device_.leave_place(*this);
    throw;
  }
  number_ = static_cast<QueuePairNumber>(qp_->qp_num);
}

void VerbsQueuePair::make(const QueuePairLimits& limits) {
  const ibv_device_attr& device = device_.attributes();
  ibv_qp_init_attr_ex wanted{};
  wanted.qp_context = this;
  wanted.send_cq = completions_->handle();
  wanted.recv_cq = completions_->handle();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = limits.send_depth,
                .max_recv_wr = shares_receives_ ? 0 : limits.recv_depth,
                .max_send_sge = std::min(
                    {limits.max_send_sge, kMaxSge, static_cast<std::uint32_t>(std::max(device.max_sge, 1))}),
                .max_recv_sge = shares_receives_ ? 0u : 1u,
                .max_inline_data = kWantedInline};
  if (shares_receives_) wanted.srq = device_.shared_receives()->handle();
  wanted.pd = device_.protection_domain();
  // The second try is without inline data, which some devices count otherwise; the last one classic.
  for (int attempt = 0; attempt < 4 && qp_ == nullptr; ++attempt) {
    const bool extended = attempt < 2;
    if (extended && !device_.wants_extended()) continue;
    wanted.cap.max_inline_data = attempt % 2 == 0 ? kWantedInline : 0;
    wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (extended) {
      wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                              IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;
      if (device_.limits().remote_invalidation) wanted.send_ops_flags |= IBV_QP_EX_WITH_SEND_WITH_INV;
      if (device_.limits().max_windows > 0)
        wanted.send_ops_flags |= IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    }
    qp_ = ibv_create_qp_ex(device_.context(), &wanted);
    if (qp_ != nullptr && extended) extended_ = ibv_qp_to_qp_ex(qp_);
  }
  if (qp_ == nullptr)
    throw SetupError("The RDMA device " + device_.device_name() + " makes no queue pair with " +
                     std::to_string(limits.send_depth) + " send and " + std::to_string(limits.recv_depth) +
                     " receive work requests (" + std::strerror(errno) +
                     "): make [transport] credits smaller; `sluicectl devices` shows the device's limits.");
  device_.note_posting(extended_ != nullptr);
  // rdma-core 44's rxe sends something else than inline data that comes by the extended interface.
  max_inline_ = extended_ != nullptr && device_.in_software() ? 0 : wanted.cap.max_inline_data;
}

void VerbsQueuePair::to_init() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = device_.port();
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  const int failed =
      ibv_modify_qp(qp_, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (failed != 0)
    throw SetupError("The RDMA device " + device_.device_name() + " refuses a queue pair on port " +
                     std::to_string(device_.port()) + " (" + std::strerror(failed) + ").");
}

VerbsQueuePair::~VerbsQueuePair() {
  lose();
  device_.forget_completions_of(number_);
  device_.remove_depth(std::size_t{sends_.depth()} + receives_.depth());
  device_.leave_place(*this);
}

void VerbsQueuePair::lose() noexcept {
  state_ = State::Error;
  if (qp_ == nullptr) return;
  if (staged_) {
    device_.remove_staged(*this);
    if (extended_ != nullptr) ibv_wr_abort(extended_);
    staged_ = false;
  }
  chain_length_ = 0;
  device_.memory().release_all(*this);
  device_.take_completions_of(*this, *completions_);
  // From here on the device touches no memory for this queue pair.
  ibv_destroy_qp(qp_);
  qp_ = nullptr;
  extended_ = nullptr;
  device_sends_ = sends_.tail();
  device_receives_ = receives_.tail();
  completions_->leave_room(completion_entries());
  completions_ = nullptr;
  flush_sends_after_device();
  flush_receives_after_device();
}

bool VerbsQueuePair::connect(const RcAttributes& attributes) noexcept {
  if (qp_ == nullptr || state_ != State::Init) return false;
  const auto gid = device_.gid_index(attributes.local);
  if (!gid) return false;
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = mtu_of(attributes.path_mtu);
  receive.dest_qp_num = static_cast<std::uint32_t>(attributes.remote_qp);
  receive.rq_psn = attributes.receive_psn;
  receive.max_dest_rd_atomic = static_cast<std::uint8_t>(
      std::min<int>(attributes.responder_resources, device_.attributes().max_qp_rd_atom));
  receive.min_rnr_timer = kRnrTimer;
  receive.ah_attr.is_global = 1;
  receive.ah_attr.port_num = device_.port();
  receive.ah_attr.sl = attributes.service_level;
  std::copy(attributes.remote.bytes.begin(), attributes.remote.bytes.end(), receive.ah_attr.grh.dgid.raw);
  receive.ah_attr.grh.sgid_index = *gid;
  receive.ah_attr.grh.hop_limit = kHopLimit;
  receive.ah_attr.grh.traffic_class = attributes.traffic_class;
  if (ibv_modify_qp(qp_, &receive,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return false;
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = attributes.ack_timeout;
  send.retry_cnt = attributes.retry_count;
  send.rnr_retry = std::min(attributes.rnr_retry, rnr_retry_);
  send.sq_psn = attributes.send_psn;
  send.max_rd_atomic = static_cast<std::uint8_t>(
      std::min<int>(attributes.initiator_depth, device_.attributes().max_qp_init_rd_atom));
  if (ibv_modify_qp(qp_, &send,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    return false;
  state_ = State::ReadyToSend;
  return true;
}

void VerbsQueuePair::to_error() noexcept {
  if (state_ == State::Error) return;
  ring_doorbell();
  if (state_ == State::Error) return;  // the doorbell has shown that there is nobody behind it
  state_ = State::Error;
  enter_error();
}

void VerbsQueuePair::enter_error() noexcept {
  if (qp_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // A device that cannot even do that has to let go of everything.
  if (ibv_modify_qp(qp_, &attributes, IBV_QP_STATE) != 0) lose();
}

// --- Posting

std::uint32_t VerbsQueuePair::gather(const SendWr& wr, std::span<ibv_sge> into) const noexcept {
  std::uint32_t count = 0;
  for (const Sge& sge : wr.sges) {
    if (sge.length == 0) continue;  // to some devices a length of zero is 2 GiB
    if (count == into.size()) break;
    into[count++] = {.addr = reinterpret_cast<std::uintptr_t>(sge.address),
                     .length = sge.length,
                     .lkey = device_.memory().device_lkey(sge.lkey)};
  }
  return count;
}

/// Inline data is read by the processor: what the device would have refused is not sent that way.
bool VerbsQueuePair::can_inline(const SendWr& wr) const noexcept {
  if (wr.opcode == SendOpcode::RdmaRead || wr.opcode == SendOpcode::LocalInvalidate || max_inline_ == 0)
    return false;
  std::uint64_t bytes = 0;
  for (const Sge& sge : wr.sges) {
    bytes += sge.length;
    if (bytes > max_inline_ || !device_.memory().covers(sge)) return false;
  }
  return bytes > 0;
}

/// The caller's flags for the device. Without a completion now and then the queue would never be seen to have
/// room again.
unsigned VerbsQueuePair::flags_for(std::uint8_t flags, bool& signaled) noexcept {
  unsigned out = 0;
  signaled = (flags & kSignaled) != 0;
  if (signaled || ++since_signaled_ >= std::max(sends_.depth() / 4, 1u) || state_ == State::Error) {
    out |= IBV_SEND_SIGNALED;
    since_signaled_ = 0;
  }
  if (flags & kFence) out |= IBV_SEND_FENCE;
  if (flags & kSolicited) out |= IBV_SEND_SOLICITED;
  device_.stats().unsignaled += (out & IBV_SEND_SIGNALED) == 0;
  return out;
}

std::size_t VerbsQueuePair::post_send(std::span<const SendWr> wrs) noexcept {
  if (state_ == State::Init) return 0;
  std::size_t count = std::min<std::size_t>(wrs.size(), sends_.room());
  if (state_ == State::Error) count = std::min(count, device_.completion_room());
  for (const SendWr& wr : wrs.first(count)) stage(wr);
  ring_doorbell();
  flush_sends_after_device();
  return count;
}

void VerbsQueuePair::stage(const SendWr& wr, bool probe) noexcept {
  ++device_.stats().send_requests;
  SendEntry entry{.wr_id = wr.wr_id,
                  .rkey = static_cast<std::uint32_t>(wr.rkey),
                  .opcode = completion_opcode(wr.opcode),
                  .probe = probe};
  const unsigned flags = flags_for(wr.flags, entry.signaled);
  const std::uint64_t cookie = send_cookie(sends_.push(entry));
  if (state_ == State::Error) return;
  ++device_sends_;
  begin_batch();
  const bool inlined = can_inline(wr);
  device_.stats().inline_sends += inlined;
  if (extended_ != nullptr)
    stage_extended(wr, cookie, flags, inlined);
  else
    stage_classic(wr, cookie, flags, inlined);
}

void VerbsQueuePair::begin_batch() noexcept {
  if (staged_) return;
  staged_ = true;
  device_.add_staged(*this);
  if (extended_ != nullptr) ibv_wr_start(extended_);
}

void VerbsQueuePair::stage_extended(const SendWr& wr, std::uint64_t cookie, unsigned flags,
                                    bool inlined) noexcept {
  ibv_qp_ex* const qp = extended_;
  qp->wr_id = cookie;
  qp->wr_flags = flags;
  const auto rkey = static_cast<std::uint32_t>(wr.rkey);
  switch (wr.opcode) {
    case SendOpcode::Send:
      ibv_wr_send(qp);
      break;
    case SendOpcode::SendWithInvalidate:
      ibv_wr_send_inv(qp, rkey);
      break;
    case SendOpcode::SendWithImmediate:
      ibv_wr_send_imm(qp, htobe32(wr.immediate));
      break;
    case SendOpcode::RdmaWrite:
      ibv_wr_rdma_write(qp, rkey, wr.remote_address);
      break;
    case SendOpcode::RdmaWriteWithImmediate:
      ibv_wr_rdma_write_imm(qp, rkey, wr.remote_address, htobe32(wr.immediate));
      break;
    case SendOpcode::RdmaRead:
      ibv_wr_rdma_read(qp, rkey, wr.remote_address);
      break;
    case SendOpcode::LocalInvalidate:
      ibv_wr_local_inv(qp, rkey);
      return;
  }
  if (inlined) {
    ibv_data_buf buffers[kMaxSge];
    std::size_t count = 0;
    for (const Sge& sge : wr.sges)
      if (sge.length > 0 && count < kMaxSge) buffers[count++] = {sge.address, sge.length};
    if (count == 1) return ibv_wr_set_inline_data(qp, buffers[0].addr, buffers[0].length);
    return ibv_wr_set_inline_data_list(qp, count, buffers);
  }
  ibv_sge sges[kMaxSge];
  const std::uint32_t count = gather(wr, sges);
  if (count == 1) return ibv_wr_set_sge(qp, sges[0].lkey, sges[0].addr, sges[0].length);
  ibv_wr_set_sge_list(qp, count, sges);
}

ibv_send_wr& VerbsQueuePair::next_classic(std::uint64_t cookie, unsigned flags) noexcept {
  if (chain_length_ == kClassicBatch) post_classic();
  ibv_send_wr& to = chain_[chain_length_];
  to = {};
  to.wr_id = cookie;
  to.send_flags = flags;
  to.sg_list = chain_sges_[chain_length_].data();
  if (chain_length_ > 0) chain_[chain_length_ - 1].next = &to;
  ++chain_length_;
  return to;
}

void VerbsQueuePair::stage_classic(const SendWr& wr, std::uint64_t cookie, unsigned flags,
                                   bool inlined) noexcept {
  ibv_send_wr& to = next_classic(cookie, flags);
  if (inlined) to.send_flags |= IBV_SEND_INLINE;
  to.opcode = verbs_opcode(wr.opcode);
  to.num_sge = static_cast<int>(gather(wr, {to.sg_list, kMaxSge}));
  switch (wr.opcode) {
    case SendOpcode::SendWithImmediate:
      to.imm_data = htobe32(wr.immediate);
      break;
    case SendOpcode::SendWithInvalidate:
    case SendOpcode::LocalInvalidate:
      to.invalidate_rkey = static_cast<std::uint32_t>(wr.rkey);
      break;
    case SendOpcode::RdmaWriteWithImmediate:
      to.imm_data = htobe32(wr.immediate);
      [[fallthrough]];
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaRead:
      to.wr.rdma.remote_addr = wr.remote_address;
      to.wr.rdma.rkey = static_cast<std::uint32_t>(wr.rkey);
      break;
    case SendOpcode::Send:
      break;
  }
}

void VerbsQueuePair::post_classic() noexcept {
  if (chain_length_ == 0) return;
  chain_length_ = 0;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(qp_, chain_.data(), &refused) == 0) {
    ++device_.stats().doorbells;
    return;
  }
  ++device_.stats().post_failures;
  lose();
}

void VerbsQueuePair::ring_doorbell() noexcept {
  if (!staged_) return;
  staged_ = false;
  device_.remove_staged(*this);
  if (extended_ == nullptr) return post_classic();
  if (ibv_wr_complete(extended_) == 0) {
    ++device_.stats().doorbells;
    return;
  }
  ++device_.stats().post_failures;
  lose();
}

/// No bytes need no key (InfiniBand volume 1, 9.7.4.1.5).
void VerbsQueuePair::probe() noexcept {
  if (state_ != State::ReadyToSend || !sends_.empty()) return;  // what is outstanding tells as much
  const SendWr nothing{.sges = {}, .opcode = SendOpcode::RdmaWrite, .flags = 0};
  since_signaled_ = sends_.depth();
  stage(nothing, true);
  ring_doorbell();
}

std::size_t VerbsQueuePair::post_recv(std::span<const RecvWr> wrs) noexcept {
  std::size_t count = std::min<std::size_t>(wrs.size(), receives_.room());
  if (state_ == State::Error) count = std::min(count, device_.completion_room());
  std::size_t done = 0;
  while (state_ != State::Error && !shares_receives_ && done < count) {
    std::array<ibv_recv_wr, kClassicBatch> chain;
    std::array<ibv_sge, kClassicBatch> sges;
    const std::size_t part = std::min<std::size_t>(count - done, kClassicBatch);
    for (std::size_t i = 0; i < part; ++i) {
      const RecvWr& wr = wrs[done + i];
      sges[i] = {.addr = reinterpret_cast<std::uintptr_t>(wr.sge.address),
                 .length = wr.sge.length,
                 .lkey = device_.memory().device_lkey(wr.sge.lkey)};
      chain[i] = {.wr_id = Cookie{place_, generation_, true, receives_.push(wr)}.packed(),
                  .next = i + 1 < part ? &chain[i + 1] : nullptr,
                  .sg_list = &sges[i],
                  .num_sge = wr.sge.length > 0 ? 1 : 0};
    }
    done += part;
    device_receives_ += static_cast<std::uint32_t>(part);
    ibv_recv_wr* refused = nullptr;
    ++device_.stats().receive_doorbells;
    if (ibv_post_recv(qp_, chain.data(), &refused) == 0) continue;
    ++device_.stats().post_failures;
    lose();
  }
  for (; done < count; ++done) receives_.push(wrs[done]);
  flush_receives_after_device();
  return count;
}

std::optional<Rkey> VerbsQueuePair::bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                                AccessFlags access) noexcept {
  if (state_ != State::ReadyToSend || sends_.room() == 0) return std::nullopt;
  const auto binding = device_.memory().bind(window, bytes, lkey, access, *this);
  if (!binding) return std::nullopt;
  ++device_.stats().windows_bound;
  bool signaled = false;
  const unsigned flags = flags_for(0, signaled);
  const std::uint64_t cookie =
      send_cookie(sends_.push({.rkey = binding->rkey, .opcode = WcOpcode::BindWindow}));
  ++device_sends_;
  begin_batch();
  if (extended_ != nullptr) {
    extended_->wr_id = cookie;
    extended_->wr_flags = flags;
    ibv_wr_bind_mw(extended_, binding->window, binding->rkey, &binding->info);
  } else {
    ibv_send_wr& to = next_classic(cookie, flags);
    to.opcode = IBV_WR_BIND_MW;
    to.bind_mw = {.mw = binding->window, .rkey = binding->rkey, .bind_info = binding->info};
  }
  // A chain of the classic interface refers to the window, whose key is still the one before.
  if (extended_ == nullptr) ring_doorbell();
  if (qp_ == nullptr) return std::nullopt;
  binding->window->rkey = binding->rkey;
  return static_cast<Rkey>(binding->rkey);
}

// --- Completions

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

/// As the device would judge it.
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
    // Those before it have succeeded: whatever fails or is flushed has a completion.
    const WcStatus status = last ? status_of(completion, entry.opcode) : WcStatus::Success;
    if (status == WcStatus::Success && entry.opcode == WcOpcode::LocalInvalidate)
      device_.memory().unbind(entry.rkey, *this);
    if (!entry.probe && (entry.signaled || status != WcStatus::Success))
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

/// What was posted in Error, or belongs to a queue pair that was taken, ends here, after what the device
/// flushes: not every provider looks at what is posted in Error.
void VerbsQueuePair::flush_sends_after_device() noexcept {
  if (state_ != State::Error || sends_.tail() != device_sends_) return;
  while (!sends_.empty()) {
    const SendEntry entry = sends_.pop();
    ++device_sends_;
    ++device_.stats().flushed_by_driver;
    if (entry.probe) continue;
    device_.complete(
        {.wr_id = entry.wr_id, .qp = number_, .status = WcStatus::WrFlushError, .opcode = entry.opcode});
  }
}

void VerbsQueuePair::flush_receives_after_device() noexcept {
  if (state_ != State::Error || (!shares_receives_ && receives_.tail() != device_receives_)) return;
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
