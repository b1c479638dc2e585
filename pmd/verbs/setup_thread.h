// SPDX-License-Identifier: Apache-2.0
//
// The thread of a device that creates, connects and destroys its queue pairs, and reattaches the device after
// it was removed and has returned. Each of these steps is a system call that takes up to milliseconds on a
// NIC, while the reactor has calls of other connections to serve. The reactor requests steps, which are
// executed in order, and handles the result of each in a later poll().
//
// Threads: the reactor that owns the device calls everything here. The contents of a Hardware belong to the
// set-up thread from ask() until the result of that step was handled.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "pmd/queue_pair.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/memory.h"
#include "pmd/verbs/states.h"

namespace sluice::rdma::verbs {

class VerbsDevice;

/// The provider's objects of a queue pair, one for each slot.
struct Hardware {
  HardwareMachine state;  ///< used by the set-up thread only
  // Fields for Make: the reactor sets limits and completions, the set-up thread the next four.
  QueuePairLimits limits;
  CompletionQueue* completions = nullptr;
  ibv_qp* qp = nullptr;                           ///< null if the device refuses
  ibv_qp_ex* extended = nullptr;                  ///< the same queue pair in the extended interface, or null
  std::uint32_t max_inline = 0;                   ///< bytes
  std::string problem;                            ///< sentence with the reason why the device refuses
  RcAttributes attributes;                        ///< for Connect
  std::vector<MemoryTable::Replacement> windows;  ///< for ReplaceWindows
};

enum class SetupStep : std::uint8_t {
  Make,     ///< to Init
  Connect,  ///< to ReadyToSend
  Fail,     ///< to Error
  Destroy,
  ReplaceWindows,    ///< replaces windows that were bound to the queue pair
  RegisterRegion,    ///< `slot` is the index of a region for a call
  DeregisterRegion,  ///< like RegisterRegion
  Attach,            ///< VerbsDevice::attach()
  Detach,            ///< VerbsDevice::detach()
  Stop,              ///< ends the thread
};

constexpr bool is_region_step(SetupStep step) noexcept {
  return step == SetupStep::RegisterRegion || step == SetupStep::DeregisterRegion;
}

struct SetupResult {
  SetupStep step = SetupStep::Stop;
  std::uint16_t slot = 0;
  bool done = false;  ///< false if the device refuses
};

/// A single-producer single-consumer FIFO. Never full, because its capacity exceeds what can be outstanding.
/// Indices are free-running.
template <typename Entry>
class HandOver {
 public:
  explicit HandOver(std::size_t capacity) : entries_(std::bit_ceil(capacity)) {}

  /// Appends an entry and wakes the consumer if it waits.
  void push(const Entry& entry) noexcept {
    static_cast<void>(SLUICE_INVARIANT(std::has_single_bit(entries_.size()), ring_index));
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    entries_[tail & (entries_.size() - 1)] = entry;
    tail_.store(tail + 1, std::memory_order_release);  // pairs with empty(): the entry and its Hardware
    tail_.notify_one();
  }
  /// Returns whether there is no entry. Pairs with push(): the entry and its Hardware.
  bool empty() const noexcept { return tail_.load(std::memory_order_acquire) == head_; }
  bool pop(Entry& entry) noexcept {
    if (empty()) return false;
    entry = entries_[head_++ & (entries_.size() - 1)];
    return true;
  }
  Entry await() noexcept {
    Entry entry;
    while (!pop(entry)) tail_.wait(head_);
    return entry;
  }

 private:
  std::vector<Entry> entries_;
  alignas(kCacheLine) std::atomic<std::uint32_t> tail_{0};
  alignas(kCacheLine) std::uint32_t head_ = 0;  ///< written by the consumer only
};

class SetupThread {
 public:
  /// Setup. The thread inherits the CPU affinity of the calling thread.
  SetupThread(VerbsDevice& device, std::size_t slots, std::size_t regions);
  /// Stops the thread. Requires that the results of all steps were handled.
  ~SetupThread();
  SetupThread(const SetupThread&) = delete;
  SetupThread& operator=(const SetupThread&) = delete;

  Hardware& hardware(std::uint16_t slot) noexcept {
    static_cast<void>(SLUICE_INVARIANT(slot < hardware_.size(), table_index));
    return hardware_[slot];
  }
  void ask(SetupStep step, std::uint16_t slot) noexcept {
    SLUICE_INVARIANT_DEBUG(is_region_step(step) || slot < hardware_.size(), table_index);
    wanted_.push({step, slot});
  }
  bool has_results() const noexcept { return !results_.empty(); }
  bool take(SetupResult& result) noexcept { return results_.pop(result); }
  /// Setup. Blocks until the next result.
  SetupResult await() noexcept { return results_.await(); }

 private:
  struct Wanted {
    SetupStep step = SetupStep::Stop;
    std::uint16_t slot = 0;
  };
  /// Capacity per slot: Connect, ReplaceWindows, Fail and Destroy of a queue pair that ends as soon as it
  /// starts, the Make of the next one, and a margin.
  static constexpr std::size_t kStepsPerSlot = 8;
  /// Capacity per region for a call: an abandoned one has both steps pending.
  static constexpr std::size_t kStepsPerRegion = 2;

  void run() noexcept;
  bool take_step(const Wanted& wanted) noexcept;
  bool make(Hardware& hardware) noexcept;
  bool connect(Hardware& hardware) const noexcept;
  bool fail(Hardware& hardware) noexcept;
  bool destroy(Hardware& hardware) noexcept;

  VerbsDevice& device_;
  std::vector<Hardware> hardware_;
  /// Index of the last inline size that the device accepted, so that larger sizes are not tried again.
  std::size_t inline_choice_ = 0;
  HandOver<Wanted> wanted_;
  HandOver<SetupResult> results_;
  std::thread thread_;
};

}  // namespace sluice::rdma::verbs
