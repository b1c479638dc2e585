// SPDX-License-Identifier: Apache-2.0
//
// Single-producer single-consumer ring of fixed slots, between two threads or, in shared memory, processes.
//
// The words that each side writes are a separate structure, which may be in memory that the other side can
// only read. Indices are free-running and compared modulo 2^32; the slot count is a power of two. Zeroed
// memory is an empty ring. push() fails on a full ring; each message type documents what its producer does
// then. Neither side trusts the other's index: it is checked against the slot count.
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

/// Part of a ring that the producer writes.
template <typename T, std::uint32_t Slots>
struct RingOfProducer {
  static_assert(std::has_single_bit(Slots) && std::is_trivially_copyable_v<T>);
  alignas(kCacheLine) std::atomic<std::uint32_t> tail;
  alignas(kCacheLine) std::array<T, Slots> slots;
};

/// Part of a ring that the consumer writes.
struct RingOfConsumer {
  alignas(kCacheLine) std::atomic<std::uint32_t> head;
};

/// Ring of both parts. It only refers to them, so it is cheap to copy, and constness is that of a pointer.
template <typename T, std::uint32_t Slots>
class Ring {
 public:
  Ring(RingOfProducer<T, Slots>& producer, RingOfConsumer& consumer) noexcept
      : producer_(producer), consumer_(consumer) {}

  static constexpr std::uint32_t capacity() noexcept { return Slots; }

  /// Appends an item. Returns false if the ring is full. Producer only.
  bool push(const T& item) const noexcept {
    const std::uint32_t tail = producer_.tail.load(std::memory_order_relaxed);
    const std::uint32_t used = tail - consumer_.head.load(std::memory_order_acquire);  // pairs with pop()
    if (used == Slots || !is_possible(used)) return false;
    producer_.slots[tail & (Slots - 1)] = item;
    SLUICE_STORE_POINT();
    producer_.tail.store(tail + 1, std::memory_order_release);  // pairs with pop()
    return true;
  }

  /// Takes the oldest item. Returns false if the ring is empty. Consumer only.
  bool pop(T& item) const noexcept {
    const std::uint32_t head = consumer_.head.load(std::memory_order_relaxed);
    const std::uint32_t used = producer_.tail.load(std::memory_order_acquire) - head;  // pairs with push()
    if (used == 0 || !is_possible(used)) return false;
    item = producer_.slots[head & (Slots - 1)];
    SLUICE_STORE_POINT();
    consumer_.head.store(head + 1, std::memory_order_release);  // pairs with push()
    SLUICE_STORE_POINT();
    return true;
  }

  /// Returns a snapshot of the number of items, which may be stale but is never above `Slots`. Any thread.
  std::uint32_t size() const noexcept {
    const std::uint32_t used =  // pairs with push() and pop()
        producer_.tail.load(std::memory_order_acquire) - consumer_.head.load(std::memory_order_acquire);
    return used > Slots ? Slots : used;
  }

  /// Discards all entries, which were meant for a predecessor. Called when a consumer restarts with new
  /// memory.
  void begin_to_consume() const noexcept {
    // The store pairs with push(), and the load with the store there.
    consumer_.head.store(producer_.tail.load(std::memory_order_acquire), std::memory_order_release);
  }
  /// Continues at the consumer's index. Called when a producer restarts with new memory.
  void begin_to_produce() const noexcept {
    // Pairs with pop().
    producer_.tail.store(consumer_.head.load(std::memory_order_acquire), std::memory_order_release);
  }

 private:
  /// Checks a fill level. A failure is counted and never aborts, because the index may belong to another
  /// plane, which may write any value or truncate its file.
  static bool is_possible(std::uint32_t used) noexcept {
    if (used <= Slots) return true;
    count_failure(Invariant::ring_index);
    return false;
  }

  RingOfProducer<T, Slots>& producer_;
  RingOfConsumer& consumer_;
};

/// Ring with both parts in memory that both sides can write: for threads of one process.
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
