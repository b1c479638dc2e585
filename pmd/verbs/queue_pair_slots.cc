// SPDX-License-Identifier: Apache-2.0
//
// The part of VerbsDevice that has queue pairs created in advance and tracks each of them from Make to
// Destroy by the results of the set-up thread.
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/verbs/device.h"
#include "pmd/verbs/monotonic.h"

namespace sluice::rdma::verbs {

// --- Creation of queue pairs

void VerbsDevice::prepare_queue_pairs(const QueuePairLimits& limits, std::uint32_t count) {
  prepared_ = limits;
  ready_wanted_ = smaller_of(count, kReadyQueuePairs);
  make_queues(entries_for(limits));
  make_ahead();
  while (making_ > 0) await_step();
  throw_refusal();
}

/// Throws the stored refusal, if any, exactly once, and starts new attempts.
void VerbsDevice::throw_refusal() {
  if (refusal_.empty()) return;
  const SetupError refused(std::exchange(refusal_, {}));
  make_ahead();
  throw refused;
}

void VerbsDevice::make_ahead() noexcept {
  if (!prepared_ || !presence_.is(Presence::Attached) || !refusal_.empty()) return;
  const std::uint32_t entries = entries_for(*prepared_);
  while (ready_.size() + making_ < ready_wanted_ && !free_slots_.empty()) {
    CompletionQueue* const queue = completion_room(entries);
    if (queue == nullptr) return;
    begin_make(*prepared_, *queue);
  }
}

std::uint16_t VerbsDevice::begin_make(const QueuePairLimits& limits, CompletionQueue& queue) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!free_slots_.empty(), list_membership));
  const std::uint16_t number = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = slots_[number];
  static_cast<void>(SLUICE_INVARIANT(slot.qp == nullptr, queue_pair_state));
  slot.phase.transition(SlotPhase::Making);
  slot.generation = static_cast<std::uint16_t>((slot.generation + 1) % Cookie::kGenerations);
  Hardware& hardware = setup_.hardware(number);
  hardware.limits = limits;
  hardware.completions = &queue;
  ++making_;
  ask(SetupStep::Make, number);
  return number;
}

bool VerbsDevice::has_queue_pair() const noexcept {
  const bool on_the_way = making_ > 0 || steps_asked_ > 0;
  return !prepared_ || !presence_.is(Presence::Attached) || !ready_.empty() || !refusal_.empty() ||
         !on_the_way;
}

Owned<QueuePair> VerbsDevice::create_queue_pair(const QueuePairLimits& limits) {
  try {
    if (!presence_.is(Presence::Attached))
      throw SetupError("The RDMA device " + name_ + " was removed. Sluice waits until it returns.");
    throw_refusal();
    const std::uint16_t slot = take_ready(limits);
    static_cast<void>(SLUICE_INVARIANT(slots_[slot].phase.is(SlotPhase::Made) && slots_[slot].qp == nullptr,
                                       queue_pair_state));
    auto qp = make_owned<VerbsQueuePair>(*this, slot, slots_[slot].generation, setup_.hardware(slot));
    slots_[slot].qp = qp.get();
    const auto number = static_cast<std::uint32_t>(qp->number());
    ended_[slot].store(0, std::memory_order_relaxed);
    numbers_[slot].store(number, std::memory_order_relaxed);
    if (shared_) slots_by_number_[number] = slot;
    ++statistics_.queue_pairs_made;
    return qp;
  } catch (...) {
    ++statistics_.queue_pairs_refused;
    throw;
  }
}

/// Takes a queue pair that was created in advance. Blocks on the set-up thread if none with these limits is
/// ready.
std::uint16_t VerbsDevice::take_ready(const QueuePairLimits& limits) {
  const auto find = [&] {
    auto ready = ready_.begin();
    while (ready != ready_.end() && setup_.hardware(*ready).limits != limits) ++ready;
    return ready;
  };
  auto at = find();
  if (at == ready_.end()) {
    while (free_slots_.empty() && steps_asked_ > 0) await_step();
    if (free_slots_.empty())
      throw SetupError("All " + std::to_string(slots_.size()) + " queue pairs of the RDMA device " + name_ +
                       " are in use. Raise [transport] max_connections.");
    begin_make(limits, completion_queue(entries_for(limits)));
    while (making_ > 0) await_step();
    at = find();
    if (at == ready_.end()) throw_refusal();
  }
  const std::uint16_t slot = *at;
  static_cast<void>(SLUICE_INVARIANT(slot < slots_.size(), table_index));
  ready_.erase(at);
  make_ahead();
  return slot;
}

std::uint32_t VerbsDevice::entries_for(const QueuePairLimits& limits) const noexcept {
  return limits.send_depth + (shared_ ? 0 : limits.recv_depth);
}

CompletionQueue* VerbsDevice::completion_room(std::uint32_t entries) noexcept {
  for (const auto& queue : completion_queues_)
    if (queue->take_room(entries)) return queue.get();
  return nullptr;
}

CompletionQueue& VerbsDevice::completion_queue(std::uint32_t entries) {
  CompletionQueue* queue = completion_room(entries);
  if (queue != nullptr) return *queue;
  queue = &make_queue(entries);
  queue->take_room(entries);
  return *queue;
}

/// Creates a completion queue of `most` entries, or of nearly as many as the provider creates: at least 15/16
/// of them. Returns null if it refuses even `least` entries. Each attempt is a system call.
Owned<CompletionQueue> VerbsDevice::largest_queue(std::uint32_t least, std::uint32_t most) {
  static_cast<void>(SLUICE_INVARIANT(least > 0, ring_index));
  const auto create = [this](std::uint32_t size) {
    return CompletionQueue::create(context_, channel_, size, prefers_extended_polling(), in_software());
  };
  Owned<CompletionQueue> queue;
  std::uint32_t refused = most;
  for (std::uint32_t size = most; queue == nullptr && size >= least; size /= 2) {
    queue = create(size);
    if (queue == nullptr) refused = size;
  }
  if (queue == nullptr && refused > least) queue = create(least);
  while (queue != nullptr && refused > queue->entries() && refused - queue->entries() > refused / 16) {
    const std::uint32_t size = queue->entries() + (refused - queue->entries()) / 2;
    if (Owned<CompletionQueue> larger = create(size))
      queue = std::move(larger);
    else
      refused = size;
  }
  return queue;
}

/// Creates a completion queue as large as the device allows, so that few queues have to be polled. All shared
/// Receives may complete in any one of the queues. Tries smaller queues if the provider refuses one of its
/// reported limit.
CompletionQueue& VerbsDevice::make_queue(std::uint32_t entries) {
  const auto most = static_cast<std::uint32_t>(larger_of(attributes_.max_cqe, 1));
  const std::uint32_t shared = shared_ ? shared_->count() : 0;
  const std::uint64_t all = std::uint64_t{entries} * slots_.size() + shared;
  const auto wanted = static_cast<std::uint32_t>(smaller_of<std::uint64_t>(all, most));
  Owned<CompletionQueue> queue = largest_queue(entries + shared, wanted);
  if (queue == nullptr)
    throw SetupError("The RDMA device " + name_ + " cannot create a completion queue with " +
                     std::to_string(entries + shared) + " entries (its limit is " + std::to_string(most) +
                     "). Lower [transport] credits.");
  static_cast<void>(SLUICE_INVARIANT(queue->entries() >= entries + shared, ring_index));
  if (queue->entries() < wanted) {
    attributes_.max_cqe = static_cast<int>(queue->entries());  // no further queue is tried with more
    notices_.add("The RDMA device " + name_ + " refused a completion queue of " + std::to_string(wanted) +
                 " entries and has one of " + std::to_string(queue->entries()));
  }
  queue->take_room(shared);
  extended_polling_ = queue->extended();
  completion_queues_.push_back(std::move(queue));
  armed_ = false;
  return *completion_queues_.back();
}

/// Creates the completion queues for all queue pairs, as many as the device supports, so that the reactor
/// never creates one.
void VerbsDevice::make_queues(std::uint32_t entries) {
  try {
    for (std::size_t room = 0; room < slots_.size();) room += make_queue(entries).room() / entries;
  } catch (const SetupError&) {
    if (completion_queues_.empty()) throw;
  }
}

// --- Destruction of queue pairs

void VerbsDevice::ask(SetupStep step, std::uint16_t slot) noexcept {
  static_cast<void>(SLUICE_INVARIANT(is_region_step(step) || slot < slots_.size(), table_index));
  ++steps_asked_;
  setup_.ask(step, slot);
}

void VerbsDevice::fail(std::uint16_t slot) noexcept {
  static_cast<void>(SLUICE_INVARIANT(slot < slots_.size(), table_index));
  if (!slots_[slot].phase.is(SlotPhase::Made)) return;
  slots_[slot].phase.transition(SlotPhase::Failing);
  ask(SetupStep::Fail, slot);
  if (slots_[slot].qp != nullptr) end_regions(*slots_[slot].qp);
}

/// Destroys the queue pair after moving it to Error, so that it consumes no further shared Receives. Does
/// nothing if the queue pair ends already.
void VerbsDevice::end(std::uint16_t slot) noexcept {
  static_cast<void>(SLUICE_INVARIANT(!slots_[slot].phase.is(SlotPhase::Free), queue_pair_state));
  fail(slot);
  if (slots_[slot].phase.is(SlotPhase::Failing)) slots_[slot].phase.transition(SlotPhase::Ending);
  if (slots_[slot].phase.is(SlotPhase::Failed)) destroy(slot);
}

void VerbsDevice::end(VerbsQueuePair& qp) noexcept {
  std::vector<MemoryTable::Replacement> windows = memory_.take_bound(qp);
  if (!windows.empty()) {
    setup_.hardware(qp.slot()).windows = std::move(windows);
    ask(SetupStep::ReplaceWindows, qp.slot());
  }
  end(qp.slot());
}

void VerbsDevice::release(VerbsQueuePair& qp, bool await) noexcept {
  const std::uint16_t number = qp.slot();
  Slot& slot = slots_[number];
  static_cast<void>(SLUICE_INVARIANT(slot.qp == &qp && slot.generation == qp.generation(), table_index));
  if (!slot.phase.is(SlotPhase::Destroyed)) end(qp);
  while ((await && !slot.phase.is(SlotPhase::Destroyed)) || call_regions_.holds(qp)) await_step();
  slot.qp = nullptr;
  numbers_[number].store(0, std::memory_order_relaxed);
  std::erase(failed_, &qp);
  if (slot.phase.is(SlotPhase::Destroyed)) free_slot(number);
}

void VerbsDevice::destroy(std::uint16_t slot) noexcept {
  const Hardware& hardware = setup_.hardware(slot);
  static_cast<void>(SLUICE_INVARIANT(hardware.qp != nullptr, queue_pair_state));
  if (shared_) {
    // Recovers the shared Receives that the queue pair has consumed. Bounded by the capacity of the queue.
    hardware.completions->poll(hardware.completions->entries(),
                               [this](const Completion& completion) noexcept { on_completion(completion); });
    slots_by_number_.erase(hardware.qp->qp_num);
  }
  slots_[slot].phase.transition(SlotPhase::Destroying);
  ask(SetupStep::Destroy, slot);
}

void VerbsDevice::free_slot(std::uint16_t slot) noexcept {
  static_cast<void>(SLUICE_INVARIANT(slots_[slot].qp == nullptr, queue_pair_state));
  static_cast<void>(SLUICE_INVARIANT(free_slots_.size() < slots_.size(), pool_balance));
  slots_[slot].phase.transition(SlotPhase::Free);
  free_slots_.push_back(slot);
}

/// Ends all queue pairs. Queue pairs that are still being created end once their creation completes.
void VerbsDevice::end_all() noexcept {
  while (!ready_.empty()) {
    end(ready_.back());
    ready_.pop_back();
  }
  for (const Slot& slot : slots_)
    if (slot.qp != nullptr) slot.qp->lose();
  refusal_.clear();
}

// --- Asynchronous events of queue pairs

void VerbsDevice::apply_events() noexcept {
  static_cast<void>(SLUICE_INVARIANT(!presence_.is(Presence::Attaching), queue_pair_state));
  if (!changed_addresses_.empty()) port_.addresses = std::exchange(changed_addresses_, {});
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const std::uint32_t ended = ended_[i].exchange(0, std::memory_order_relaxed);
    VerbsQueuePair* const qp = slots_[i].qp;
    const std::uint32_t number = qp != nullptr ? static_cast<std::uint32_t>(qp->number()) : 0;
    if (number != 0 && ended == number) qp->on_error_event();
  }
  if (awaits_flush_.load(std::memory_order_relaxed)) check_flushes();
}

/// Closes the device if it has not flushed a queue pair in time, because the connection holds memory until
/// all its work requests have completed. Closing destroys all queue pairs, and the device is opened again.
/// Does nothing for a device that is already being closed or is closed.
void VerbsDevice::check_flushes() noexcept {
  if (!presence_.is(Presence::Attached)) return;
  bool awaits = false;
  const std::uint64_t now_ns = monotonic_ns();
  for (const Slot& slot : slots_) {
    if (!slot.phase.is(SlotPhase::Failed) || slot.qp == nullptr || !slot.qp->awaits_flush()) continue;
    awaits = true;
    if (now_ns - slot.failed_ns < config_.flush_limit_ns) continue;
    ++statistics_.flush_timeouts;
    notices_.add(
        {.queue_pair = static_cast<std::uint32_t>(slot.qp->number()), .kind = Notices::Kind::NotFlushed});
    awaits_flush_.store(false, std::memory_order_relaxed);
    return leave();
  }
  awaits_flush_.store(awaits, std::memory_order_relaxed);
}

// --- Results of the set-up thread

void VerbsDevice::handle(const SetupResult& result) noexcept {
  static_cast<void>(SLUICE_INVARIANT(steps_asked_ > 0, ring_index));
  if (is_region_step(result.step))
    take_region(result);
  else
    take(result);
  --steps_asked_;
  detach_if_left();
}

void VerbsDevice::take(const SetupResult& result) noexcept {
  static_cast<void>(SLUICE_INVARIANT(result.slot < slots_.size(), table_index));
  VerbsQueuePair* const qp = slots_[result.slot].qp;
  switch (result.step) {
    case SetupStep::Make:
      return on_made(result.slot, result.done);
    case SetupStep::Connect:
      if (qp != nullptr) qp->on_connected(result.done);
      return;
    case SetupStep::Fail:
      return on_failed(result.slot, result.done);
    case SetupStep::Destroy:
      return on_destroyed(result.slot);
    case SetupStep::ReplaceWindows:
      return memory_.replace(setup_.hardware(result.slot).windows);
    case SetupStep::Attach:
      return on_attached(result.done);
    case SetupStep::Detach:
      static_cast<void>(SLUICE_INVARIANT(presence_.is(Presence::Detaching), queue_pair_state));
      presence_.transition(Presence::Detached);
      return;
    case SetupStep::RegisterRegion:
    case SetupStep::DeregisterRegion:
    case SetupStep::Stop:
      return;
  }
}

void VerbsDevice::on_made(std::uint16_t slot, bool done) noexcept {
  static_cast<void>(SLUICE_INVARIANT(making_ > 0, queue_pair_state));
  --making_;
  Hardware& hardware = setup_.hardware(slot);
  static_cast<void>(SLUICE_INVARIANT((hardware.qp != nullptr) == done, queue_pair_state));
  if (done) {
    slots_[slot].phase.transition(SlotPhase::Made);
    extended_posting_ = hardware.extended != nullptr;
    if (presence_.is(Presence::Attached))
      ready_.push_back(slot);
    else
      end(slot);
    return;
  }
  hardware.completions->leave_room(entries_for(hardware.limits));
  refusal_ = hardware.problem;
  free_slot(slot);
}

/// Completes a Fail step. If the device refuses even that, the ibv_qp is destroyed.
void VerbsDevice::on_failed(std::uint16_t slot, bool done) noexcept {
  static_cast<void>(SLUICE_INVARIANT(setup_.hardware(slot).qp != nullptr, queue_pair_state));
  const bool ends = slots_[slot].phase.is(SlotPhase::Ending);
  slots_[slot].phase.transition(SlotPhase::Failed);
  slots_[slot].failed_ns = monotonic_ns();
  awaits_flush_.store(true, std::memory_order_relaxed);
  if (done && slots_[slot].qp != nullptr) slots_[slot].qp->on_failed();
  if (!done || ends) destroy(slot);
}

void VerbsDevice::on_destroyed(std::uint16_t slot) noexcept {
  const Hardware& hardware = setup_.hardware(slot);
  static_cast<void>(SLUICE_INVARIANT(hardware.qp == nullptr, queue_pair_state));
  hardware.completions->leave_room(entries_for(hardware.limits));
  slots_[slot].phase.transition(SlotPhase::Destroyed);
  if (slots_[slot].qp != nullptr)
    slots_[slot].qp->on_destroyed();
  else
    free_slot(slot);
}

}  // namespace sluice::rdma::verbs
