// SPDX-License-Identifier: Apache-2.0
#include "pmd/verbs/device.h"

#include <poll.h>
#include <unistd.h>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/verbs/ports.h"

namespace sluice::rdma::verbs {

constexpr std::uint32_t kMaxSend = 1u << 20;
constexpr std::uint32_t kMaxWindows = 65536;

Owned<Verbs> open(const DeviceConfig& config) {
  return make_owned<VerbsDevice>(config);
}

// --- Setup

VerbsDevice::VerbsDevice(const DeviceConfig& config)
    : config_(config),
      slots_(config.max_queue_pairs + kSpareSlots + kReadyQueuePairs),
      numbers_(slots_.size()),
      ended_(slots_.size()),
      setup_(*this, slots_.size(), config.call_regions ? kMaxCallRegions : 0) {
  staged_.reserve(slots_.size());
  failed_.reserve(slots_.size());
  ready_.reserve(slots_.size());
  for (std::size_t slot = slots_.size(); slot > 0; --slot)
    free_slots_.push_back(static_cast<std::uint16_t>(slot - 1));
  attach();
  take_port();
  if (config_.shared_receives == 0) return;
  try {
    shared_ = make_owned<SharedReceives>(memory_, pd_, config_.shared_receives, config_.shared_receive_bytes);
  } catch (...) {
    close_context();
    throw;
  }
}

VerbsDevice::~VerbsDevice() {
  await_steps();
  end_all();
  await_steps();
  static_cast<void>(SLUICE_INVARIANT(
      free_slots_.size() == slots_.size() && staged_.empty() && failed_.empty(), pool_balance));
  static_cast<void>(SLUICE_INVARIANT(steps_asked_ == 0 && making_ == 0 && depth_ == 0, queue_pair_state));
  const std::lock_guard lock(context_lock_);
  close_context();
}

std::uint32_t VerbsDevice::max_read_sge() const noexcept {
  if (provider_->max_posted_reads != 0) return 1;
  const int both = smaller_of(attributes_.max_sge_rd, attributes_.max_sge);
  return smaller_of(kMaxSge, static_cast<std::uint32_t>(larger_of(both, 1)));
}

VerbsDevice::Port VerbsDevice::port_of(const ibv_port_attr& port) {
  const std::vector<ibv_gid_entry> gids = gids_of(context_);
  Capabilities has = capabilities_of(context_, attributes_, config_.port, port, gids);
  if (!config_.windows) {
    has.windows = false;
    has.summary += ", memory windows are not used (memory_windows = false)";
  }
  return {.limits = {.max_queue_pairs = config_.max_queue_pairs,
                     .max_send_sge =
                         smaller_of(kMaxSge, static_cast<std::uint32_t>(larger_of(attributes_.max_sge, 1))),
                     .max_read_sge = max_read_sge(),
                     .max_windows =
                         has.windows ? smaller_of(kMaxWindows, static_cast<std::uint32_t>(attributes_.max_mw))
                                     : 0,
                     .max_call_regions = config_.call_regions && !has.windows ? kMaxCallRegions : 0,
                     .max_message_bytes = port.max_msg_sz,
                     .max_send_bytes = smaller_of(kMaxSend, port.max_msg_sz),
                     .immediate_data = true,
                     .remote_invalidation = has.remote_invalidation},
          .addresses = addresses_of(gids, config_.port),
          .max_path_mtu = bytes_of(port.active_mtu),
          .capabilities = has.summary};
}

/// Looks up the GID in the device's current table, because addresses change and a bond that fails over moves
/// them to other indices. Prefers the GID of the address's zone, because an interface and its VLANs have the
/// same link-local GID.
std::optional<std::uint8_t> VerbsDevice::gid_index(const PeerAddress& local) const noexcept {
  try {
    std::optional<std::uint8_t> found;
    for (const ibv_gid_entry& entry : gids_of(context_)) {
      if (!is_usable_gid(entry, config_.port) || address_of(entry).bytes != local.bytes) continue;
      static_cast<void>(SLUICE_INVARIANT(entry.gid_index <= 0xFF, table_index));
      const auto index = static_cast<std::uint8_t>(entry.gid_index);
      if (local.zone == 0 || entry.ndev_ifindex == local.zone) return index;
      if (!found) found = index;
    }
    return found;
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

/// Reserves flush capacity of twice the depth, because everything outstanding may be flushed while earlier
/// flushes still wait for poll().
void VerbsDevice::add_depth(std::size_t depth) {
  depth_ += depth;
  grow_completions();
}

void VerbsDevice::grow_completions() {
  const std::size_t wanted = 2 * depth_ + kCompletionsPerRegion * call_regions_.size();
  if (flushed_.capacity() < wanted) flushed_.grow(wanted);
  static_cast<void>(SLUICE_INVARIANT(flushed_.capacity() >= wanted, ring_index));
}

void VerbsDevice::remove_staged(VerbsQueuePair& qp) noexcept {
  SLUICE_INVARIANT_DEBUG(has_element(staged_, &qp), list_membership);
  std::erase(staged_, &qp);
}

// --- Polling by the reactor

void VerbsDevice::complete(const WorkCompletion& completion) noexcept {
  SLUICE_INVARIANT_DEBUG(room_used_ <= room_.size(), ring_index);
  if (room_used_ < room_.size() && flushed_.empty())
    room_[room_used_++] = completion;
  else
    flushed_.push_back(completion);
}

std::size_t VerbsDevice::poll(std::span<WorkCompletion> completions) noexcept {
  if (request_.load(std::memory_order_relaxed) != Request::None) [[unlikely]]
    handle_request();
  for (SetupResult result; setup_.take(result);) handle(result);
  if (ready_.size() + making_ < ready_wanted_) [[unlikely]]
    make_ahead();
  moved_ = !staged_.empty() || !failed_.empty() || call_regions_.pending() > 0;
  while (!staged_.empty()) staged_.back()->ring_doorbell();
  std::size_t waiting = 0;
  if (!flushed_.empty()) [[unlikely]]
    waiting = flushed_.pop_front(completions);
  room_ = completions.subspan(waiting);
  room_used_ = 0;
  if (presence_.is(Presence::Attached)) [[likely]]
    poll_queues();
  SLUICE_INVARIANT_DEBUG(waiting + room_used_ <= completions.size(), ring_index);
  const std::size_t count = waiting + room_used_;
  room_ = {};
  room_used_ = 0;
  while (!failed_.empty()) {
    VerbsQueuePair* const qp = failed_.back();
    failed_.pop_back();
    fail(qp->slot());
  }
  return count;
}

void VerbsDevice::poll_queues() noexcept {
  const std::size_t queues = completion_queues_.size();
  for (std::size_t i = 0; i < queues && room_used_ < room_.size(); ++i) {
    if (++next_queue_ >= queues) next_queue_ = 0;
    statistics_.work_completions += completion_queues_[next_queue_]->poll(
        room_.size() - room_used_,
        [this](const Completion& completion) noexcept { on_completion(completion); });
  }
  if (shared_ && !shared_->post()) [[unlikely]]
    request(Request::Detach);
}

void VerbsDevice::on_completion(const Completion& completion) noexcept {
  const Cookie cookie = Cookie::unpacked(completion.wr_id);
  if (shared_ && cookie.receive) return on_shared_receive(cookie.index, completion);
  const bool known = cookie.slot < slots_.size() && slots_[cookie.slot].qp != nullptr &&
                     slots_[cookie.slot].generation == cookie.generation;
  if (known)
    slots_[cookie.slot].qp->on_completion(cookie, completion);
  else
    ++statistics_.stale_completions;
}

void VerbsDevice::on_shared_receive(std::uint32_t index, const Completion& completion) noexcept {
  const auto slot = slots_by_number_.find(completion.queue_pair);
  VerbsQueuePair* const qp = slot != slots_by_number_.end() ? slots_[slot->second].qp : nullptr;
  if (qp == nullptr) {
    ++statistics_.stale_completions;
  } else {
    const std::uint32_t length =
        completion.status == IBV_WC_SUCCESS && completion.in_receive ? completion.byte_len : 0;
    qp->on_shared_receive(completion, shared_->message(index, length));
  }
  if (!shared_->give_back(index)) request(Request::Detach);
}

/// The first call arms the completion queues and returns, so that the caller polls once more before it
/// sleeps: a completion that arrived before arming would not wake it.
void VerbsDevice::wait(std::uint64_t limit_ns) noexcept {
  if (!wakes()) return Device::wait(limit_ns);
  if (!armed_) {
    armed_ = true;
    for (const auto& queue : completion_queues_) armed_ = armed_ && queue->arm();
    if (!armed_) Device::wait(limit_ns);
    return;
  }
  ++statistics_.waits;
  pollfd ready{.fd = channel_->fd, .events = POLLIN, .revents = 0};
  const timespec limit{0, static_cast<long>(smaller_of<std::uint64_t>(limit_ns, 999'999'999))};
  if (::ppoll(&ready, 1, &limit, nullptr) <= 0) return;
  ++statistics_.wakeups;
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  for (std::size_t i = 0; i < completion_queues_.size(); ++i)
    if (ibv_get_cq_event(channel_, &queue, &context) == 0) ibv_ack_cq_events(queue, 1);
  armed_ = false;
}

/// Handles a request of handle_events(). Never blocks on the thread that calls handle_events(). A request
/// stays pending while the set-up thread attaches the device, because the device may already be open and
/// fail.
void VerbsDevice::handle_request() noexcept {
  if (presence_.is(Presence::Attaching)) return;
  const std::unique_lock lock(context_lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  // Pairs with request(): the events that it announces.
  const Request wanted = request_.exchange(Request::None, std::memory_order_acquire);
  switch (wanted) {
    case Request::None:
      return;
    case Request::TakeEvents:
      return apply_events();
    case Request::Detach:
      if (presence_.is(Presence::Attached)) ++statistics_.device_lost;
      return leave();
    case Request::Attach:
      if (!presence_.is(Presence::Detached)) return;
      presence_.transition(Presence::Attaching);
      return ask(SetupStep::Attach, 0);
  }
}

/// Starts to detach a device that was removed or failed. The queue pairs end first, because the device may
/// access their memory while it is attached.
void VerbsDevice::leave() noexcept {
  if (!presence_.is(Presence::Attached)) return;
  presence_.transition(Presence::Leaving);
  end_all();
  detach_if_left();
}

void VerbsDevice::detach_if_left() noexcept {
  if (!presence_.is(Presence::Leaving) || steps_asked_ > 0) return;
  static_cast<void>(SLUICE_INVARIANT(making_ == 0 && ready_.empty() && staged_.empty(), queue_pair_state));
  presence_.transition(Presence::Detaching);
  ask(SetupStep::Detach, 0);
}

/// Completes an Attach step. If the device was not there after all, the next handle_events() requests it
/// again.
void VerbsDevice::on_attached(bool done) noexcept {
  static_cast<void>(SLUICE_INVARIANT(presence_.is(Presence::Attaching), queue_pair_state));
  presence_.transition(done ? Presence::Attached : Presence::Detached);
  if (!done) return;
  take_port();
  ++statistics_.device_returned;
}

Statistics VerbsDevice::statistics() const noexcept {
  Statistics all = statistics_;
  all.queue_pair_events = queue_pair_events_.load(std::memory_order_relaxed);
  all.completion_queue_overruns = overruns_.load(std::memory_order_relaxed);
  all.shared_receive_errors = shared_receive_errors_.load(std::memory_order_relaxed);
  all.port_down = port_down_.load(std::memory_order_relaxed);
  all.port_up = port_up_.load(std::memory_order_relaxed);
  return all;
}

std::size_t VerbsDevice::read_statistics(std::span<std::uint64_t> values) const noexcept {
  const Statistics all = statistics();
  const std::uint64_t list[] = {
#define SLUICE_VERBS_VALUE(name, help) all.name,
      SLUICE_VERBS_STATISTICS(SLUICE_VERBS_VALUE)
#undef SLUICE_VERBS_VALUE
  };
  const std::size_t count = smaller_of(std::size(list), values.size());
  for (std::size_t i = 0; i < count; ++i) values[i] = list[i];
  return count;
}

// --- The thread that calls handle_events()
// It checks for asynchronous events and for the removal or return of the device. It only stores a request,
// which the reactor handles in its next poll().

void VerbsDevice::request(Request wanted) noexcept {
  // Detach overrides every other request, which it makes meaningless.
  Request known = request_.load(std::memory_order_relaxed);
  while (known != Request::Detach &&  // pairs with handle_request(): the events that it announces
         !request_.compare_exchange_weak(known, wanted, std::memory_order_release)) {
  }
}

/// On removal the kernel deletes the device node first, and then waits until no process has it open.
bool VerbsDevice::is_present() const noexcept {
  return ::access(node_path_.c_str(), F_OK) == 0;
}

void VerbsDevice::handle_events() noexcept {
  const std::unique_lock lock(context_lock_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  if (context_ == nullptr) {
    ibv_context* const found = open_by_name(config_.device, config_.port);
    if (found == nullptr) return condition_.store(Condition::Gone, std::memory_order_relaxed);
    if (usable(found, config_.port)) request(Request::Attach);
    ibv_close_device(found);
    return;
  }
  take_events();
  if (awaits_flush_.load(std::memory_order_relaxed)) request(Request::TakeEvents);
  if (!is_present()) request(Request::Detach);
}

/// Handles the events that have occurred. Requires context_lock_.
void VerbsDevice::take_events() noexcept {
  static_cast<void>(SLUICE_INVARIANT(context_ != nullptr, queue_pair_state));
  for (std::size_t i = 0; i < kEventsPerLook; ++i) {
    pollfd ready{.fd = context_->async_fd, .events = POLLIN, .revents = 0};
    ibv_async_event event;
    if (::poll(&ready, 1, 0) <= 0 || ibv_get_async_event(context_, &event) != 0) break;
    on_event(event);
    ibv_ack_async_event(&event);
  }
}

void VerbsDevice::on_event(const ibv_async_event& event) noexcept {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      ++queue_pair_events_;
      // The queue pair is not destroyed before its event is acknowledged.
      for (std::size_t i = 0; i < numbers_.size(); ++i)
        if (numbers_[i].load(std::memory_order_relaxed) == event.element.qp->qp_num)
          ended_[i].store(event.element.qp->qp_num, std::memory_order_relaxed);
      return request(Request::TakeEvents);
    case IBV_EVENT_CQ_ERR:  // unknown which queue pairs are affected: restart all
      ++overruns_;
      return request(Request::Detach);
    case IBV_EVENT_GID_CHANGE:
      // If the list is empty, connection requests keep using the previous address and fail.
      changed_addresses_ = addresses_of(gids_of(context_), config_.port);
      return request(Request::TakeEvents);
    case IBV_EVENT_SRQ_ERR:  // the queue is shared by all queue pairs
      ++shared_receive_errors_;
      return request(Request::Detach);
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      last_receives_[last_receives_added_++ % kLastReceives] = event.element.qp->qp_num;
      return;
    case IBV_EVENT_DEVICE_FATAL:
      return request(Request::Detach);
    case IBV_EVENT_PORT_ERR:
      if (event.element.port_num != config_.port) return;
      ++port_down_;
      return condition_.store(Condition::PortDown, std::memory_order_relaxed);
    case IBV_EVENT_PORT_ACTIVE:
      if (event.element.port_num != config_.port) return;
      ++port_up_;
      return condition_.store(Condition::Up, std::memory_order_relaxed);
    default:
      return;
  }
}

}  // namespace sluice::rdma::verbs
