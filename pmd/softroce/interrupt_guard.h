// SPDX-License-Identifier: Apache-2.0
//
// Excludes DPDK's interrupt thread from an ethdev while a lane is inside one of its bursts.
//
// net_memif handles its control socket in that thread. When the peer disconnects, the thread unmaps the
// rings, while the burst functions check a flag only at their start. Therefore the thread's callbacks and the
// bursts exclude each other here. The thread holds the locks of all lanes except for kPeriodNs at a time,
// during which it is in a callback of the guard. All other callbacks of the process are delayed by that time,
// and so are messages on a control socket. A lane never blocks: while the thread holds the locks, the lane
// receives no packets and sends none. A process may have only one guard, because each of two guards would
// exclude the other's lanes while its own lanes run.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "pmd/softroce/port_config.h"

struct rte_intr_handle;

namespace sluice::rdma::softroce {

class InterruptGuard {
 public:
  /// Time for which the interrupt thread releases the locks of the lanes.
  static constexpr std::uint64_t kPeriodNs = 1'000'000;

  /// Setup. Starts the guard: all callbacks from now on hold the locks of the lanes. Throws SetupError.
  explicit InterruptGuard(std::uint32_t lanes);
  /// Setup. Requires that no lane is inside a burst or enters one.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Setup. Holds off the interrupt thread while the ethdev is started, stopped and closed. Blocks until the
  /// thread releases the locks.
  void hold() noexcept;
  void release() noexcept { leave(kSetup); }

  /// Called by the reactor of `lane`. Returns true if the lane may use the ethdev; the interrupt thread then
  /// does nothing until leave().
  bool enter(std::uint32_t lane) noexcept {
    Lane& own = lanes_[lane];
    SLUICE_INVARIANT_DEBUG(lane <= kSetup, table_index);
    return !own.wanted.load(std::memory_order_relaxed) && own.take();
  }
  void leave(std::uint32_t lane) noexcept {
    SLUICE_INVARIANT_DEBUG(lanes_[lane].taken.load(std::memory_order_relaxed), object_owner);
    // Pairs with take(): the lane's last use of the ethdev.
    lanes_[lane].taken.store(false, std::memory_order_release);
  }

 private:
  struct alignas(kCacheLine) Lane {
    /// Returns false if the lock is taken. Pairs with leave() and let_lanes_work(): the ethdev.
    bool take() noexcept { return !taken.exchange(true, std::memory_order_acquire); }

    std::atomic<bool> taken{true};
    std::atomic<bool> wanted{true};  ///< set by the interrupt thread, so that a lane that is constantly in
                                     ///< bursts releases its lock
  };

  static constexpr std::uint32_t kSetup = kMaxLanes;  ///< pseudo lane of the thread that does the setup

  static void on_interrupt(void* guard) noexcept;
  void let_lanes_work() noexcept;

  const std::uint32_t count_;
  int fd_ = -1;  ///< always readable, so that the interrupt thread calls back immediately
  rte_intr_handle* handle_ = nullptr;
  std::atomic<bool> ending_{false};
  std::array<Lane, kMaxLanes + 1> lanes_;
};

/// Scope of one burst. Converts to true if the ethdev has no guard or the lane has entered it.
class Burst {
 public:
  Burst(InterruptGuard* guard, std::uint32_t lane) noexcept
      : guard_(guard), lane_(lane), entered_(guard == nullptr || guard->enter(lane)) {}
  ~Burst() {
    if (guard_ != nullptr && entered_) guard_->leave(lane_);
  }
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;
  explicit operator bool() const noexcept { return entered_; }

 private:
  InterruptGuard* const guard_;
  const std::uint32_t lane_;
  const bool entered_;
};

}  // namespace sluice::rdma::softroce
