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

void VerbsStub::watch_no_thread() {
  const std::lock_guard lock(lock_);
  watched_ = {};
}

void VerbsStub::note(const char* function) {
  const std::lock_guard lock(lock_);
  if (std::this_thread::get_id() == watched_) noted_.push_back(function);
}

// --- Asynchronous events

namespace {

bool is_of_queue_pair(const ibv_async_event& event) {
  return event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED ||
         (event.event_type <= IBV_EVENT_PATH_MIG_ERR && event.event_type != IBV_EVENT_CQ_ERR);
}

}  // namespace

ibv_context* VerbsStub::open() {
  const std::lock_guard lock(lock_);
  ibv_context* const made = make_context();
  events_[made];
  return made;
}

void VerbsStub::close(ibv_context* context) {
  const std::lock_guard lock(lock_);
  events_.erase(context);
  free_context(context);
}

void VerbsStub::raise(ibv_event_type type, std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  if (queue_pair != 0) return add_event(type, pairs_.at(queue_pair));
  ibv_async_event event{};
  event.event_type = type;
  for (const auto& [context, events] : events_) add_event(context, event);
}

void VerbsStub::add_event(ibv_event_type type, Pair& pair) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = &pair.qp.qp_base;
  add_event(pair.qp.qp_base.context, event);
}

void VerbsStub::add_event(ibv_context* context, const ibv_async_event& event) {
  events_.at(context).push_back(event);
  signal_event(context);
}

bool VerbsStub::take_event(ibv_context* context, ibv_async_event& event) {
  const std::lock_guard lock(lock_);
  const auto here = [&](std::uint32_t number) {
    const auto pair = pairs_.find(number);
    return pair != pairs_.end() && pair->second.qp.qp_base.context == context ? &pair->second : nullptr;
  };
  std::erase_if(unflushed_, [&](std::uint32_t number) {
    Pair* const pair = here(number);
    if (pair != nullptr) flush(*pair);
    return pair != nullptr;
  });
  const std::size_t known = events_.at(context).size();
  std::erase_if(unreached_, [&](std::uint32_t number) {
    Pair* const pair = here(number);
    if (pair != nullptr) add_event(IBV_EVENT_QP_LAST_WQE_REACHED, *pair);
    return pair != nullptr;
  });
  auto& events = events_.at(context);
  if (known == 0) {  // the signal without an event
    take_signal(context);
    return false;
  }
  std::erase_if(late_, [&](const Posted& receive) {
    Pair* const pair = here(receive.queue_pair);
    const bool due = pair != nullptr && pair->in_error;
    if (due) complete_receive(*pair, receive, {});
    return due;
  });
  event = events.front();
  events.pop_front();
  take_signal(context);
  if (is_of_queue_pair(event)) ++unacknowledged_[event.element.qp];
  return true;
}

void VerbsStub::acknowledge(const ibv_async_event& event) {
  if (!is_of_queue_pair(event)) return;
  const std::lock_guard lock(lock_);
  if (--unacknowledged_.at(event.element.qp) == 0) unacknowledged_.erase(event.element.qp);
  acknowledged_.notify_all();
}

void VerbsStub::delay_last_receives(bool delay) {
  const std::lock_guard lock(lock_);
  delays_last_receives_ = delay;
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

std::uint32_t VerbsStub::expose(std::uint32_t queue_pair, std::span<std::byte> bytes, unsigned access) {
  const std::lock_guard lock(lock_);
  auto* const window = new Window;
  window->rkey = next_key_++ << 8;
  window->queue_pair = queue_pair;
  window->bound = {.mr = nullptr,
                   .addr = reinterpret_cast<std::uintptr_t>(bytes.data()),
                   .length = bytes.size(),
                   .mw_access_flags = access};
  window->of_peer = true;
  windows_.insert(window);
  return window->rkey;
}

ibv_mr* VerbsStub::add_region(ibv_pd* pd, void* at, std::size_t bytes, int access) {
  const std::lock_guard lock(lock_);
  registered_.push_back({static_cast<const std::byte*>(at), bytes, access});
  auto* const region = new ibv_mr{};
  region->context = pd->context;
  region->pd = pd;
  region->addr = at;
  region->length = bytes;
  region->lkey = region->rkey = next_key_++ << 8;
  regions_[region->lkey] = region;
  rights_[region->lkey] = access;
  return region;
}

std::size_t VerbsStub::regions_at(const std::byte* address) {
  const std::lock_guard lock(lock_);
  return static_cast<std::size_t>(std::count_if(
      regions_.begin(), regions_.end(), [&](const auto& region) { return region.second->addr == address; }));
}

void VerbsStub::hold_registrations(bool hold) {
  holds_registrations_.store(hold);
  holds_registrations_.notify_all();
}

void VerbsStub::await_registrations() {
  holds_registrations_.wait(true);
}

void VerbsStub::remove_region(ibv_mr* region) {
  const std::lock_guard lock(lock_);
  regions_.erase(region->lkey);
  rights_.erase(region->lkey);
  delete region;
}

// --- Domains

ibv_td* VerbsStub::make_thread_domain(ibv_context* context) {
  note("ibv_alloc_td");
  const std::lock_guard lock(lock_);
  if (!provider_.thread_domains) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  auto* const made = new ibv_td{context};
  domains_of_threads_.insert(made);
  return made;
}

ibv_pd* VerbsStub::make_domain_of(const ibv_parent_domain_init_attr& wanted) {
  note("ibv_alloc_parent_domain");
  const std::lock_guard lock(lock_);
  auto* const made = new ibv_pd{wanted.pd->context, 0};
  if (domains_of_threads_.contains(wanted.td)) domains_of_threads_.insert(made);
  parents_[made] = wanted.pd;
  return made;
}

void VerbsStub::forget_domain(const void* gone) {
  const std::lock_guard lock(lock_);
  domains_of_threads_.erase(gone);
  parents_.erase(gone);
}

std::uint32_t VerbsStub::domains_of_threads() {
  const std::lock_guard lock(lock_);
  return static_cast<std::uint32_t>(domains_of_threads_.size());
}

// --- Queues

StubQueue* VerbsStub::make_queue(ibv_context* context, std::uint32_t entries) {
  const std::lock_guard lock(lock_);
  const std::uint32_t most =
      provider_.completions_taken != 0 ? provider_.completions_taken : provider_.max_completions;
  if (std::uint64_t{entries} * provider_.completion_factor > most) {
    errno = EINVAL;
    return nullptr;
  }
  auto* const made = new StubQueue;
  made->cq.context = context;
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

void VerbsStub::set_next_number(std::uint32_t number) {
  const std::lock_guard lock(lock_);
  next_number_ = number;
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
  qp.context = pd->context;
  qp.pd = pd;
  qp.qp_context = wanted.qp_context;
  qp.qp_num = number;
  pair.sends = reinterpret_cast<StubQueue*>(wanted.send_cq);
  pair.receives = reinterpret_cast<StubQueue*>(wanted.recv_cq);
  pair.shared = reinterpret_cast<StubReceives*>(wanted.srq);  // the first member
  return &qp;
}

void VerbsStub::destroy(ibv_qp* qp) {
  std::unique_lock lock(lock_);
  const std::uint32_t number = qp->qp_num;
  unflushed_.erase(number);
  unreached_.erase(number);
  auto& events = events_.at(qp->context);
  const std::size_t before = events.size();
  std::erase_if(events, [&](const ibv_async_event& event) {
    return is_of_queue_pair(event) && event.element.qp == qp;
  });
  for (std::size_t i = events.size(); i < before; ++i) take_signal(qp->context);
  // ibv_destroy_qp(3) waits until the events of the queue pair that were taken are acknowledged.
  acknowledged_.wait(lock, [&] { return !unacknowledged_.contains(qp); });
  if (provider_.cleans_queues)
    for (StubQueue* const queue : queues_)
      std::erase_if(queue->completions, [&](const ibv_wc& wc) { return wc.qp_num == number; });
  std::erase_if(outstanding_, [&](const Posted& posted) { return posted.queue_pair == number; });
  std::erase_if(windows_, [&](const Window* window) {
    const bool ends = window->of_peer && window->queue_pair == number;
    if (ends) delete window;
    return ends;
  });
  pairs_.erase(number);
}

void VerbsStub::modify(const ibv_qp& qp, const ibv_qp_attr& attributes, int mask) {
  const bool ends = (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR;
  if (ends) holds_errors_.wait(true);
  const std::lock_guard lock(lock_);
  Pair& pair = pairs_.at(qp.qp_num);
  if ((mask & IBV_QP_AV) != 0) address_vector_ = attributes.ah_attr;
  if ((mask & IBV_QP_DEST_QPN) != 0) {
    pair.peer = attributes.dest_qp_num;
    pair.has_peer_here = pairs_.contains(pair.peer);
  }
  if ((mask & IBV_QP_RNR_RETRY) != 0) pair.rnr_retry = attributes.rnr_retry;
  if ((mask & IBV_QP_RETRY_CNT) != 0) attributes_ = attributes;
  if (ends) move_to_error(pair);
}

}  // namespace sluice::rdma::conformance
