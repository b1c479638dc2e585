// SPDX-License-Identifier: Apache-2.0
//
// The part of the stub that a test controls, and the objects that are not on the data path.
#include "tests/driver/verbs_stub.h"

#include <algorithm>
#include <cerrno>

#include "tests/driver/verbs_stub_device.h"

namespace sluice::rdma::conformance {

VerbsStub& VerbsStub::get() {
  static VerbsStub stub;
  return stub;
}

void VerbsStub::select(const Provider& provider) {
  const std::lock_guard lock(lock_);
  provider_ = provider;
  set_driver(provider.driver);
}

void VerbsStub::hide_sysfs(bool hide) {
  hide_folder(hide);
}

void VerbsStub::set_iwarp(bool iwarp) {
  set_transport(iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB);
}

void VerbsStub::watch_this_thread() {
  const std::lock_guard lock(lock_);
  watched_ = std::this_thread::get_id();
  noted_.clear();
}

void VerbsStub::note(const char* function) {
  const std::lock_guard lock(lock_);
  if (std::this_thread::get_id() == watched_) noted_.push_back(function);
}

// --- Asynchronous events

void VerbsStub::raise(ibv_event_type type, std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  ibv_async_event event{};
  event.event_type = type;
  if (queue_pair != 0) event.element.qp = &pairs_.at(queue_pair).qp.qp_base;
  events_.push_back(event);
  signal_event();
}

bool VerbsStub::take_event(ibv_async_event& event) {
  const std::lock_guard lock(lock_);
  for (const std::uint32_t number : unflushed_)
    if (const auto pair = pairs_.find(number); pair != pairs_.end()) flush(pair->second);
  unflushed_.clear();
  std::erase_if(late_, [this](const Posted& receive) {
    const auto pair = pairs_.find(receive.queue_pair);
    const bool due = pair != pairs_.end() && pair->second.in_error;
    if (due) complete_receive(pair->second, receive, {});
    return due;
  });
  if (events_.empty()) return false;
  event = events_.front();
  events_.pop_front();
  take_signal();
  return true;
}

void VerbsStub::set_address(std::uint8_t last) {
  const std::lock_guard lock(lock_);
  address_ = last;
}

std::uint8_t VerbsStub::address() {
  const std::lock_guard lock(lock_);
  return address_;
}

void VerbsStub::hold_errors(bool hold) {
  holds_errors_ = hold;
  holds_errors_.notify_all();
}

// --- Memory

std::uint32_t VerbsStub::windows_made() {
  const std::lock_guard lock(lock_);
  return windows_made_;
}

ibv_mw* VerbsStub::make_window(ibv_pd* pd) {
  note("ibv_alloc_mw");
  const std::lock_guard lock(lock_);
  if (provider_.windows == Provider::Windows::None) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto* window = new Window;
  window->mw.context = pd->context;
  window->mw.pd = pd;
  window->mw.type = IBV_MW_TYPE_2;
  window->mw.rkey = next_key_++ << 8;
  ++windows_made_;
  windows_.insert(window);
  return &window->mw;
}

void VerbsStub::destroy_window(ibv_mw* mw) {
  const std::lock_guard lock(lock_);
  auto* const window = reinterpret_cast<Window*>(mw);  // the first member
  windows_.erase(window);
  delete window;
}

ibv_mr* VerbsStub::add_region(void* at, std::size_t bytes, int access) {
  const std::lock_guard lock(lock_);
  registered_.push_back({static_cast<const std::byte*>(at), bytes, access});
  auto* const region = new ibv_mr{};
  region->addr = at;
  region->length = bytes;
  region->lkey = region->rkey = next_key_++ << 8;
  regions_.insert(region);
  return region;
}

void VerbsStub::remove_region(ibv_mr* region) {
  const std::lock_guard lock(lock_);
  regions_.erase(region);
  delete region;
}

// --- Domains

ibv_td* VerbsStub::make_thread_domain() {
  note("ibv_alloc_td");
  const std::lock_guard lock(lock_);
  if (!provider_.thread_domains) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto* const made = new ibv_td{stub_context()};
  domains_of_threads_.insert(made);
  return made;
}

ibv_pd* VerbsStub::make_domain_of(const ibv_parent_domain_init_attr& wanted) {
  note("ibv_alloc_parent_domain");
  const std::lock_guard lock(lock_);
  auto* const made = new ibv_pd{stub_context(), 0};
  if (wanted.pd == stub_domain() && domains_of_threads_.contains(wanted.td)) domains_of_threads_.insert(made);
  return made;
}

void VerbsStub::forget_domain(const void* gone) {
  const std::lock_guard lock(lock_);
  domains_of_threads_.erase(gone);
}

std::uint32_t VerbsStub::domains_of_threads() {
  const std::lock_guard lock(lock_);
  return static_cast<std::uint32_t>(domains_of_threads_.size());
}

// --- Queues

StubQueue* VerbsStub::make_queue(std::uint32_t entries) {
  const std::lock_guard lock(lock_);
  if (std::uint64_t{entries} * provider_.completion_factor > provider_.max_completions) {
    errno = EINVAL;
    return nullptr;
  }
  auto* const made = new StubQueue;
  made->cq.context = stub_context();
  queues_.insert(made);
  return made;
}

void VerbsStub::destroy_queue(ibv_cq* queue) {
  const std::lock_guard lock(lock_);
  auto* const gone = reinterpret_cast<StubQueue*>(queue);  // the first member
  queues_.erase(gone);
  delete gone;
}

void VerbsStub::refuse_queue_pairs(bool refuse) {
  const std::lock_guard lock(lock_);
  refuses_ = refuse;
}

std::uint32_t VerbsStub::queue_pairs() {
  const std::lock_guard lock(lock_);
  return static_cast<std::uint32_t>(pairs_.size());
}

ibv_qp* VerbsStub::make(ibv_pd* pd, const ibv_qp_init_attr& wanted) {
  const std::lock_guard lock(lock_);
  for_one_thread_ = domains_of_threads_.contains(pd);
  if (refuses_ || wanted.cap.max_inline_data > provider_.max_inline) {
    ++refused_;
    errno = refuses_ ? ENOMEM : EINVAL;
    return nullptr;
  }
  const std::uint32_t number = next_number_++;
  Pair& pair = pairs_[number];
  ibv_qp& qp = pair.qp.qp_base;
  qp.context = stub_context();
  qp.qp_context = wanted.qp_context;
  qp.qp_num = number;
  pair.sends = reinterpret_cast<StubQueue*>(wanted.send_cq);
  pair.receives = reinterpret_cast<StubQueue*>(wanted.recv_cq);
  pair.shares_receives = wanted.srq != nullptr;
  return &qp;
}

void VerbsStub::destroy(ibv_qp* qp) {
  const std::lock_guard lock(lock_);
  const std::uint32_t number = qp->qp_num;
  unflushed_.erase(number);
  const std::size_t before = events_.size();
  std::erase_if(events_, [&](const ibv_async_event& event) {
    const bool of_queue_pair =
        event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED ||
        (event.event_type <= IBV_EVENT_PATH_MIG_ERR && event.event_type != IBV_EVENT_CQ_ERR);
    return of_queue_pair && event.element.qp == qp;
  });
  for (std::size_t i = events_.size(); i < before; ++i) take_signal();
  if (provider_.cleans_queues)
    for (StubQueue* const queue : queues_)
      std::erase_if(queue->completions, [&](const ibv_wc& wc) { return wc.qp_num == number; });
  pairs_.erase(number);
}

void VerbsStub::modify(const ibv_qp& qp, const ibv_qp_attr& attributes, int mask) {
  const bool ends = (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR;
  if (ends) holds_errors_.wait(true);
  const std::lock_guard lock(lock_);
  Pair& pair = pairs_.at(qp.qp_num);
  if ((mask & IBV_QP_AV) != 0) address_vector_ = attributes.ah_attr;
  if ((mask & IBV_QP_DEST_QPN) != 0) pair.peer = attributes.dest_qp_num;
  if ((mask & IBV_QP_RETRY_CNT) != 0) attributes_ = attributes;
  if (ends) move_to_error(pair);
}

}  // namespace sluice::rdma::conformance
