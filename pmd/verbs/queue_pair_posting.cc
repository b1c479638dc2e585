// SPDX-License-Identifier: Apache-2.0
//
// The part of VerbsQueuePair that posts work requests to the provider, through either interface of
// libibverbs.
#include <endian.h>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/verbs/device.h"

namespace sluice::rdma::verbs {
namespace {

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

}  // namespace

std::uint32_t VerbsQueuePair::gather(const SendWr& wr, std::span<ibv_sge> into) const noexcept {
  std::uint32_t count = 0;
  for (const Sge& sge : wr.sges) {
    if (sge.length == 0) continue;  // some devices treat a length of zero as 2 GiB
    if (count == into.size()) break;
    into[count++] = {.addr = reinterpret_cast<std::uintptr_t>(sge.address),
                     .length = sge.length,
                     .lkey = device_.memory().device_lkey(sge.lkey, domain_)};
  }
  SLUICE_INVARIANT_DEBUG(count <= into.size(), buffer_bounds);
  return count;
}

/// Reports whether the data can be sent inline. The CPU reads inline data without the device's checks, so
/// data that the device would refuse is not inlined.
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

/// Translates the caller's flags. Signals work requests at regular intervals even if the caller did not
/// request it, because only completions free entries of the send queue.
unsigned VerbsQueuePair::flags_for(std::uint8_t flags, bool& signaled) noexcept {
  unsigned out = 0;
  signaled = (flags & kSignaled) != 0;
  if (signaled || ++since_signaled_ >= larger_of(sends_.depth() / 4, 1u) || has_ended()) {
    out |= IBV_SEND_SIGNALED;
    since_signaled_ = 0;
  }
  if (flags & kFence) out |= IBV_SEND_FENCE;
  if (flags & kSolicited) out |= IBV_SEND_SOLICITED;
  device_.stats().unsignaled += (out & IBV_SEND_SIGNALED) == 0;
  return out;
}

std::size_t VerbsQueuePair::post_send(std::span<const SendWr> wrs) noexcept {
  if (stage_.state() < QueuePairStage::Connected) return 0;
  std::size_t count = smaller_of<std::size_t>(wrs.size(), sends_.room());
  if (has_ended()) count = smaller_of(count, device_.completion_room());
  for (const SendWr& wr : wrs.first(count)) stage(wr);
  ring_doorbell();
  flush_sends_after_device();
  return count;
}

void VerbsQueuePair::stage(const SendWr& wr) noexcept {
  ++device_.stats().send_requests;
  SendEntry entry{
      .wr_id = wr.wr_id, .rkey = static_cast<std::uint32_t>(wr.rkey), .opcode = completion_opcode(wr.opcode)};
  const unsigned flags = flags_for(wr.flags, entry.signaled);
  const std::uint32_t index = sends_.push(entry);
  if (has_ended()) return;
  if (max_reads_ != 0 && must_hold(wr)) [[unlikely]]
    return hold(wr, index, flags);
  stage_for_device(wr, index, flags);
}

void VerbsQueuePair::hold(const SendWr& wr, std::uint32_t index, unsigned flags) noexcept {
  SLUICE_INVARIANT_DEBUG(!held_.full() && wr.sges.size() <= kMaxSge, ring_index);
  HeldWr held{.wr = wr, .index = index, .flags = flags, .sges = {}};
  for (std::size_t i = 0; i < wr.sges.size(); ++i) held.sges[i] = wr.sges[i];
  held_.push_back(held);
}

/// Stages the work requests that wait, up to the next RDMA Read that has no room.
void VerbsQueuePair::release_held() noexcept {
  if (!stage_.is(QueuePairStage::Connected)) return held_.clear();
  while (!held_.empty() && (held_.front().wr.opcode != SendOpcode::RdmaRead || reads_ < max_reads_)) {
    HeldWr held = held_.pop_front();
    held.wr.sges = {held.sges.data(), held.wr.sges.size()};
    stage_for_device(held.wr, held.index, held.flags);
  }
}

/// Stages a work request that the device has room for. The last RDMA Read that fits is signaled, because its
/// completion releases the work requests that wait.
void VerbsQueuePair::stage_for_device(const SendWr& wr, std::uint32_t index, unsigned flags) noexcept {
  SLUICE_INVARIANT_DEBUG(device_sends_ == index, ring_index);
  const std::uint64_t cookie = send_cookie(index);
  ++device_sends_;
  if (max_reads_ != 0 && wr.opcode == SendOpcode::RdmaRead && ++reads_ == max_reads_)
    flags |= IBV_SEND_SIGNALED;
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
  SLUICE_INVARIANT_DEBUG(chain_length_ == 0 && stage_.is(QueuePairStage::Connected), queue_pair_state);
  staged_ = true;
  device_.add_staged(*this);
  if (extended_ != nullptr) ibv_wr_start(extended_);
}

void VerbsQueuePair::stage_extended(const SendWr& wr, std::uint64_t cookie, unsigned flags,
                                    bool inlined) noexcept {
  SLUICE_INVARIANT_DEBUG(staged_ && extended_ != nullptr, queue_pair_state);
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
  SLUICE_INVARIANT_DEBUG(chain_length_ < kClassicBatch, ring_index);
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
  SLUICE_INVARIANT_DEBUG(extended_ == nullptr, queue_pair_state);
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
  SLUICE_INVARIANT_DEBUG(chain_length_ <= kClassicBatch && extended_ == nullptr, ring_index);
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

std::size_t VerbsQueuePair::post_recv(std::span<const RecvWr> wrs) noexcept {
  std::size_t count = smaller_of<std::size_t>(wrs.size(), receives_.room());
  if (has_ended()) count = smaller_of(count, device_.completion_room());
  std::size_t done = 0;
  while (!has_ended() && !shares_receives_ && done < count) {
    std::array<ibv_recv_wr, kClassicBatch> chain;
    std::array<ibv_sge, kClassicBatch> sges;
    const std::size_t part = smaller_of<std::size_t>(count - done, kClassicBatch);
    for (std::size_t i = 0; i < part; ++i) {
      const RecvWr& wr = wrs[done + i];
      sges[i] = {.addr = reinterpret_cast<std::uintptr_t>(wr.sge.address),
                 .length = wr.sge.length,
                 .lkey = device_.memory().device_lkey(wr.sge.lkey, domain_)};
      chain[i] = {.wr_id = Cookie{slot_, generation_, true, receives_.push(wr)}.packed(),
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
  SLUICE_INVARIANT_DEBUG(done == count && count <= wrs.size(), ring_index);
  flush_receives_after_device();
  return count;
}

std::optional<Rkey> VerbsQueuePair::bind_window(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey,
                                                AccessFlags access) noexcept {
  if (!stage_.is(QueuePairStage::Connected) || sends_.room() == 0 || !held_.empty()) return std::nullopt;
  const auto binding = device_.memory().bind(window, bytes, lkey, access, *this);
  if (!binding) return std::nullopt;
  ++device_.stats().windows_bound;
  bool signaled = false;
  const unsigned flags = flags_for(0, signaled);
  const std::uint64_t cookie =
      send_cookie(sends_.push({.rkey = binding->rkey, .opcode = WcOpcode::BindWindow}));
  ++device_sends_;
  SLUICE_INVARIANT_DEBUG(device_sends_ == sends_.head() && binding->window != nullptr, ring_index);
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
  // The provider of the classic interface reads the ibv_mw, so the request is posted before the rkey in the
  // ibv_mw is updated.
  if (extended_ == nullptr) ring_doorbell();
  if (has_ended()) return std::nullopt;
  binding->window->rkey = binding->rkey;
  return static_cast<Rkey>(binding->rkey);
}

}  // namespace sluice::rdma::verbs
