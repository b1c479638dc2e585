// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/setup_thread.h"

#include <fcntl.h>
#include <pthread.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/verbs/device.h"
#include "pmd/verbs/monotonic.h"
#include "pmd/verbs/ports.h"

namespace sluice::rdma::verbs {
namespace {

/// RNR NAK timer code: the peer retries after 0.64 ms (InfiniBand volume 1, table 45).
constexpr std::uint8_t kRnrTimer = 12;
constexpr std::uint8_t kHopLimit = 64;
/// Values of max_inline_data to try, in bytes. A provider refuses an unsupported value instead of reducing
/// it; irdma supports 101.
constexpr std::uint32_t kInlineChoices[] = {256, 192, 128, 96, 64, 0};

ibv_mtu mtu_of(std::uint16_t bytes) noexcept {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

ibv_qp_init_attr_ex wanted_of(const VerbsDevice& device, const Hardware& hardware) noexcept {
  const QueuePairLimits& limits = hardware.limits;
  ibv_srq* const shared = device.shared_receive_queue();
  ibv_qp_init_attr_ex wanted{};
  wanted.send_cq = wanted.recv_cq = hardware.completions->handle();
  wanted.qp_type = IBV_QPT_RC;
  wanted.cap = {.max_send_wr = limits.send_depth,
                .max_recv_wr = shared != nullptr ? 0 : limits.recv_depth,
                .max_send_sge = smaller_of(limits.max_send_sge, device.limits().max_send_sge),
                .max_recv_sge = shared != nullptr ? 0u : 1u,
                .max_inline_data = 0};
  wanted.srq = shared;
  wanted.pd = device.protection_domain(limits.domain);
  return wanted;
}

void want_extended(const VerbsDevice& device, ibv_qp_init_attr_ex& wanted) noexcept {
  wanted.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  wanted.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
                          IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;
  if (device.limits().remote_invalidation) wanted.send_ops_flags |= IBV_QP_EX_WITH_SEND_WITH_INV;
  if (device.limits().max_windows > 0)
    wanted.send_ops_flags |= IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
}

/// Reports whether the provider has set every function that the driver calls. A provider may accept a flag of
/// send_ops_flags without implementing it.
bool has_functions(const ibv_qp_ex& qp, std::uint64_t flags) noexcept {
  const auto has = [flags](std::uint64_t flag, bool function) { return (flags & flag) == 0 || function; };
  return qp.wr_start != nullptr && qp.wr_complete != nullptr && qp.wr_abort != nullptr &&
         qp.wr_set_sge != nullptr && qp.wr_set_sge_list != nullptr && qp.wr_set_inline_data != nullptr &&
         qp.wr_set_inline_data_list != nullptr && has(IBV_QP_EX_WITH_SEND, qp.wr_send != nullptr) &&
         has(IBV_QP_EX_WITH_SEND_WITH_IMM, qp.wr_send_imm != nullptr) &&
         has(IBV_QP_EX_WITH_RDMA_WRITE, qp.wr_rdma_write != nullptr) &&
         has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, qp.wr_rdma_write_imm != nullptr) &&
         has(IBV_QP_EX_WITH_RDMA_READ, qp.wr_rdma_read != nullptr) &&
         has(IBV_QP_EX_WITH_SEND_WITH_INV, qp.wr_send_inv != nullptr) &&
         has(IBV_QP_EX_WITH_LOCAL_INV, qp.wr_local_inv != nullptr) &&
         has(IBV_QP_EX_WITH_BIND_MW, qp.wr_bind_mw != nullptr);
}

/// Moves the queue pair to Init. Returns zero or an error number.
int to_init(ibv_qp* qp, std::uint8_t port) noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = 0;
  attributes.port_num = port;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

bool to_error(ibv_qp* qp) noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(qp, &attributes, IBV_QP_STATE) == 0;
}

/// Replaces windows by new ones. A window that the device does not deallocate is not used again, because it
/// may still be bound.
bool replace_windows(std::vector<MemoryTable::Replacement>& windows) noexcept {
  for (MemoryTable::Replacement& window : windows) {
    if (!SLUICE_INVARIANT(window.handle != nullptr, queue_pair_state)) continue;
    ibv_pd* const pd = window.handle->pd;
    const bool ended = ibv_dealloc_mw(window.handle) == 0;
    window.handle = ended ? ibv_alloc_mw(pd, IBV_MW_TYPE_2) : nullptr;
  }
  return true;
}

}  // namespace

SetupThread::SetupThread(VerbsDevice& device, std::size_t slots, std::size_t regions)
    : device_(device),
      hardware_(slots),
      wanted_(slots * kStepsPerSlot + regions * kStepsPerRegion),
      results_(slots * kStepsPerSlot + regions * kStepsPerRegion),
      thread_([this] { run(); }) {
  ::pthread_setname_np(thread_.native_handle(), "verbs-setup");
}

SetupThread::~SetupThread() {
  ask(SetupStep::Stop, 0);
  thread_.join();
}

void SetupThread::run() noexcept {
  for (Wanted wanted = wanted_.await(); wanted.step != SetupStep::Stop; wanted = wanted_.await())
    results_.push({wanted.step, wanted.slot, take_step(wanted)});
}

bool SetupThread::take_step(const Wanted& wanted) noexcept {
  if (wanted.step == SetupStep::RegisterRegion) return device_.call_regions().register_now(wanted.slot);
  if (wanted.step == SetupStep::DeregisterRegion) return device_.call_regions().deregister_now(wanted.slot);
  if (!SLUICE_INVARIANT(wanted.slot < hardware_.size(), table_index)) return false;
  Hardware& hardware = hardware_[wanted.slot];
  switch (wanted.step) {
    case SetupStep::Make:
      return make(hardware);
    case SetupStep::Connect:
      return connect(hardware);
    case SetupStep::Fail:
      return fail(hardware);
    case SetupStep::Destroy:
      return destroy(hardware);
    case SetupStep::ReplaceWindows:
      return replace_windows(hardware.windows);
    case SetupStep::Attach:
      return device_.attach_again();
    case SetupStep::Detach:
      for (const Hardware& other : hardware_)
        static_cast<void>(SLUICE_INVARIANT(other.state.is(HardwareState::None), queue_pair_state));
      device_.detach();
      return true;
    case SetupStep::RegisterRegion:
    case SetupStep::DeregisterRegion:
    case SetupStep::Stop:
      break;
  }
  return false;
}

/// Creates a queue pair. Tries less inline data if the device refuses, because some devices count it
/// differently, and then the classic interface. Does the latter as well if the extended interface lacks a
/// function.
bool SetupThread::make(Hardware& hardware) noexcept {
  static_cast<void>(SLUICE_INVARIANT(
      hardware.completions != nullptr && inline_choice_ < std::size(kInlineChoices), queue_pair_state));
  hardware.qp = nullptr;
  hardware.extended = nullptr;
  ibv_qp_init_attr_ex wanted = wanted_of(device_, hardware);
  for (const bool extended : {true, false}) {
    if (extended && !device_.prefers_extended_posting()) continue;
    for (std::size_t i = inline_choice_; i < std::size(kInlineChoices) && hardware.qp == nullptr; ++i) {
      wanted.cap.max_inline_data = kInlineChoices[i];
      wanted.comp_mask = IBV_QP_INIT_ATTR_PD;
      if (extended) want_extended(device_, wanted);
      hardware.qp = ibv_create_qp_ex(device_.context(), &wanted);
      if (hardware.qp != nullptr) inline_choice_ = i;
    }
    if (hardware.qp == nullptr) continue;
    if (!extended) break;
    hardware.extended = ibv_qp_to_qp_ex(hardware.qp);
    if (hardware.extended != nullptr && has_functions(*hardware.extended, wanted.send_ops_flags)) break;
    ibv_destroy_qp(hardware.qp);
    hardware.qp = nullptr;
    hardware.extended = nullptr;
  }
  if (hardware.qp == nullptr) {
    hardware.problem = "The RDMA device " + device_.device_name() + " cannot create a queue pair with " +
                       std::to_string(hardware.limits.send_depth) + " send and " +
                       std::to_string(hardware.limits.recv_depth) + " receive work requests (" +
                       std::strerror(errno) +
                       "). Lower [transport] credits. `sluicectl devices` shows the device's limits.";
    return false;
  }
  // rdma-core 44's rxe corrupts inline data posted through the extended interface.
  hardware.max_inline =
      hardware.extended != nullptr && device_.in_software() ? 0 : wanted.cap.max_inline_data;
  if (const int failed = to_init(hardware.qp, device_.port()); failed != 0) {
    ibv_destroy_qp(hardware.qp);
    hardware.qp = nullptr;
    hardware.extended = nullptr;
    hardware.problem = "The RDMA device " + device_.device_name() + " refuses a queue pair on port " +
                       std::to_string(device_.port()) + " (" + std::strerror(failed) + ").";
    return false;
  }
  hardware.state.transition(HardwareState::Init);
  return true;
}

bool SetupThread::connect(Hardware& hardware) const noexcept {
  if (!SLUICE_INVARIANT(hardware.state.is(HardwareState::Init), queue_pair_state)) return false;
  const RcAttributes& attributes = hardware.attributes;
  const auto gid = device_.gid_index(attributes.local);
  if (!gid) return false;
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = mtu_of(attributes.path_mtu);
  receive.dest_qp_num = static_cast<std::uint32_t>(attributes.remote_qp);
  receive.rq_psn = attributes.receive_psn;
  receive.max_dest_rd_atomic = static_cast<std::uint8_t>(
      smaller_of<int>(attributes.responder_resources, device_.attributes().max_qp_rd_atom));
  receive.min_rnr_timer = kRnrTimer;
  receive.ah_attr.is_global = 1;
  receive.ah_attr.port_num = device_.port();
  receive.ah_attr.sl = attributes.service_level;
  std::memcpy(receive.ah_attr.grh.dgid.raw, attributes.remote.bytes.data(), attributes.remote.bytes.size());
  receive.ah_attr.grh.sgid_index = *gid;
  receive.ah_attr.grh.hop_limit = kHopLimit;
  receive.ah_attr.grh.traffic_class = attributes.traffic_class;
  if (ibv_modify_qp(hardware.qp, &receive,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
    return false;
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = attributes.ack_timeout;
  send.retry_cnt = attributes.retry_count;
  send.rnr_retry = smaller_of(attributes.rnr_retry, hardware.limits.rnr_retry);
  send.sq_psn = attributes.send_psn;
  send.max_rd_atomic = static_cast<std::uint8_t>(
      smaller_of<int>(attributes.initiator_depth, device_.attributes().max_qp_init_rd_atom));
  if (ibv_modify_qp(hardware.qp, &send,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                        IBV_QP_MAX_QP_RD_ATOMIC) != 0)
    return false;
  hardware.state.transition(HardwareState::ReadyToSend);
  return true;
}

/// Moves the queue pair to Error. Returns false if the device refuses.
bool SetupThread::fail(Hardware& hardware) noexcept {
  if (!SLUICE_INVARIANT(hardware.qp != nullptr, queue_pair_state)) return false;
  if (!to_error(hardware.qp)) return false;
  hardware.state.transition(HardwareState::Error);
  if (device_.shared_receive_queue() != nullptr) device_.await_last_receive(hardware.qp->qp_num);
  return true;
}

/// Destroys the queue pair. An ibv_qp that the provider refuses to destroy is not used again.
bool SetupThread::destroy(Hardware& hardware) noexcept {
  if (!SLUICE_INVARIANT(hardware.qp != nullptr, queue_pair_state)) return false;
  const bool done = device_.destroy(hardware.qp);
  hardware.qp = nullptr;
  hardware.extended = nullptr;
  hardware.state.transition(HardwareState::None);
  return done;
}

// --- The part of VerbsDevice that the set-up thread executes

/// Opens the device, both at setup and after a removed device has returned.
void VerbsDevice::attach() {
  context_ = open_by_name(config_.device, config_.port);
  if (context_ == nullptr) throw SetupError(no_such_device(config_.device));
  try {
    if (config_.device.empty()) config_.device = ibv_get_device_name(context_->device);
    provider_ = &provider_of(*context_->device);
    if (name_.empty()) name_ = config_.device + "/" + std::to_string(config_.port);
    node_path_ = context_->device->dev_path;
    ibv_port_attr port{};
    if (ibv_query_device(context_, &attributes_) != 0 || ibv_query_port(context_, config_.port, &port) != 0)
      throw SetupError("The RDMA device " + config_.device + " cannot be queried about its port " +
                       std::to_string(config_.port) + ". See `sluicectl devices`.");
    attached_port_ = port_of(port);
    if (const std::string problem = problem_of(*context_->device, port, !attached_port_.addresses.empty());
        !problem.empty())
      throw SetupError("The RDMA device " + name_ + " cannot be used: " + problem + ".");
    pd_ = ibv_alloc_pd(context_);
    if (pd_ == nullptr)
      throw SetupError("Cannot allocate a protection domain on the RDMA device " + name_ + " (" +
                       std::strerror(errno) + ").");
    make_thread_domain();
    memory_.attach(pd_, attached_port_.limits.max_windows > 0, numa_node_of(*context_->device),
                   attributes_.max_mr_size);
    if (shared_) shared_->attach(pd_);
    make_channel();
    notices_.add("The RDMA device " + name_ + " of provider " + std::string(provider_->name) + " has " +
                 attached_port_.capabilities +
                 ", pieces in an RDMA Read: " + std::to_string(attached_port_.limits.max_read_sge));
    if (prepared_) make_queues(entries_for(*prepared_));
    const int flags = ::fcntl(context_->async_fd, F_GETFL);
    ::fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK);
  } catch (...) {
    close_context();
    throw;
  }
  condition_.store(Condition::Up, std::memory_order_relaxed);
}

bool VerbsDevice::attach_again() noexcept {
  const std::lock_guard lock(context_lock_);
  try {
    attach();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void VerbsDevice::detach() noexcept {
  const std::lock_guard lock(context_lock_);
  static_cast<void>(SLUICE_INVARIANT(context_ != nullptr, queue_pair_state));
  close_context();
  condition_.store(is_present() ? Condition::Broken : Condition::Gone, std::memory_order_relaxed);
}

void VerbsDevice::close_context() noexcept {
  if (context_ == nullptr) return;
  completion_queues_.clear();
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  channel_ = nullptr;
  armed_ = false;
  if (shared_) shared_->detach();
  memory_.detach();
  if (of_thread_ != nullptr) ibv_dealloc_pd(of_thread_);
  of_thread_ = nullptr;
  if (thread_domain_ != nullptr) ibv_dealloc_td(thread_domain_);
  thread_domain_ = nullptr;
  if (pd_ != nullptr) ibv_dealloc_pd(pd_);
  pd_ = nullptr;
  ibv_close_device(context_);
  context_ = nullptr;
}

void VerbsDevice::make_thread_domain() noexcept {
  ibv_td_init_attr none{};
  thread_domain_ = ibv_alloc_td(context_, &none);
  if (thread_domain_ == nullptr) return;
  ibv_parent_domain_init_attr domain{};
  domain.pd = pd_;
  domain.td = thread_domain_;
  of_thread_ = ibv_alloc_parent_domain(context_, &domain);
}

/// Creates the completion channel, which is optional: without a channel the reactor sleeps for fixed times.
void VerbsDevice::make_channel() noexcept {
  channel_ = ibv_create_comp_channel(context_);
  if (channel_ == nullptr) return;
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK);
}

bool VerbsDevice::has_last_receive(std::uint32_t queue_pair) noexcept {
  const std::lock_guard lock(context_lock_);
  if (context_ == nullptr) return true;
  take_events();
  for (std::uint32_t& number : last_receives_)
    if (number == queue_pair) return number = 0, true;
  return false;
}

/// Destroys a queue pair, and removes its last shared Receive from the list, because a later queue pair may
/// have its number. ibv_destroy_qp() returns after all events of the queue pair were acknowledged.
bool VerbsDevice::destroy(ibv_qp* qp) noexcept {
  const std::uint32_t number = qp->qp_num;
  const bool done = ibv_destroy_qp(qp) == 0;
  const std::lock_guard lock(context_lock_);
  for (std::uint32_t& reported : last_receives_)
    if (reported == number) reported = 0;
  return done;
}

void VerbsDevice::await_last_receive(std::uint32_t queue_pair) noexcept {
  if (last_receive_misses_ >= kLastReceiveMisses) return;
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = kLastReceiveLimitNs / 200};
  bool seen = has_last_receive(queue_pair);
  const std::uint64_t limit_ns = monotonic_ns() + kLastReceiveLimitNs;
  for (; !seen && monotonic_ns() < limit_ns; seen = has_last_receive(queue_pair))
    ::nanosleep(&kPause, nullptr);
  if (seen) return;
  const std::lock_guard lock(context_lock_);
  if (last_receives_added_ == 0) ++last_receive_misses_;
}

}  // namespace sluice::rdma::verbs
