// SPDX-License-Identifier: Apache-2.0
//
// The thread of a device that makes, connects and ends its queue pairs, and takes the device again when it has come back. Each of
// these is a call into the kernel, which takes up to milliseconds on a NIC, while the reactor has calls of other connections to
// serve. The reactor asks for steps, which are taken in the order asked for, and learns of each in a later poll().
//
// Threads: the reactor that owns the device calls everything here. What a Hardware holds belongs to the set-up thread from
// ask() until the result of that step was taken.
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
#include "pmd/queue_pair.h"
#include "pmd/verbs/completion_queue.h"
#include "pmd/verbs/memory.h"

namespace sluice::rdma::verbs {

class VerbsDevice;

/// What the device has of a queue pair. One for each slot.
struct Hardware {
  // For Make: set by the reactor, then by the set-up thread.
  QueuePairLimits limits;
  CompletionQueue* completions = nullptr;
  ibv_qp* qp = nullptr;                           ///< in Init; null: the device refuses
  ibv_qp_ex* extended = nullptr;                  ///< the same, if the provider has the extended interface
  std::uint32_t max_inline = 0;                   ///< bytes
  std::string problem;                            ///< a sentence: why the device refuses
  RcAttributes attributes;                        ///< for Connect
  std::vector<MemoryTable::Replacement> windows;  ///< for ReplaceWindows
};

enum class SetupStep : std::uint8_t {
  Make,     ///< to Init
  Connect,  ///< to ReadyToSend
  Fail,     ///< to Error
  Destroy,
  ReplaceWindows,  ///< makes windows anew that were bound to it
  Attach,          ///< VerbsDevice::attach()
  Detach,          ///< VerbsDevice::detach()
  Stop,            ///< ends the thread
};

struct SetupResult {
  SetupStep step = SetupStep::Stop;
  std::uint16_t slot = 0;
  bool done = false;  ///< false: the device refuses
};

/// From one thread to one other, in order. Never full: its capacity is above what can be outstanding. Indices are free-running.
template <typename Entry>
class HandOver {
 public:
  explicit HandOver(std::size_t capacity) : entries_(std::bit_ceil(capacity)) {}

  /// Wakes the other thread if it waits.
  void push(const Entry& entry) noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    entries_[tail & (entries_.size() - 1)] = entry;
    tail_.store(tail + 1, std::memory_order_release);
    tail_.notify_one();
  }
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
  alignas(kCacheLine) std::uint32_t head_ = 0;  ///< the consumer's
};

class SetupThread {
 public:
  /// Setup. The thread runs on the processors of the calling one.
  SetupThread(VerbsDevice& device, std::size_t slots);
  /// After the results of all steps were taken.
  ~SetupThread();
  SetupThread(const SetupThread&) = delete;
  SetupThread& operator=(const SetupThread&) = delete;

  Hardware& hardware(std::uint16_t slot) noexcept { return hardware_[slot]; }
  void ask(SetupStep step, std::uint16_t slot) noexcept { wanted_.push({step, slot}); }
  bool has_results() const noexcept { return !results_.empty(); }
  bool take(SetupResult& result) noexcept { return results_.pop(result); }
  /// Setup: waits for the next result.
  SetupResult await() noexcept { return results_.await(); }

 private:
  struct Wanted {
    SetupStep step = SetupStep::Stop;
    std::uint16_t slot = 0;
  };
  /// Connect, ReplaceWindows, Fail and Destroy of one that ends as soon as it begins, and the Make of the next, with room.
  static constexpr std::size_t kStepsPerSlot = 8;

  void run() noexcept;
  bool take_step(const Wanted& wanted) noexcept;
  bool make(Hardware& hardware) noexcept;
  bool connect(Hardware& hardware) const noexcept;

  VerbsDevice& device_;
  std::vector<Hardware> hardware_;
  /// What the device took last of inline data, so that no queue pair is asked for in vain.
  std::size_t inline_choice_ = 0;
  HandOver<Wanted> wanted_;
  HandOver<SetupResult> results_;
  std::thread thread_;
};

}  // namespace sluice::rdma::verbs
