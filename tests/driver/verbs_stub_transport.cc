// SPDX-License-Identifier: Apache-2.0
//
// The data path of the stub: work requests, and data of queue pairs that are connected to one of this device.
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
  std::uint32_t reads = 0;  // of the chain, none of which has completed
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
      posted.immediate = wr->imm_data;
      posted.rkey = wr->wr.rdma.rkey;
      posted.remote_address = wr->wr.rdma.remote_addr;
    }
    reads += wr->opcode == IBV_WR_RDMA_READ;
    const bool full = provider_.read_queue != 0 && reads > provider_.read_queue;
    if (full || !accepts(posted) || !accepts_one()) {
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
  Pair& pair = pairs_.at(qp->qp_num);
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
    Posted receive{.wr_id = wr->wr_id, .queue_pair = qp->qp_num};
    receive.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    pair.posted_receives.push_back(receive);
  }
  if (pair.flushes) flush(pair);
  progress_all();
}

ibv_srq* VerbsStub::make_shared(ibv_pd* pd) {
  const std::lock_guard lock(lock_);
  auto* const made = new StubReceives;
  made->srq.context = pd->context;
  shared_.insert(made);
  return &made->srq;
}

void VerbsStub::post_shared(ibv_srq* queue, ibv_recv_wr* first) {
  const std::lock_guard lock(lock_);
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next) {
    Posted receive{.wr_id = wr->wr_id};
    receive.sges.assign(wr->sg_list, wr->sg_list + wr->num_sge);
    reinterpret_cast<StubReceives*>(queue)->receives.push_back(receive);
  }
  progress_all();
}

void VerbsStub::destroy_shared(ibv_srq* queue) {
  const std::lock_guard lock(lock_);
  auto* const gone = reinterpret_cast<StubReceives*>(queue);
  shared_.erase(gone);
  delete gone;
}

std::size_t VerbsStub::shared_receives() {
  const std::lock_guard lock(lock_);
  std::size_t sum = 0;
  for (const StubReceives* const shared : shared_) sum += shared->receives.size();
  return sum;
}

void VerbsStub::deliver(std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  Pair& pair = pairs_.at(queue_pair);
  auto& receives = receives_of(pair);
  complete_receive(pair, receives.front(), {});
  receives.pop_front();
}

void VerbsStub::deliver_late(std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  auto& receives = receives_of(pairs_.at(queue_pair));
  late_.push_back({.wr_id = receives.front().wr_id, .queue_pair = queue_pair});
  receives.pop_front();
}

// --- Execution

std::deque<VerbsStub::Posted>& VerbsStub::receives_of(Pair& pair) {
  return pair.shared != nullptr ? pair.shared->receives : pair.posted_receives;
}

VerbsStub::Pair* VerbsStub::peer_of(const Pair& pair) {
  const auto peer = pairs_.find(pair.peer);
  return peer != pairs_.end() ? &peer->second : nullptr;
}

void VerbsStub::execute(const Posted& posted) {
  Pair& pair = pairs_.at(posted.queue_pair);
  if (pair.in_error || pair.has_peer_here) {
    pair.waiting.push_back(posted);
    return pair.flushes ? flush(pair) : progress(pair);
  }
  posted_.push_back(posted);
  if (posted.opcode == IBV_WR_RDMA_READ) scatter(posted, posted.remote_address, true);
  if (peer_gone_)
    outstanding_.push_back(posted);
  else if (posted.signaled)
    complete(posted, IBV_WC_SUCCESS);
}

/// Executes work requests in order, up to one that has to wait for a Receive of the peer.
void VerbsStub::progress(Pair& pair) {
  while (!pair.in_error && !pair.waiting.empty()) {
    const Posted posted = pair.waiting.front();
    Pair* const peer = peer_of(pair);
    // The sender reads its memory before the peer answers that it is not ready.
    const bool refused = reads_memory(posted) && !covered(pair, posted.sges);
    const bool ready =
        refused || peer == nullptr || peer->in_error || !needs_receive(posted) || !receives_of(*peer).empty();
    constexpr std::uint8_t kForEver = 7;
    if (!ready && pair.rnr_retry == kForEver) return;
    pair.waiting.pop_front();
    ibv_wc_status status = IBV_WC_RNR_RETRY_EXC_ERR;
    if (refused)
      status = IBV_WC_LOC_PROT_ERR;
    else if (ready)
      status = transfer(pair, posted);
    if (posted.signaled || status != IBV_WC_SUCCESS) complete(posted, status);
    if (status != IBV_WC_SUCCESS) move_to_error(pair);
  }
}

/// Continues the queue pairs that wait, because Receives were posted.
void VerbsStub::progress_all() {
  for (auto& [number, pair] : pairs_) progress(pair);
}

/// Returns whether the device accesses memory by the keys of the work request.
bool VerbsStub::reads_memory(const Posted& posted) const {
  return posted.opcode != IBV_WR_BIND_MW && posted.opcode != IBV_WR_LOCAL_INV && !posted.inlined;
}

bool VerbsStub::needs_receive(const Posted& posted) const {
  switch (posted.opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return true;
    default:
      return false;
  }
}

/// A domain of a thread gives the rights of its parent.
bool VerbsStub::are_of_one_domain(const ibv_pd* one, const ibv_pd* other) const {
  const auto root = [&](const void* domain) {
    const auto parent = parents_.find(domain);
    return parent != parents_.end() ? parent->second : domain;
  };
  return root(one) == root(other);
}

bool VerbsStub::covered(const Pair& pair, const std::vector<ibv_sge>& sges) const {
  return std::all_of(sges.begin(), sges.end(), [&](const ibv_sge& sge) {
    const auto region = regions_.find(sge.lkey);
    if (region == regions_.end() || !are_of_one_domain(region->second->pd, pair.qp.qp_base.pd))
      return sge.length == 0;
    const auto start = reinterpret_cast<std::uintptr_t>(region->second->addr);
    return sge.addr >= start && sge.addr - start <= region->second->length &&
           sge.length <= region->second->length - (sge.addr - start);
  });
}

/// Executes a work request of a queue pair whose peer is of this device. Returns the status of the sender.
ibv_wc_status VerbsStub::transfer(Pair& pair, const Posted& posted) {
  if (posted.opcode == IBV_WR_BIND_MW) return bind(posted);
  if (posted.opcode == IBV_WR_LOCAL_INV) return invalidate(pair, posted.rkey);
  Pair* const peer = peer_of(pair);
  if (peer == nullptr || peer->in_error) return IBV_WC_RETRY_EXC_ERR;
  const bool to_memory = posted.opcode == IBV_WR_RDMA_READ || posted.opcode == IBV_WR_RDMA_WRITE ||
                         posted.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const ibv_wc_status status = to_memory ? access(*peer, posted) : send(*peer, posted);
  if (status == IBV_WC_REM_ACCESS_ERR) {
    add_event(IBV_EVENT_QP_ACCESS_ERR, *peer);
    move_to_error(*peer);
  }
  return status;
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

ibv_wc_status VerbsStub::invalidate(Pair& pair, std::uint32_t rkey) {
  Window* const window = window_at(rkey, pair.qp.qp_base.qp_num);
  if (window == nullptr) return IBV_WC_MW_BIND_ERR;
  window->queue_pair = 0;
  return IBV_WC_SUCCESS;
}

bool VerbsStub::is_allowed(const Window& window, const Posted& posted) const {
  const unsigned right = posted.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  if ((window.bound.mw_access_flags & right) == 0) return false;
  std::uint64_t start = window.bound.addr;
  std::uint64_t length = window.bound.length;
  if (!provider_.window_bounds && window.bound.mr != nullptr) {
    start = reinterpret_cast<std::uintptr_t>(window.bound.mr->addr);
    length = window.bound.mr->length;
  }
  const std::uint64_t offset = posted.remote_address - start;
  return posted.remote_address >= start && offset <= length && posted.bytes <= length - offset;
}

bool VerbsStub::is_in_region(const Pair& peer, const Posted& posted) const {
  const auto found = regions_.find(posted.rkey);
  if (found == regions_.end() || !are_of_one_domain(found->second->pd, peer.qp.qp_base.pd)) return false;
  const int right = posted.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
  const auto start = reinterpret_cast<std::uintptr_t>(found->second->addr);
  return (rights_.at(posted.rkey) & right) != 0 && posted.remote_address >= start &&
         posted.remote_address - start <= found->second->length &&
         posted.bytes <= found->second->length - (posted.remote_address - start);
}

/// Executes an RDMA Read or Write. InfiniBand does not check the rkey of one of no bytes.
ibv_wc_status VerbsStub::access(Pair& peer, const Posted& posted) {
  const Window* const window = window_at(posted.rkey, peer.qp.qp_base.qp_num);
  const bool allowed = window != nullptr ? is_allowed(*window, posted) : is_in_region(peer, posted);
  if (posted.bytes > 0 && !allowed) return IBV_WC_REM_ACCESS_ERR;
  if (posted.opcode == IBV_WR_RDMA_READ) {
    scatter(posted, posted.remote_address, false);
    return IBV_WC_SUCCESS;
  }
  auto* to = reinterpret_cast<std::byte*>(posted.remote_address);
  for (const ibv_sge& sge : posted.sges) {
    std::memmove(to, reinterpret_cast<const std::byte*>(sge.addr), sge.length);
    to += sge.length;
  }
  if (posted.opcode != IBV_WR_RDMA_WRITE_WITH_IMM) return IBV_WC_SUCCESS;
  ibv_wc wc{};
  wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  wc.byte_len = posted.bytes;
  wc.wc_flags = IBV_WC_WITH_IMM;
  wc.imm_data = posted.immediate;
  const Posted receive = receives_of(peer).front();
  receives_of(peer).pop_front();
  complete_receive(peer, receive, wc);
  return IBV_WC_SUCCESS;
}

/// Delivers a message to the first Receive of the peer, which has one.
ibv_wc_status VerbsStub::send(Pair& peer, const Posted& posted) {
  ibv_wc wc{};
  wc.opcode = IBV_WC_RECV;
  wc.byte_len = posted.bytes;
  if (posted.opcode == IBV_WR_SEND_WITH_INV) {
    const std::uint32_t key = provider_.invalidation == Provider::Invalidation::Whole ? posted.rkey : 0;
    if (invalidate(peer, key) != IBV_WC_SUCCESS) return IBV_WC_REM_OP_ERR;
    wc.wc_flags = provider_.invalidation_flag;
    wc.invalidated_rkey = key;
  } else if (posted.opcode == IBV_WR_SEND_WITH_IMM) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = posted.immediate;
  }
  const Posted receive = receives_of(peer).front();
  receives_of(peer).pop_front();
  std::uint64_t room = 0;
  for (const ibv_sge& sge : receive.sges) room += sge.length;
  if (posted.bytes > room)
    wc.status = IBV_WC_LOC_LEN_ERR;
  else if (!covered(peer, receive.sges))
    wc.status = IBV_WC_LOC_PROT_ERR;
  if (wc.status != IBV_WC_SUCCESS) {
    complete_receive(peer, receive, wc);
    move_to_error(peer);
    return wc.status == IBV_WC_LOC_LEN_ERR ? provider_.too_long : IBV_WC_REM_OP_ERR;
  }
  if (posted.bytes > 0) {  // a Receive of the driver has one element
    auto* to = reinterpret_cast<std::byte*>(receive.sges.at(0).addr);
    for (const ibv_sge& sge : posted.sges) {
      std::memcpy(to, reinterpret_cast<const std::byte*>(sge.addr), sge.length);
      to += sge.length;
    }
  }
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

}  // namespace sluice::rdma::conformance
