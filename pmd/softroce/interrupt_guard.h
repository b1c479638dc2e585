// SPDX-License-Identifier: Apache-2.0
//
// Keeps DPDK's interrupt thread out of an ethdev while a lane is inside one of its bursts.
//
// net_memif handles its control socket in that thread: when the peer leaves, it unmaps the rings, and the
// burst functions look at a flag only before they begin. So the thread's callbacks and the bursts take turns
// here. The thread holds all lanes' locks except for kPeriodNs at a time, in a callback of ours, in which
// every other callback of the process waits: what a peer says on a control socket is heard that much later.
// A lane never waits; while the thread is at work it has no packets and sends none. One guard in a process:
// with two, each would keep the other's lanes out for as long as it lets its own work.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "dataplane/base/cache_line.h"
#include "pmd/softroce/port_config.h"

struct rte_intr_handle;

namespace sluice::rdma::softroce {

class InterruptGuard {
 public:
  /// How long the interrupt thread leaves the lanes alone.
  static constexpr std::uint64_t kPeriodNs = 1'000'000;

  /// Setup. Throws SetupError. From here on every callback is under the guard.
  explicit InterruptGuard(std::uint32_t lanes);
  /// Setup: no lane is inside or enters any more.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// Setup, while the ethdev is started, stopped and closed: waits until the interrupt thread lets go.
  void hold() noexcept;
  void release() noexcept { leave(kSetup); }

  /// The reactor of `lane`. True: the interrupt thread does nothing until leave().
  bool enter(std::uint32_t lane) noexcept {
    Lane& own = lanes_[lane];
    return !own.wanted.load(std::memory_order_relaxed) && own.take();
  }
  void leave(std::uint32_t lane) noexcept { lanes_[lane].taken.store(false, std::memory_order_release); }

 private:
  struct alignas(kCacheLine) Lane {
    bool take() noexcept { return !taken.exchange(true, std::memory_order_acquire); }

    std::atomic<bool> taken{true};
    std::atomic<bool> wanted{true};  ///< by the interrupt thread: a lane that is always in bursts lets it in
  };

  static constexpr std::uint32_t kSetup = kMaxLanes;  ///< a lane for who sets up

  static void on_interrupt(void* guard) noexcept;
  void let_lanes_work() noexcept;

  const std::uint32_t count_;
  int fd_ = -1;  ///< always readable: the interrupt thread comes back at once
  rte_intr_handle* handle_ = nullptr;
  std::atomic<bool> ending_{false};
  std::array<Lane, kMaxLanes + 1> lanes_;
};

/// The scope of one burst on an ethdev that has a guard; true without one.
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
