// SPDX-License-Identifier: Apache-2.0
//
// Single-producer single-consumer ring of fixed slots, between two threads or, in shared memory, processes.
//
// What each side writes is a structure of its own, so that they can lie in memory that the other side may only read.
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

/// What the producer writes.
template <typename T, std::uint32_t Slots>
struct RingOfProducer {
  static_assert(std::has_single_bit(Slots) && std::is_trivially_copyable_v<T>);
  alignas(kCacheLine) std::atomic<std::uint32_t> tail;
  alignas(kCacheLine) std::array<T, Slots> slots;
};

/// What the consumer writes.
struct RingOfConsumer {
  alignas(kCacheLine) std::atomic<std::uint32_t> head;
};

/// The ring that both are. Refers to them: cheap to copy, and constant as a pointer is.
template <typename T, std::uint32_t Slots>
class Ring {
 public:
  Ring(RingOfProducer<T, Slots>& producer, RingOfConsumer& consumer) noexcept
      : producer_(producer), consumer_(consumer) {}

  static constexpr std::uint32_t capacity() noexcept { return Slots; }

  /// Producer only. False when the ring is full.
  bool push(const T& item) const noexcept {
    const std::uint32_t tail = producer_.tail.load(std::memory_order_relaxed);
    const std::uint32_t used = tail - consumer_.head.load(std::memory_order_acquire);
    if (used == Slots || !is_possible(used)) return false;
    producer_.slots[tail & (Slots - 1)] = item;
    SLUICE_STORE_POINT();
    producer_.tail.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// Consumer only. False when the ring is empty.
  bool pop(T& item) const noexcept {
    const std::uint32_t head = consumer_.head.load(std::memory_order_relaxed);
    const std::uint32_t used = producer_.tail.load(std::memory_order_acquire) - head;
    if (used == 0 || !is_possible(used)) return false;
    item = producer_.slots[head & (Slots - 1)];
    SLUICE_STORE_POINT();
    consumer_.head.store(head + 1, std::memory_order_release);
    SLUICE_STORE_POINT();
    return true;
  }

  /// Any thread. A snapshot: may be stale when it returns, but is never above `Slots`.
  std::uint32_t size() const noexcept {
    const std::uint32_t used =
        producer_.tail.load(std::memory_order_acquire) - consumer_.head.load(std::memory_order_acquire);
    return used > Slots ? Slots : used;
  }

  /// A consumer whose memory is new: what is in the ring was for one before it.
  void begin_to_consume() const noexcept {
    consumer_.head.store(producer_.tail.load(std::memory_order_acquire), std::memory_order_release);
  }
  /// A producer whose memory is new: goes on where the consumer is.
  void begin_to_produce() const noexcept {
    producer_.tail.store(consumer_.head.load(std::memory_order_acquire), std::memory_order_release);
  }

 private:
  /// Counted and never an abort: the index may be another plane's, which writes what it likes, or has cut its file short.
  static bool is_possible(std::uint32_t used) noexcept {
    if (used <= Slots) return true;
    count_failure(Invariant::ring_index);
    return false;
  }

  RingOfProducer<T, Slots>& producer_;
  RingOfConsumer& consumer_;
};

/// One whole, in memory that both sides write: between threads.
template <typename T, std::uint32_t Slots>
class SpscRing {
 public:
  static constexpr std::uint32_t capacity() noexcept { return Slots; }
  bool push(const T& item) noexcept { return ring().push(item); }
  bool pop(T& item) noexcept { return ring().pop(item); }
  std::uint32_t size() const noexcept { return const_cast<SpscRing*>(this)->ring().size(); }

 private:
  Ring<T, Slots> ring() noexcept { return {producer_, consumer_}; }
  RingOfProducer<T, Slots> producer_;
  RingOfConsumer consumer_;
};

}  // namespace sluice
