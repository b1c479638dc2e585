// SPDX-License-Identifier: Apache-2.0
//
// Last-in first-out store of copies with room for a number of elements that is fixed at setup: what is free
// of slots and buffers, the most recently used (and so still in the cache) on top. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/base/fixed_array.h"
#include "dataplane/base/invariant.h"

namespace sluice {

template <typename T>
class FixedStack {
 public:
  /// Setup: allocates.
  explicit FixedStack(std::uint32_t capacity) : elements_(capacity), capacity_(capacity) {}

  bool empty() const noexcept { return size_ == 0; }
  bool full() const noexcept { return size_ == capacity_; }
  std::size_t size() const noexcept { return size_; }

  /// More than there is room for came back: the element is dropped.
  void push(const T& element) noexcept {
    if (!SLUICE_INVARIANT(!full(), pool_balance)) return;
    elements_[size_++] = element;
  }
  /// Of a stack that is not empty.
  const T& top() const noexcept { return elements_[size_ - 1]; }
  /// Of a stack that is not empty.
  T pop() noexcept { return elements_[--size_]; }
  void clear() noexcept { size_ = 0; }

 private:
  FixedArray<T> elements_;
  std::uint32_t capacity_;
  std::uint32_t size_ = 0;
};

}  // namespace sluice
