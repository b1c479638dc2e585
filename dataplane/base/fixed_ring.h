// SPDX-License-Identifier: Apache-2.0
//
// FIFO queue with a capacity fixed at setup. Single-threaded; only the constructor and grow() allocate.
// `Storage` may be RingStorage<T>, so that pages of a large ring become resident only when they are used.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice {

template <typename T, typename Storage = FixedArray<T>>
class FixedRing {
 public:
  FixedRing() = default;
  explicit FixedRing(std::size_t capacity) : slots_(capacity) {}

  std::size_t capacity() const noexcept { return slots_.size(); }
  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  bool full() const noexcept { return count_ == slots_.size(); }

  /// Sets the capacity to `capacity` or size(), whichever is larger, and keeps the order. Called at setup
  /// only.
  void grow(std::size_t capacity) {
    Storage larger(larger_of(capacity, count_));
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  /// Appends a copy of `element`. Returns false, with no effect, if the ring is full.
  bool push_back(const T& element) noexcept {
    static_assert(std::is_nothrow_copy_assignable_v<T>);
    if (full()) return false;
    slots_[at(count_++)] = element;
    return true;
  }

  // Release builds do not check that the ring is not empty, or that i < size(). Index 0 is the front.
  T& front() noexcept { return (*this)[0]; }
  T& operator[](std::size_t i) noexcept {
    static_cast<void>(SLUICE_INVARIANT(i < count_, ring_index));
    return slots_[at(i)];
  }
  T pop_front() noexcept {
    T element = std::move(front());
    drop(1);
    return element;
  }

  /// Moves up to into.size() elements from the front into `into`; returns how many.
  std::size_t pop_front(std::span<T> into) noexcept {
    const std::size_t taken = smaller_of(count_, into.size());
    for (std::size_t i = 0; i < taken; ++i) into[i] = std::move((*this)[i]);
    drop(taken);
    return taken;
  }

  /// Removes matching elements and keeps the order of the remaining ones. Linear in size().
  template <typename Predicate>
  void erase_if(Predicate predicate) noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      T& element = slots_[at(i)];
      if (predicate(std::as_const(element))) continue;
      if (kept != i) slots_[at(kept)] = std::move(element);
      ++kept;
    }
    count_ = kept;
  }

  void clear() noexcept { head_ = count_ = 0; }

 private:
  /// Removes elements from the front. An empty ring restarts at index 0, so that the same few cache lines are
  /// reused.
  void drop(std::size_t count) noexcept {
    count_ -= count;
    head_ = count_ == 0 ? 0 : at(count);
  }
  std::size_t at(std::size_t i) const noexcept {
    const std::size_t place = head_ + i;
    return place < slots_.size() ? place : place - slots_.size();
  }

  std::size_t count_ = 0;  // first member, because most rings are empty and only their size is read
  std::size_t head_ = 0;
  Storage slots_;
};

}  // namespace sluice
