// SPDX-License-Identifier: Apache-2.0
//
// What a port sets up at its ethdev: memory that a network card may read, and the guard against DPDK's interrupt thread.
#include "pmd/softroce/card_memory.h"

#include <rte_dev.h>
#include <rte_errno.h>
#include <rte_interrupts.h>
#include <rte_memory.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <string>

#include "dataplane/base/setup_error.h"
#include "pmd/common/pages.h"
#include "pmd/common/sleep.h"
#include "pmd/softroce/interrupt_guard.h"

namespace sluice::rdma::softroce {
namespace {

void* pointer(std::uintptr_t address) noexcept {
  return reinterpret_cast<void*>(address);
}

}  // namespace

bool CardMemory::open(rte_device& card) {
  card_ = &card;
  Pages trial;
  const bool possible = add(trial.allocate(kPageBytes));
  remove();
  return possible;
}

bool CardMemory::add(std::span<std::byte> bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(bytes.data());
  std::uintptr_t at = first / kPageBytes * kPageBytes;
  const std::uintptr_t end = (first + bytes.size() + kPageBytes - 1) / kPageBytes * kPageBytes;
  while (at < end) {
    const auto after = mapped_.upper_bound(at);
    if (after != mapped_.begin() && std::prev(after)->second > at) {
      at = std::prev(after)->second;
      continue;
    }
    const std::uintptr_t stop = after != mapped_.end() && after->first < end ? after->first : end;
    if (!map(at, stop)) return false;
    at = stop;
  }
  return true;
}

bool CardMemory::map(std::uintptr_t begin, std::uintptr_t end) {
  const std::size_t bytes = end - begin;
  const std::size_t page = (begin | end) % kHugePageBytes == 0 ? kHugePageBytes : kPageBytes;
  const bool known =
      rte_extmem_register(pointer(begin), bytes, nullptr, static_cast<unsigned>(bytes / page), page) == 0;
  if (known && rte_dev_dma_map(card_, pointer(begin), begin, bytes) == 0) {
    mapped_.emplace(begin, end);
    return true;
  }
  error_ = rte_strerror(rte_errno);
  if (known) rte_extmem_unregister(pointer(begin), bytes);
  return false;
}

void CardMemory::unmap(std::uintptr_t begin, std::uintptr_t end) noexcept {
  rte_dev_dma_unmap(card_, pointer(begin), begin, end - begin);
  rte_extmem_unregister(pointer(begin), end - begin);
}

void CardMemory::remove() noexcept {
  for (const auto& [begin, end] : mapped_) unmap(begin, end);
  mapped_.clear();
}

namespace {

/// Between looks at a lane that is in a burst: it may have lost its processor there.
constexpr std::uint64_t kBackOffNs = 5'000;

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
  while (!enter(kSetup)) sleep_ns(kBackOffNs);
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
  sleep_ns(kPeriodNs);
  each([](Lane& lane) { lane.wanted.store(true, std::memory_order_relaxed); });
  each([](Lane& lane) {
    while (!lane.take()) sleep_ns(kBackOffNs);
  });
}

}  // namespace sluice::rdma::softroce
