// SPDX-License-Identifier: Apache-2.0
//
// First-in first-out queue whose room is set at setup. One thread; only the constructor and grow() allocate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "dataplane/base/invariant.h"

namespace sluice {

template <typename T>
class FixedRing {
 public:
  FixedRing() = default;
  explicit FixedRing(std::size_t capacity) : slots_(capacity) {}

  std::size_t capacity() const noexcept { return slots_.size(); }
  std::size_t size() const noexcept { return count_; }
  bool empty() const noexcept { return count_ == 0; }
  bool full() const noexcept { return count_ == slots_.size(); }

  /// Setup: room for `capacity` elements, but never less than there are. Keeps their order.
  void grow(std::size_t capacity) {
    std::vector<T> larger(std::max(capacity, count_));
    for (std::size_t i = 0; i < count_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    head_ = 0;
  }

  /// False, with nothing done, when it is full.
  bool push_back(const T& element) noexcept {
    static_assert(std::is_nothrow_copy_assignable_v<T>);
    if (full()) return false;
    slots_[at(count_++)] = element;
    return true;
  }

  // Not checked in a release: the ring is not empty, or has the element `i` places behind the front.
  T& front() noexcept { return (*this)[0]; }
  T& operator[](std::size_t i) noexcept {
    static_cast<void>(SLUICE_INVARIANT(i < count_, ring_index));
    return slots_[at(i)];
  }
  T pop_front() noexcept {
    T element = std::move(front());
    head_ = at(1);
    --count_;
    return element;
  }

  /// As many from the front as `into` has room for; returns how many.
  std::size_t pop_front(std::span<T> into) noexcept {
    const std::size_t taken = std::min(count_, into.size());
    for (std::size_t i = 0; i < taken; ++i) into[i] = std::move((*this)[i]);
    if (taken > 0) head_ = at(taken);
    count_ -= taken;
    return taken;
  }

  /// Linear in size(). The others keep their order.
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
  std::size_t at(std::size_t i) const noexcept {
    const std::size_t place = head_ + i;
    return place < slots_.size() ? place : place - slots_.size();
  }

  std::vector<T> slots_;
  std::size_t head_ = 0;
  std::size_t count_ = 0;
};

}  // namespace sluice
