// SPDX-License-Identifier: Apache-2.0
//
// Single-producer single-consumer ring of fixed slots, between two threads or, in shared memory, processes.
//
// Indices are free-running and compared modulo 2^32; the slot count is a power of two. Zeroed memory is an
// empty ring. push() on a full ring fails; what the producer does then is documented per message type.
// Neither side trusts the other's index: it is checked against the slot count.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/store_point.h"

namespace sluice {

template <typename T, std::uint32_t Slots>
class SpscRing {
  static_assert(std::has_single_bit(Slots) && std::is_trivially_copyable_v<T>);

 public:
  static constexpr std::uint32_t capacity() noexcept { return Slots; }

  /// Producer only. False when the ring is full.
  bool push(const T& item) noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    const std::uint32_t used = tail - head_.load(std::memory_order_acquire);
    if (used == Slots || !SLUICE_INVARIANT(used < Slots, ring_index)) return false;
    slots_[tail & (Slots - 1)] = item;
    SLUICE_STORE_POINT();
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// Consumer only. False when the ring is empty.
  bool pop(T& item) noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    const std::uint32_t used = tail_.load(std::memory_order_acquire) - head;
    if (used == 0 || !SLUICE_INVARIANT(used <= Slots, ring_index)) return false;
    item = slots_[head & (Slots - 1)];
    SLUICE_STORE_POINT();
    head_.store(head + 1, std::memory_order_release);
    SLUICE_STORE_POINT();
    return true;
  }

  /// Any thread. A snapshot: may be stale when it returns, but is never above `Slots`.
  std::uint32_t size() const noexcept {
    const std::uint32_t used = tail_.load(std::memory_order_acquire) - head_.load(std::memory_order_acquire);
    return used > Slots ? Slots : used;
  }

 private:
  alignas(kCacheLine) std::atomic<std::uint32_t> tail_;  ///< written by the producer
  alignas(kCacheLine) std::atomic<std::uint32_t> head_;  ///< written by the consumer
  alignas(kCacheLine) std::array<T, Slots> slots_;
};

}  // namespace sluice
