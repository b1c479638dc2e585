// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "dataplane/base/setup_error.h"
#include "pmd/verbs/device.h"

namespace sluice::rdma::verbs {
namespace {

/// RNR NAK timer code: the peer retries after 0.64 ms (InfiniBand volume 1, table 45).
constexpr std::uint8_t kRnrTimer = 12;
constexpr std::uint8_t kHopLimit = 64;

ibv_mtu mtu_of(std::uint16_t bytes) noexcept {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

}  // namespace

VerbsQueuePair::VerbsQueuePair(VerbsDevice& device, const QueuePairLimits& limits)
    : device_(device),
      shares_receives_(device.shared_receives() != nullptr),
      rnr_retry_(limits.rnr_retry),
      sends_(limits.send_depth),
      receives_(limits.recv_depth) {
  generation_ = device_.assign_slot(*this, slot_).generation;
  try {
    completions_ = &device_.completion_queue(completion_entries());
    make(limits);
    to_init();
    device_.add_depth(std::size_t{limits.send_depth} + limits.recv_depth);
  } catch (...) {
    if (qp_ != nullptr) ibv_destroy_qp(qp_);
    if (completions_ != nullptr) completions_->leave_room(completion_entries());
    device_.release_slot(*this);
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
  // Retries without inline data, which some devices count differently, then with the classic interface.
  for (int attempt = 0; attempt < 4 && qp_ == nullptr; ++attempt) {
    const bool extended = attempt < 2;
    if (extended && !device_.prefers_extended()) continue;
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
    throw SetupError("The RDMA device " + device_.device_name() + " cannot create a queue pair with " +
                     std::to_string(limits.send_depth) + " send and " + std::to_string(limits.recv_depth) +
                     " receive work requests (" + std::strerror(errno) +
                     "): lower [transport] credits; `sluicectl devices` shows the device's limits.");
  device_.note_posting(extended_ != nullptr);
  // rdma-core 44's rxe corrupts inline data posted through the extended interface.
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
  destroy_and_flush();
  device_.forget_completions_of(number_);
  device_.remove_depth(std::size_t{sends_.depth()} + receives_.depth());
  device_.release_slot(*this);
}

void VerbsQueuePair::destroy_and_flush() noexcept {
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
  // After this the device accesses no memory for this queue pair.
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
  if (state_ == State::Error) return;  // the provider refused, and destroy_and_flush() has flushed everything
  state_ = State::Error;
  enter_error();
}

void VerbsQueuePair::enter_error() noexcept {
  if (qp_ == nullptr) return;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  // If the device refuses even that, destroy the ibv_qp.
  if (ibv_modify_qp(qp_, &attributes, IBV_QP_STATE) != 0) destroy_and_flush();
}

}  // namespace sluice::rdma::verbs
