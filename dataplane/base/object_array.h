// SPDX-License-Identifier: Apache-2.0
//
// Objects that are made one after another and never move, in one piece of memory: which of them a number stands for
// takes no look at memory. Allocated at setup; one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "dataplane/base/buffer_stride.h"
#include "dataplane/base/cache_line.h"

namespace sluice {

template <typename T>
class ObjectArray {
 public:
  /// Setup: room for so many.
  explicit ObjectArray(std::size_t capacity)
      : first_(static_cast<std::byte*>(::operator new (capacity* kStride, std::align_val_t{kCacheLine}))) {}
  ~ObjectArray() {
    while (size_ > 0) std::destroy_at(&(*this)[--size_]);
    ::operator delete (first_, std::align_val_t{kCacheLine});
  }
  ObjectArray(const ObjectArray&) = delete;
  ObjectArray& operator=(const ObjectArray&) = delete;

  /// Setup: there is room for one more.
  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    T* const made = new (first_ + size_ * kStride) T(std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) noexcept { return *at(first_, i); }
  const T& operator[](std::size_t i) const noexcept { return *at(first_, i); }
  /// The same, for a loop that keeps it: then not even the array is looked at.
  class Base {
   public:
    T& operator[](std::size_t i) const noexcept { return *at(first_, i); }

   private:
    friend ObjectArray;
    explicit Base(std::byte* first) noexcept : first_(first) {}
    std::byte* first_;
  };
  Base base() noexcept { return Base(first_); }

 private:
  static_assert(alignof(T) <= kCacheLine);
  /// So that the same member of each does not fall into the same few sets of the level 1 cache.
  static constexpr std::size_t kStride = buffer_stride(sizeof(T));
  static T* at(std::byte* first, std::size_t i) noexcept {
    return std::launder(reinterpret_cast<T*>(first + i * kStride));
  }

  std::byte* const first_;
  std::size_t size_ = 0;
};

}  // namespace sluice
