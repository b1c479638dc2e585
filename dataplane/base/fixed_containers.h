// SPDX-License-Identifier: Apache-2.0
//
// Containers whose capacity is fixed at setup, or in the type: array, ring, stack and vector. Only the
// constructors allocate, and FixedRing::grow(). Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"

namespace sluice {

/// Array whose elements are zeroed or default-constructed.
template <typename T>
class FixedArray {
 public:
  FixedArray() = default;
  explicit FixedArray(std::size_t size) : FixedArray(new T[size](), size) {}
  /// Creates an array whose elements are not zeroed, so that its pages become resident only when they are
  /// used.
  static FixedArray for_overwrite(std::size_t size) { return FixedArray(new T[size], size); }
  ~FixedArray() { delete[] elements_; }
  FixedArray(FixedArray&& other) noexcept
      : elements_(std::exchange(other.elements_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  FixedArray& operator=(FixedArray&& other) noexcept {
    std::swap(elements_, other.elements_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::size_t size() const noexcept { return size_; }
  T* data() noexcept { return elements_; }
  const T* data() const noexcept { return elements_; }
  // Release builds do not check that index < size().
  T& operator[](std::size_t index) noexcept {
    SLUICE_INVARIANT_DEBUG(index < size_, table_index);
    return elements_[index];
  }
  const T& operator[](std::size_t index) const noexcept {
    SLUICE_INVARIANT_DEBUG(index < size_, table_index);
    return elements_[index];
  }
  T* begin() noexcept { return elements_; }
  T* end() noexcept { return elements_ + size_; }
  const T* begin() const noexcept { return elements_; }
  const T* end() const noexcept { return elements_ + size_; }

 private:
  FixedArray(T* elements, std::size_t size) noexcept : elements_(elements), size_(size) {}

  T* elements_ = nullptr;
  std::size_t size_ = 0;
};

/// Memory of a ring: an array whose elements are uninitialized until they are written. Its construction costs
/// no time proportional to its size, and pages become resident on first use. Allocated at setup;
/// single-threaded.
template <typename T>
class RingStorage {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= alignof(std::max_align_t));

 public:
  RingStorage() = default;
  explicit RingStorage(std::size_t count)
      : elements_(static_cast<T*>(std::malloc((count + 1) * sizeof(T)))), count_(count) {
    if (elements_ == nullptr) throw std::bad_alloc();
  }
  ~RingStorage() { std::free(elements_); }
  RingStorage(RingStorage&& other) noexcept
      : elements_(std::exchange(other.elements_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  RingStorage& operator=(RingStorage&& other) noexcept {
    std::swap(elements_, other.elements_);
    std::swap(count_, other.count_);
    return *this;
  }

  std::size_t size() const noexcept { return count_; }
  T& operator[](std::size_t i) noexcept {
    SLUICE_INVARIANT_DEBUG(i <= count_, table_index);
    return elements_[i];
  }
  const T& operator[](std::size_t i) const noexcept {
    SLUICE_INVARIANT_DEBUG(i <= count_, table_index);
    return elements_[i];
  }

 private:
  T* elements_ = nullptr;
  std::size_t count_ = 0;
};

/// FIFO queue. `Storage` may be RingStorage<T>, so that pages of a large ring become resident only when they
/// are used.
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
    static_cast<void>(SLUICE_INVARIANT(slots_.size() >= count_, ring_index));
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
    if (taken == 0) return 0;
    // The elements are in one or two runs, so the loops have no index to wrap.
    const std::size_t before_wrap = smaller_of(taken, slots_.size() - head_);
    T* const first = &slots_[head_];
    for (std::size_t i = 0; i < before_wrap; ++i) into[i] = std::move(first[i]);
    T* const rest = &slots_[0];
    for (std::size_t i = before_wrap; i < taken; ++i) into[i] = std::move(rest[i - before_wrap]);
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
    SLUICE_INVARIANT_DEBUG(count <= count_, ring_index);
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

/// Last-in first-out store of copies. It holds free slots and buffers with the most recently used one, which
/// is still in the cache, on top.
template <typename T>
class FixedStack {
 public:
  /// Allocates the memory. Called at setup.
  explicit FixedStack(std::uint32_t capacity) : elements_(capacity), capacity_(capacity) {}

  bool empty() const noexcept { return size_ == 0; }
  bool full() const noexcept { return size_ == capacity_; }
  std::size_t size() const noexcept { return size_; }

  /// Pushes an element. If the stack is full, an invariant fails and the element is dropped.
  void push(const T& element) noexcept {
    if (!SLUICE_INVARIANT(!full(), pool_balance)) return;
    elements_[size_++] = element;
  }
  /// Returns the top element. Requires a stack that is not empty.
  const T& top() const noexcept {
    SLUICE_INVARIANT_DEBUG(!empty(), pool_balance);
    return elements_[size_ - 1];
  }
  /// Removes and returns the top element. Requires a stack that is not empty.
  T pop() noexcept {
    SLUICE_INVARIANT_DEBUG(!empty(), pool_balance);
    return elements_[--size_];
  }
  void clear() noexcept { size_ = 0; }

 private:
  FixedArray<T> elements_;
  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
};

/// Vector of up to N values in place, for short-lived data of a call. Unlike in an array, unused values are
/// not initialized, and their memory is not touched. No allocation.
template <typename T, std::size_t N>
class FixedVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  FixedVector() noexcept {}  // NOLINT(cppcoreguidelines-pro-type-member-init): memory stays uninitialized
  FixedVector(const FixedVector&) = delete;
  FixedVector& operator=(const FixedVector&) = delete;

  /// Appends a value. If the vector is full, an invariant fails and the value is dropped.
  void push_back(const T& value) noexcept {
    if (SLUICE_INVARIANT(size_ < N, ring_index)) ::new (at(size_++)) T(value);
  }
  std::span<const T> values() const noexcept { return {at(0), size_}; }

 private:
  T* at(std::size_t index) noexcept { return std::launder(reinterpret_cast<T*>(memory_)) + index; }
  const T* at(std::size_t index) const noexcept {
    return std::launder(reinterpret_cast<const T*>(memory_)) + index;
  }

  std::size_t size_ = 0;
  alignas(T) std::byte memory_[N * sizeof(T)];
};

}  // namespace sluice
