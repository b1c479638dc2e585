// SPDX-License-Identifier: Apache-2.0
#include "tests/driver/verbs_stub.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#undef ibv_query_port
#undef ibv_reg_mr

namespace sluice::rdma::conformance {
namespace {

ibv_device device = [] {
  ibv_device made{};
  made.node_type = IBV_NODE_CA;
  made.transport_type = IBV_TRANSPORT_IB;
  std::strcpy(made.name, "stub0");
  std::strcpy(made.dev_path, "/");
  return made;
}();
ibv_device* devices[] = {&device, nullptr};
ibv_pd domain;
ibv_cq completion_queue;
ibv_mr region;
ibv_srq shared_queue;

int post_receives(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr**) {
  VerbsStub::get().post(qp, wr);
  return 0;
}

verbs_context with_extensions = [] {
  verbs_context extended{};
  extended.sz = sizeof extended;
  extended.alloc_td = [](ibv_context*, ibv_td_init_attr*) { return VerbsStub::get().make_thread_domain(); };
  extended.dealloc_td = [](ibv_td* gone) {
    VerbsStub::get().note("ibv_dealloc_td");
    VerbsStub::get().forget_domain(gone);
    delete gone;
    return 0;
  };
  extended.alloc_parent_domain = [](ibv_context*, ibv_parent_domain_init_attr* wanted) {
    return VerbsStub::get().make_domain_of(*wanted);
  };
  extended.create_qp_ex = [](ibv_context*, ibv_qp_init_attr_ex* wanted) {
    return VerbsStub::get().make_extended(*wanted);
  };
  ibv_context& made = extended.context;
  made.abi_compat = __VERBS_ABI_IS_EXTENDED;
  made.device = &device;
  made.async_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  made.ops.poll_cq = [](ibv_cq*, int count, ibv_wc* into) { return VerbsStub::get().poll(count, into); };
  made.ops.post_send = [](ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** refused) {
    return VerbsStub::get().post(qp, wr, refused);
  };
  made.ops.post_recv = post_receives;
  made.ops.post_srq_recv = [](ibv_srq*, ibv_recv_wr* wr, ibv_recv_wr**) {
    VerbsStub::get().post_shared(wr);
    return 0;
  };
  made.ops.alloc_mw = [](ibv_pd* pd, ibv_mw_type) { return VerbsStub::get().make_window(pd); };
  made.ops.dealloc_mw = [](ibv_mw* window) {
    VerbsStub::get().note("ibv_dealloc_mw");
    delete window;
    return 0;
  };
  return extended;
}();
ibv_context& context = with_extensions.context;

}  // namespace

VerbsStub& VerbsStub::get() {
  static VerbsStub stub;
  return stub;
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

void VerbsStub::raise(ibv_event_type type, std::uint32_t queue_pair) {
  const std::lock_guard lock(lock_);
  ibv_async_event event{};
  event.event_type = type;
  if (queue_pair != 0) event.element.qp = made_.at(queue_pair);
  events_.push_back(event);
  ::eventfd_write(context.async_fd, 1);
}

bool VerbsStub::take_event(ibv_async_event& event) {
  const std::lock_guard lock(lock_);
  if (events_.empty()) return false;
  event = events_.front();
  events_.pop_front();
  eventfd_t count = 0;
  ::eventfd_read(context.async_fd, &count);
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

void VerbsStub::refuse_queue_pairs(bool refuse) {
  const std::lock_guard lock(lock_);
  refuses_ = refuse;
}

std::uint32_t VerbsStub::queue_pairs() {
  const std::lock_guard lock(lock_);
  return queue_pairs_;
}

std::uint32_t VerbsStub::windows_made() {
  const std::lock_guard lock(lock_);
  return windows_made_;
}

ibv_mw* VerbsStub::make_window(ibv_pd* pd) {
  note("ibv_alloc_mw");
  const std::lock_guard lock(lock_);
  auto* window = new ibv_mw{};
  window->context = &context;
  window->pd = pd;
  window->type = IBV_MW_TYPE_2;
  window->rkey = ++windows_made_ << 8;
  return window;
}

ibv_mr* VerbsStub::add_region(void* at, std::size_t bytes, int access) {
  const std::lock_guard lock(lock_);
  registered_.push_back({static_cast<const std::byte*>(at), bytes, access});
  return &region;
}

ibv_td* VerbsStub::make_thread_domain() {
  note("ibv_alloc_td");
  const std::lock_guard lock(lock_);
  auto* const made = new ibv_td{&context};
  domains_of_threads_.insert(made);
  return made;
}

ibv_pd* VerbsStub::make_domain_of(const ibv_parent_domain_init_attr& wanted) {
  note("ibv_alloc_parent_domain");
  const std::lock_guard lock(lock_);
  auto* const made = new ibv_pd{&context, 0};
  if (wanted.pd == &domain && domains_of_threads_.contains(wanted.td)) domains_of_threads_.insert(made);
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

void VerbsStub::execute(const Posted& posted) {
  posted_.push_back(posted);
  if (peer_gone_)
    outstanding_.push_back(posted);
  else if (posted.signaled)
    complete(posted, IBV_WC_SUCCESS);
}

int VerbsStub::post(ibv_qp* qp, ibv_send_wr* first, ibv_send_wr** refused) {
  const std::lock_guard lock(lock_);
  for (ibv_send_wr* wr = first; wr != nullptr; wr = wr->next) {
    if (!accepts_one()) {
      *refused = wr;
      return ENOMEM;
    }
    Posted posted{.wr_id = wr->wr_id,
                  .queue_pair = qp->qp_num,
                  .opcode = wr->opcode,
                  .signaled = (wr->send_flags & IBV_SEND_SIGNALED) != 0,
                  .inlined = (wr->send_flags & IBV_SEND_INLINE) != 0};
    for (int i = 0; i < wr->num_sge; ++i) posted.bytes += wr->sg_list[i].length;
    execute(posted);
  }
  return 0;
}

void VerbsStub::post(ibv_qp* qp, ibv_recv_wr* first) {
  const std::lock_guard lock(lock_);
  for (const ibv_recv_wr* wr = first; wr != nullptr; wr = wr->next)
    receives_.push_back({.wr_id = wr->wr_id, .queue_pair = qp->qp_num});
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
  complete({.wr_id = shared_receives_.front(), .queue_pair = queue_pair}, IBV_WC_SUCCESS);
  shared_receives_.pop_front();
}

void VerbsStub::complete(const Posted& posted, ibv_wc_status status) {
  ibv_wc wc{};
  wc.wr_id = posted.wr_id;
  wc.status = status;
  wc.qp_num = posted.queue_pair;
  completions_.push_back(wc);
}

void VerbsStub::give_up() {
  const std::lock_guard lock(lock_);
  for (ibv_wc_status status = IBV_WC_RETRY_EXC_ERR; !outstanding_.empty(); status = IBV_WC_WR_FLUSH_ERR) {
    complete(outstanding_.front(), status);
    outstanding_.pop_front();
  }
}

int VerbsStub::poll(int count, ibv_wc* into) {
  const std::lock_guard lock(lock_);
  const auto taken = std::min(static_cast<std::size_t>(count), completions_.size());
  std::copy_n(completions_.begin(), taken, into);
  completions_.erase(completions_.begin(), completions_.begin() + static_cast<std::ptrdiff_t>(taken));
  return static_cast<int>(taken);
}

ibv_qp* VerbsStub::make(ibv_pd* pd, const ibv_qp_init_attr& wanted) {
  const std::lock_guard lock(lock_);
  for_one_thread_ = domains_of_threads_.contains(pd);
  if (refuses_ || wanted.cap.max_inline_data > max_inline_) {
    ++refused_;
    errno = refuses_ ? ENOMEM : EINVAL;
    return nullptr;
  }
  ibv_qp* const qp = &(new ibv_qp_ex{})->qp_base;
  qp->context = &context;
  qp->qp_context = wanted.qp_context;
  qp->qp_num = next_number_++;
  ++queue_pairs_;
  made_[qp->qp_num] = qp;
  return qp;
}

void VerbsStub::destroy(ibv_qp* qp) {
  const std::lock_guard lock(lock_);
  made_.erase(qp->qp_num);
  delete reinterpret_cast<ibv_qp_ex*>(qp);  // the base is the first member
  --queue_pairs_;
}

void VerbsStub::modify(const ibv_qp& qp, const ibv_qp_attr& attributes, int mask) {
  if ((mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR) holds_errors_.wait(true);
  const std::lock_guard lock(lock_);
  if ((mask & IBV_QP_AV) != 0) address_vector_ = attributes.ah_attr;
  if ((mask & IBV_QP_RETRY_CNT) != 0) attributes_ = attributes;
  if ((mask & IBV_QP_STATE) == 0 || attributes.qp_state != IBV_QPS_ERR) return;
  std::erase_if(receives_, [&](const Posted& receive) {
    if (receive.queue_pair != qp.qp_num) return false;
    complete(receive, IBV_WC_WR_FLUSH_ERR);
    return true;
  });
}

}  // namespace sluice::rdma::conformance

using sluice::rdma::conformance::VerbsStub;
namespace stub = sluice::rdma::conformance;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  VerbsStub::get().note("ibv_get_device_list");
  *count = 1;
  return stub::devices;
}
void ibv_free_device_list(ibv_device**) {}
const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}
ibv_context* ibv_open_device(ibv_device*) {
  VerbsStub::get().note("ibv_open_device");
  return &stub::context;
}
int ibv_close_device(ibv_context*) {
  VerbsStub::get().note("ibv_close_device");
  return 0;
}
int ibv_query_device(ibv_context*, ibv_device_attr* attributes) {
  VerbsStub::get().note("ibv_query_device");
  *attributes = {};
  attributes->max_sge = 16;
  attributes->max_qp_rd_atom = attributes->max_qp_init_rd_atom = 16;
  attributes->max_cqe = 1 << 16;
  attributes->max_mw = 1 << 16;
  attributes->max_srq = 1;
  attributes->phys_port_cnt = 1;
  attributes->device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  return 0;
}
int ibv_query_port(ibv_context*, std::uint8_t, _compat_ibv_port_attr* compat) {
  VerbsStub::get().note("ibv_query_port");
  auto& port = *reinterpret_cast<ibv_port_attr*>(compat);
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_4096;
  port.max_msg_sz = 1u << 30;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  port.gid_tbl_len = static_cast<int>(VerbsStub::get().gids());
  return 0;
}
ssize_t _ibv_query_gid_table(ibv_context*, ibv_gid_entry* entries, size_t room, std::uint32_t, size_t) {
  VerbsStub::get().note("ibv_query_gid_table");
  constexpr std::size_t kAddressesOfOctet = 256;
  const std::size_t count = VerbsStub::get().gids();
  const std::size_t first = VerbsStub::get().first_roce_v2();
  if (room < count) return -EINVAL;
  for (std::size_t i = 0; i < count; ++i) {
    entries[i] = {};
    entries[i].gid_index = static_cast<std::uint32_t>(i);
    entries[i].port_num = 1;
    entries[i].gid_type = i < first ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
    const std::size_t host = VerbsStub::get().address() + (i < first ? 0 : i - first);
    const std::uint8_t mapped[] = {0xff,
                                   0xff,
                                   192,
                                   0,
                                   static_cast<std::uint8_t>(2 + host / kAddressesOfOctet),
                                   static_cast<std::uint8_t>(host % kAddressesOfOctet)};
    std::copy(std::begin(mapped), std::end(mapped), entries[i].gid.raw + 10);
  }
  return static_cast<ssize_t>(count);
}
ibv_pd* ibv_alloc_pd(ibv_context*) {
  VerbsStub::get().note("ibv_alloc_pd");
  stub::domain.context = &stub::context;
  return &stub::domain;
}
int ibv_dealloc_pd(ibv_pd* pd) {
  VerbsStub::get().note("ibv_dealloc_pd");
  if (pd == &stub::domain) return 0;
  VerbsStub::get().forget_domain(pd);
  delete pd;
  return 0;
}
ibv_mr* ibv_reg_mr(ibv_pd*, void* at, size_t bytes, int access) {
  VerbsStub::get().note("ibv_reg_mr");
  return VerbsStub::get().add_region(at, bytes, access);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void* at, size_t bytes, std::uint64_t, unsigned access) {
  VerbsStub::get().note("ibv_reg_mr_iova2");
  return VerbsStub::get().add_region(at, bytes, static_cast<int>(access));
}
int ibv_dereg_mr(ibv_mr*) {
  VerbsStub::get().note("ibv_dereg_mr");
  return 0;
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context*) {
  VerbsStub::get().note("ibv_create_comp_channel");
  errno = EOPNOTSUPP;
  return nullptr;
}
ibv_cq* ibv_create_cq(ibv_context*, int, void*, ibv_comp_channel*, int) {
  VerbsStub::get().note("ibv_create_cq");
  stub::completion_queue.context = &stub::context;
  return &stub::completion_queue;
}
int ibv_destroy_cq(ibv_cq*) {
  VerbsStub::get().note("ibv_destroy_cq");
  return 0;
}
ibv_srq* ibv_create_srq(ibv_pd*, ibv_srq_init_attr*) {
  VerbsStub::get().note("ibv_create_srq");
  stub::shared_queue.context = &stub::context;
  return &stub::shared_queue;
}
int ibv_destroy_srq(ibv_srq*) {
  VerbsStub::get().note("ibv_destroy_srq");
  VerbsStub::get().forget_shared_receives();
  return 0;
}
int ibv_get_async_event(ibv_context*, ibv_async_event* event) {
  VerbsStub::get().note("ibv_get_async_event");
  return VerbsStub::get().take_event(*event) ? 0 : -1;
}
void ibv_ack_async_event(ibv_async_event*) {
  VerbsStub::get().note("ibv_ack_async_event");
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  VerbsStub::get().note("ibv_create_qp");
  return VerbsStub::get().make(pd, *wanted);
}
int ibv_destroy_qp(ibv_qp* qp) {
  VerbsStub::get().note("ibv_destroy_qp");
  VerbsStub::get().destroy(qp);
  return 0;
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  VerbsStub::get().note("ibv_modify_qp");
  VerbsStub::get().modify(*qp, *attributes, mask);
  return 0;
}

}  // extern "C"
