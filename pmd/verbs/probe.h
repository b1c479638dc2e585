// SPDX-License-Identifier: Apache-2.0
//
// Probe of a device's features, because providers report features that they lack and lack flags of features
// that they have. A queue pair that is connected to itself binds a window, reads through it, invalidates it,
// and reads again, which must be refused. Setup only; takes at most kProbeLimitNs when ports.cc uses it. For
// ports.cc and cli/card_check only.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/invariant.h"
#include "pmd/verbs/monotonic.h"

namespace sluice::rdma::verbs {

inline constexpr std::uint64_t kProbeLimitNs = 100'000'000;

enum class Finding : std::uint8_t {
  Works,
  Missing,
  Unknown,  ///< the queue pair could not be connected to itself, or the time limit was exceeded
};

/// Returns a time after which a probe ends.
inline std::uint64_t probe_deadline_ns() noexcept {
  return monotonic_ns() + kProbeLimitNs;
}

/// A queue pair that is connected to itself, with registered memory. The destructor destroys everything.
class SelfConnected {
 public:
  /// `gid` is a RoCEv2 GID of the port. `windows` requests memory to which windows can be bound.
  SelfConnected(ibv_context* context, std::uint8_t port, const ibv_gid_entry& gid, ibv_mtu mtu, bool windows,
                std::uint64_t deadline_ns)
      : deadline_ns_(deadline_ns) {
    memory_[0] = std::byte{0x5A};
    pd_ = ibv_alloc_pd(context);
    if (pd_ == nullptr) return;
    region_ = ibv_reg_mr(pd_, memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | (windows ? IBV_ACCESS_MW_BIND : 0));
    queue_ = ibv_create_cq(context, kDepth * 2, nullptr, nullptr, 0);
    if (region_ == nullptr || queue_ == nullptr) return;
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {
        .max_send_wr = kDepth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    qp_ = ibv_create_qp(pd_, &wanted);
    connected_ = qp_ != nullptr && connect(port, gid, mtu);
  }
  ~SelfConnected() {
    // The window goes first. In Linux's rxe, ibv_destroy_qp() waits for the windows that are bound to the
    // queue pair.
    if (window_ != nullptr) ibv_dealloc_mw(window_);
    if (qp_ != nullptr) ibv_destroy_qp(qp_);
    if (queue_ != nullptr) ibv_destroy_cq(queue_);
    if (region_ != nullptr) ibv_dereg_mr(region_);
    if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  }
  SelfConnected(const SelfConnected&) = delete;
  SelfConnected& operator=(const SelfConnected&) = delete;

  bool connected() const noexcept { return connected_; }

  /// Probes a window that `invalidation` ends, either IBV_WR_LOCAL_INV or IBV_WR_SEND_WITH_INV. Called once.
  Finding probe(ibv_wr_opcode invalidation) {
    static_cast<void>(SLUICE_INVARIANT(connected_ && window_ == nullptr, queue_pair_state));
    window_ = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    if (window_ == nullptr) return Finding::Missing;
    const std::uint32_t rkey = ibv_inc_rkey(window_->rkey);
    ibv_send_wr bind{};
    bind.opcode = IBV_WR_BIND_MW;
    bind.bind_mw = {.mw = window_,
                    .rkey = rkey,
                    .bind_info = {.mr = region_,
                                  .addr = reinterpret_cast<std::uintptr_t>(memory_.data()),
                                  .length = kBytes,
                                  .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
    if (const Finding bound = finding(execute(bind)); bound != Finding::Works) return bound;
    window_->rkey = rkey;
    if (const Finding done = finding(read(rkey)); done != Finding::Works) return done;
    if (memory_[kBytes] != memory_[0]) return Finding::Missing;
    ibv_send_wr end{};
    end.opcode = invalidation;
    end.invalidate_rkey = rkey;
    if (invalidation == IBV_WR_SEND_WITH_INV && !post_receive()) return Finding::Missing;
    if (const Finding ended = finding(execute(end)); ended != Finding::Works) return ended;
    if (invalidation == IBV_WR_SEND_WITH_INV && received_rkey_ != rkey) return Finding::Missing;
    switch (read(rkey)) {
      case Outcome::Failed:
        return Finding::Works;
      case Outcome::Unreached:
        return Finding::Unknown;
      default:
        return Finding::Missing;
    }
  }
  /// Reports whether the provider accepts a Send with Invalidate. Its outcome does not matter.
  bool accepts_invalidation() {
    static_cast<void>(SLUICE_INVARIANT(connected_, queue_pair_state));
    ibv_send_wr send{};
    send.opcode = IBV_WR_SEND_WITH_INV;
    send.invalidate_rkey = kBytes;
    ibv_send_wr* refused = nullptr;
    return ibv_post_send(qp_, &send, &refused) == 0;
  }

 private:
  enum class Outcome : std::uint8_t {
    Done,
    Refused,    ///< by the provider
    Failed,     ///< with a completion
    Unreached,  ///< no completion in time, or retries were exhausted
  };
  static constexpr std::size_t kBytes = 64;
  static constexpr std::uint32_t kDepth = 8;
  static constexpr std::uint64_t kSendId = 1;
  static constexpr std::uint64_t kReceiveId = 2;

  static Finding finding(Outcome outcome) noexcept {
    if (outcome == Outcome::Done) return Finding::Works;
    return outcome == Outcome::Unreached ? Finding::Unknown : Finding::Missing;
  }

  bool connect(std::uint8_t port, const ibv_gid_entry& gid, ibv_mtu mtu) noexcept {
    static_cast<void>(SLUICE_INVARIANT(gid.port_num == port, table_index));
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = port;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ;
    if (ibv_modify_qp(qp_, &attributes,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
      return false;
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = mtu;
    attributes.dest_qp_num = qp_->qp_num;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = port;
    attributes.ah_attr.grh.dgid = gid.gid;
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid.gid_index);
    attributes.ah_attr.grh.hop_limit = 64;
    if (ibv_modify_qp(qp_, &attributes,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
      return false;
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 12;  // 16 ms
    attributes.retry_cnt = 1;
    attributes.max_rd_atomic = 1;
    return ibv_modify_qp(qp_, &attributes,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC) == 0;
  }

  bool post_receive() noexcept {
    static_cast<void>(SLUICE_INVARIANT(qp_ != nullptr, queue_pair_state));
    ibv_recv_wr receive{};
    receive.wr_id = kReceiveId;
    ibv_recv_wr* refused = nullptr;
    return ibv_post_recv(qp_, &receive, &refused) == 0;
  }

  /// Reads the window's memory to the bytes behind it.
  Outcome read(std::uint32_t rkey) noexcept {
    ibv_sge to{.addr = reinterpret_cast<std::uintptr_t>(memory_.data() + kBytes),
               .length = kBytes,
               .lkey = region_->lkey};
    ibv_send_wr wr{};
    wr.opcode = IBV_WR_RDMA_READ;
    wr.sg_list = &to;
    wr.num_sge = 1;
    wr.wr.rdma = {.remote_addr = reinterpret_cast<std::uintptr_t>(memory_.data()), .rkey = rkey};
    return execute(wr);
  }

  /// Posts a work request and polls for its completion. A Send with Invalidate has a second one.
  Outcome execute(ibv_send_wr& wr) noexcept {
    static_cast<void>(SLUICE_INVARIANT(qp_ != nullptr && queue_ != nullptr, queue_pair_state));
    wr.wr_id = kSendId;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* refused = nullptr;
    if (ibv_post_send(qp_, &wr, &refused) != 0) return Outcome::Refused;
    int awaited = wr.opcode == IBV_WR_SEND_WITH_INV ? 2 : 1;
    while (awaited > 0) {
      ibv_wc wc{};
      const int count = ibv_poll_cq(queue_, 1, &wc);
      if (count == 0 && monotonic_ns() >= deadline_ns_) return Outcome::Unreached;
      if (count == 0) continue;
      if (count < 0) return Outcome::Failed;
      if (wc.status == IBV_WC_RETRY_EXC_ERR || wc.status == IBV_WC_RESP_TIMEOUT_ERR)
        return Outcome::Unreached;
      if (wc.status != IBV_WC_SUCCESS) return Outcome::Failed;
      if (wc.wr_id == kReceiveId) received_rkey_ = wc.invalidated_rkey;
      --awaited;
    }
    return Outcome::Done;
  }

  const std::uint64_t deadline_ns_;
  alignas(kBytes) std::array<std::byte, 2 * kBytes> memory_{};
  ibv_pd* pd_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mw* window_ = nullptr;
  std::uint32_t received_rkey_ = 0;
  bool connected_ = false;
};

}  // namespace sluice::rdma::verbs
