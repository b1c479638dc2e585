// SPDX-License-Identifier: Apache-2.0
#include "pmd/softroce/interrupt_guard.h"

#include <rte_errno.h>
#include <rte_interrupts.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "dataplane/base/setup_error.h"

namespace sluice::rdma::softroce {
namespace {

/// Between looks at a lane that is in a burst: it may have lost its processor there.
constexpr std::chrono::microseconds kBackOff{5};

}  // namespace

InterruptGuard::InterruptGuard(std::uint32_t lanes) : count_(lanes) {
  fd_ = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  handle_ = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_PRIVATE);
  const bool ready = fd_ >= 0 && handle_ != nullptr && rte_intr_fd_set(handle_, fd_) == 0 &&
                     rte_intr_type_set(handle_, RTE_INTR_HANDLE_EXT) == 0;
  const int error = ready ? rte_intr_callback_register(handle_, on_interrupt, this) : -errno;
  if (ready && error == 0) {
    hold();
    release();
    return;
  }
  rte_intr_instance_free(handle_);
  if (fd_ >= 0) close(fd_);
  throw SetupError(std::string("Cannot join DPDK's interrupt thread (") + rte_strerror(-error) +
                   "), which memif needs: raise the limit of open files (ulimit -n).");
}

InterruptGuard::~InterruptGuard() {
  ending_.store(true, std::memory_order_relaxed);
  rte_intr_callback_unregister_sync(handle_, on_interrupt, this);
  rte_intr_instance_free(handle_);
  close(fd_);
}

void InterruptGuard::hold() noexcept {
  while (!enter(kSetup)) std::this_thread::sleep_for(kBackOff);
}

void InterruptGuard::on_interrupt(void* guard) noexcept {
  static_cast<InterruptGuard*>(guard)->let_lanes_work();
}

/// The interrupt thread. It comes with all lanes taken, and goes so.
void InterruptGuard::let_lanes_work() noexcept {
  if (ending_.load(std::memory_order_relaxed)) return;
  const auto each = [this](auto&& change) {
    for (std::uint32_t lane = 0; lane < count_; ++lane) change(lanes_[lane]);
    change(lanes_[kSetup]);
  };
  each([](Lane& lane) {
    lane.wanted.store(false, std::memory_order_relaxed);
    lane.taken.store(false, std::memory_order_release);
  });
  std::this_thread::sleep_for(std::chrono::nanoseconds(kPeriodNs));
  each([](Lane& lane) { lane.wanted.store(true, std::memory_order_relaxed); });
  each([](Lane& lane) {
    while (!lane.take()) std::this_thread::sleep_for(kBackOff);
  });
}

}  // namespace sluice::rdma::softroce
