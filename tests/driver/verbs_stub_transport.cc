// SPDX-License-Identifier: Apache-2.0
//
// The data path of the stub: work requests, data of queue pairs that are connected to one of this device,
// completions and flushes.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/driver/verbs_stub.h"
#include "tests/driver/verbs_stub_device.h"

namespace sluice::rdma::conformance {

// --- Posting

void VerbsStub::refuse_posts_after(std::size_t count) {
  const std::lock_guard lock(lock_);
  accepts_ = count;
}

void VerbsStub::accept_posts() {
  const std::lock_guard lock(lock_);
  accepts_.reset();
}

bool VerbsStub::accepts_one() {
  if (!accepts_) return true;
  if (*accepts_ == 0) return false;
  --*accepts_;
  return true;
}

/// Returns whether the provider knows the operation and has room for it.
bool VerbsStub::accepts(const Posted& posted) const {
  switch (posted.opcode) {
    case IBV_WR_SEND_WITH_INV:
      return provider_.invalidation != Provider::Invalidation::Refused;
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
      return provider_.windows == Provider::Windows::Whole;
    case IBV_WR_RDMA_READ:
      break;
    default:
      return true;
  }
  if (provider_.excess == Provider::ExcessSges::Refused && posted.sges.size() > provider_.read_sges)
    return false;
  const auto reads = std::count_if(outstanding_.begin(), outstanding_.end(), [&](const Posted& other) {
    return other.opcode == IBV_WR_RDMA_READ && other.queue_pair == posted.queue_pair;
  });
  return provider_.read_queue == 0 || static_cast<std::size_t>(reads) < provider_.read_queue;
}

int VerbsStub::post(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** refused) {
  const std::lock_guard lock(lock_);
  for (ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
    Posted posted{.wr_id = wr->wr_id,
                  .queue_pair = qp->qp_num,
                  .opcode = wr->opcode,
                  .signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0,
                  .inlined = (wr->send_flags & IBV_SEND_INLINE) != 0};
    posted.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    for (const ibv_sge& sge : posted.sges) posted.bytes += sge.length;
    if (wr->opcode == IBV_WR_BIND_MW) {
      posted.window = wr->bind_mw.mw;
      posted.rkey = wr->bind_mw.rkey;
      posted.bind = wr->bind_mw.bind_info;
    } else if (wr->opcode == IBV_WR_LOCAL_INV || wr->opcode == IBV_WR_SEND_WITH_INV) {
      posted.rkey = wr->invalidate_rkey;
    } else {
      posted.rkey = wr->wr.rdma.rkey;
      posted.remote_address = wr->wr.rdma.remote_addr;
    }
    if (!accepts(posted) || !accepts_one()) {
      *refused = wr;
      return ENOMEM;
    }
    execute(posted);
  }
  return 0;
}

int VerbsStub::post_staged(const ibv_qp_ex& qp) {
  const std::lock_guard lock(lock_);
  std::vector<Posted> batch;
  bool accepted = true;
  for (const Posted& posted : staged_) {
    if (posted.queue_pair != qp.qp_base.qp_num) continue;
    accepted = accepted && accepts(posted);
    batch.push_back(posted);
  }
  std::erase_if(staged_, [&](const Posted& posted) { return posted.queue_pair == qp.qp_base.qp_num; });
  if (!accepted || (accepts_ && *accepts_ < batch.size())) {
    if (accepts_) accepts_ = 0;
    return ENOMEM;
  }
  for (const Posted& posted : batch) {
    accepts_one();
    execute(posted);
  }
  return 0;
}

void VerbsStub::post(ibv_qp* qp, ibv_recv_wr* first) {
  const std::lock_guard lock(lock_);
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
    Posted receive{.wr_id = wr->wr_id, .queue_pair = qp->qp_num};
    receive.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    pairs_.at(qp->qp_num).posted_receives.push_back(receive);
  }
}

void VerbsStub::post_shared(ibv_recv_wr* first) {
  const std::lock_guard lock(lock_);
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) shared_receives_.push_back(wr->wr_id);
}

void VerbsStub::forget_shared_receives() {
  const std::lock_guard lock(lock_);
  shared_receives_.clear();
}

std::size_t VerbsStub::shared_receives() {
  const std::lock_guard lock(lock_);
  return shared_receives_.size();
}

void VerbsStub::deliver(std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  complete_receive(pairs_.at(queue_pair), {.wr_id = shared_receives_.front()}, {});
  shared_receives_.pop_front();
}

void VerbsStub::deliver_late(std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  late_.push_back({.wr_id = shared_receives_.front(), .queue_pair = queue_pair});
  shared_receives_.pop_front();
}

// --- Execution

VerbsStub::Pair* VerbsStub::peer_of(const Pair& pair) {
  const auto peer = pairs_.find(pair.peer);
  return peer != pairs_.end() ? &peer->second : nullptr;
}

void VerbsStub::execute(const Posted& posted) {
  Pair& pair = pairs_.at(posted.queue_pair);
  Pair* const peer = peer_of(pair);
  if (pair.in_error) return complete(posted, IBV_WC_WR_FLUSH_ERR);
  if (peer != nullptr) {
    const ibv_wc_status status = transfer(pair, *peer, posted);
    if (posted.signaled || status != IBV_WC_SUCCESS) complete(posted, status);
    if (status != IBV_WC_SUCCESS) move_to_error(pair);
    return;
  }
  posted_.push_back(posted);
  if (posted.opcode == IBV_WR_RDMA_READ) scatter(posted, posted.remote_address, true);
  if (peer_gone_)
    outstanding_.push_back(posted);
  else if (posted.signaled)
    complete(posted, IBV_WC_SUCCESS);
}

/// Executes a work request between queue pairs of this device. Returns the status of the sender.
ibv_wc_status VerbsStub::transfer(Pair& pair, Pair& peer, const Posted& posted) {
  switch (posted.opcode) {
    case IBV_WR_BIND_MW:
      return bind(posted);
    case IBV_WR_LOCAL_INV: {
      Window* const window = window_at(posted.rkey, pair.qp.qp_base.qp_num);
      if (window == nullptr) return IBV_WC_MW_BIND_ERR;
      window->queue_pair = 0;
      return IBV_WC_SUCCESS;
    }
    case IBV_WR_RDMA_READ:
    case IBV_WR_RDMA_WRITE:
      return access(peer, posted);
    default:
      return send(peer, posted);
  }
}

VerbsStub::Window* VerbsStub::window_at(std::uint32_t rkey, std::uint32_t queue_pair) {
  for (Window* const window : windows_)
    if (window->queue_pair != 0 && window->queue_pair == queue_pair && window->rkey == rkey) return window;
  return nullptr;
}

ibv_wc_status VerbsStub::bind(const Posted& posted) {
  auto* const window = reinterpret_cast<Window*>(posted.window);  // the first member
  if (window->queue_pair != 0) return IBV_WC_MW_BIND_ERR;
  window->queue_pair = posted.queue_pair;
  window->rkey = posted.rkey;
  window->bound = posted.bind;
  return IBV_WC_SUCCESS;
}

ibv_wc_status VerbsStub::access(Pair& peer, const Posted& posted) {
  const Window* const window = window_at(posted.rkey, peer.qp.qp_base.qp_num);
  if (window == nullptr) return IBV_WC_REM_ACCESS_ERR;
  const std::uint64_t start = window->bound.addr;
  if (posted.remote_address < start || posted.remote_address + posted.bytes > start + window->bound.length)
    return IBV_WC_REM_ACCESS_ERR;
  if (posted.opcode == IBV_WR_RDMA_READ) scatter(posted, posted.remote_address, false);
  return IBV_WC_SUCCESS;
}

/// Delivers a message without its data.
ibv_wc_status VerbsStub::send(Pair& peer, const Posted& posted) {
  if (peer.posted_receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
  ibv_wc wc{};
  wc.byte_len = posted.bytes;
  if (posted.opcode == IBV_WR_SEND_WITH_INV) {
    const std::uint32_t key = provider_.invalidation == Provider::Invalidation::Whole ? posted.rkey : 0;
    Window* const window = window_at(key, peer.qp.qp_base.qp_num);
    if (window == nullptr) return IBV_WC_REM_OP_ERR;
    window->queue_pair = 0;
    wc.wc_flags = IBV_WC_WITH_INV;
    wc.invalidated_rkey = key;
  }
  const Posted receive = peer.posted_receives.front();
  peer.posted_receives.pop_front();
  complete_receive(peer, receive, wc);
  return IBV_WC_SUCCESS;
}

/// Writes the data of an RDMA Read, of a remote peer or of the memory at `at`.
void VerbsStub::scatter(const Posted& posted, std::uint64_t at, bool remote) const {
  std::size_t elements = posted.sges.size();
  if (provider_.excess == Provider::ExcessSges::FirstOnly)
    elements = std::min<std::size_t>(elements, provider_.read_sges);
  for (std::size_t i = 0; i < elements; ++i) {
    const ibv_sge& sge = posted.sges[i];
    auto* const to = reinterpret_cast<std::byte*>(sge.addr);
    if (remote)
      for (std::uint32_t k = 0; k < sge.length; ++k) to[k] = remote_byte(at + k);
    else
      std::memmove(to, reinterpret_cast<const std::byte*>(at), sge.length);
    at += sge.length;
  }
}

// --- Completion

void VerbsStub::complete(const Posted& posted, ibv_wc_status status) {
  const auto pair = pairs_.find(posted.queue_pair);
  if (pair == pairs_.end()) return;
  ibv_wc wc{};
  wc.wr_id = posted.wr_id;
  wc.status = status;
  wc.qp_num = posted.queue_pair;
  if (status != IBV_WC_SUCCESS && status != IBV_WC_WR_FLUSH_ERR) wc.vendor_err = kVendorError;
  pair->second.sends->completions.push_back(wc);
}

void VerbsStub::complete_receive(Pair& pair, const Posted& receive, ibv_wc wc) {
  wc.wr_id = receive.wr_id;
  wc.qp_num = pair.qp.qp_base.qp_num;
  wc.opcode = IBV_WC_RECV;
  pair.receives->completions.push_back(wc);
}

void VerbsStub::find_peer() {
  const std::lock_guard lock(lock_);
  peer_gone_ = false;
  for (; !outstanding_.empty(); outstanding_.pop_front())
    if (outstanding_.front().signaled) complete(outstanding_.front(), IBV_WC_SUCCESS);
}

void VerbsStub::give_up() {
  const std::lock_guard lock(lock_);
  for (ibv_wc_status status = IBV_WC_RETRY_EXC_ERR; !outstanding_.empty(); status = IBV_WC_WR_FLUSH_ERR) {
    complete(outstanding_.front(), status);
    outstanding_.pop_front();
  }
}

void VerbsStub::move_to_error(Pair& pair) {
  if (pair.in_error) return;
  pair.in_error = true;
  if (pair.shares_receives && provider_.last_receive_event) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    event.element.qp = &pair.qp.qp_base;
    events_.push_back(event);
    signal_event();
  }
  switch (provider_.flush) {
    case Provider::Flush::AtOnce:
      return flush(pair);
    case Provider::Flush::AtEvents: {
      unflushed_.insert(pair.qp.qp_base.qp_num);
      ibv_async_event event{};
      event.event_type = IBV_EVENT_QP_FATAL;
      event.element.qp = &pair.qp.qp_base;
      events_.push_back(event);
      return signal_event();
    }
    case Provider::Flush::Never:
      return;
  }
}

void VerbsStub::flush(Pair& pair) {
  for (const Posted& receive : pair.posted_receives) {
    ibv_wc wc{};
    wc.status = IBV_WC_WR_FLUSH_ERR;
    complete_receive(pair, receive, wc);
  }
  pair.posted_receives.clear();
}

int VerbsStub::poll(StubQueue& queue, int count, ibv_wc* into) {
  const std::lock_guard lock(lock_);
  auto& completions = queue.completions;
  const auto taken = std::min(static_cast<std::size_t>(count), completions.size());
  std::copy_n(completions.begin(), taken, into);
  completions.erase(completions.begin(), completions.begin() + static_cast<std::ptrdiff_t>(taken));
  return static_cast<int>(taken);
}

}  // namespace sluice::rdma::conformance
