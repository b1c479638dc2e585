// SPDX-License-Identifier: Apache-2.0
//
// Last-in first-out store of copies with a capacity fixed at setup. It holds free slots and buffers with the
// most recently used one, which is still in the cache, on top. Single-threaded.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/invariant.h"

namespace sluice {

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
  const T& top() const noexcept { return elements_[size_ - 1]; }
  /// Removes and returns the top element. Requires a stack that is not empty.
  T pop() noexcept { return elements_[--size_]; }
  void clear() noexcept { size_ = 0; }

 private:
  FixedArray<T> elements_;
  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
};

}  // namespace sluice
