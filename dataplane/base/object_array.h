// SPDX-License-Identifier: Apache-2.0
//
// Array of objects that are constructed one after another and never move, in one allocation: an element's
// address is computed from its index, without a load. Allocated at setup; single-threaded.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "dataplane/base/buffer_stride.h"
#include "dataplane/base/cache_line.h"

namespace sluice {

template <typename T>
class ObjectArray {
  static_assert(alignof(T) <= kCacheLine);

  /// Slot for one object. Its size keeps equal members of different objects out of the same few sets of the
  /// level 1 cache.
  struct alignas(kCacheLine) Place {
    std::byte bytes[buffer_stride(sizeof(T))];
    T* object() noexcept { return std::launder(reinterpret_cast<T*>(bytes)); }
    const T* object() const noexcept { return std::launder(reinterpret_cast<const T*>(bytes)); }
  };

 public:
  /// Allocates slots for `capacity` objects. Called at setup.
  explicit ObjectArray(std::size_t capacity) : places_(new Place[capacity]) {}
  ~ObjectArray() {
    while (size_ > 0) places_[--size_].object()->~T();
    delete[] places_;
  }
  ObjectArray(const ObjectArray&) = delete;
  ObjectArray& operator=(const ObjectArray&) = delete;

  /// Constructs an object in the next slot. Requires a free slot. Called at setup.
  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    T* const made = new (places_[size_].bytes) T(std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) noexcept { return *places_[i].object(); }
  const T& operator[](std::size_t i) const noexcept { return *places_[i].object(); }
  /// Address of the first slot, for a loop that keeps it and so does not even load it from the array.
  class Base {
   public:
    T& operator[](std::size_t i) const noexcept { return *first_[i].object(); }

   private:
    friend ObjectArray;
    explicit Base(Place* first) noexcept : first_(first) {}
    Place* first_;
  };
  Base base() noexcept { return Base(places_); }

 private:
  Place* const places_;  ///< owned; not zeroed
  std::size_t size_ = 0;
};

}  // namespace sluice
