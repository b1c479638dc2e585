// SPDX-License-Identifier: Apache-2.0
//
// Cache lines, and the placement of buffers and objects in them. Single-threaded, except the constants.
#pragma once

#include <cstddef>
#include <new>
#include <utility>

#include "dataplane/base/invariant.h"

namespace sluice {

/// Size in bytes of a cache line on every processor that Sluice runs on. A constant, because structures that
/// two processes share must not depend on the compiler.
inline constexpr std::size_t kCacheLine = 64;

/// Returns a stride of at least `bytes` that is an odd number of cache lines. Buffers whose stride is a power
/// of two would all begin in one set of the level 1 cache. A set holds about a dozen lines, so in a burst of
/// short messages most would be evicted before they are read.
constexpr std::size_t buffer_stride(std::size_t bytes) noexcept {
  return ((bytes + kCacheLine - 1) / kCacheLine | 1) * kCacheLine;
}

/// Array of objects that are constructed one after another and never move, in one allocation: an element's
/// address is computed from its index, without a load. Allocated at setup; single-threaded.
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
  explicit ObjectArray(std::size_t capacity) : places_(new Place[capacity]), capacity_(capacity) {}
  ~ObjectArray() {
    while (size_ > 0) places_[--size_].object()->~T();
    delete[] places_;
  }
  ObjectArray(const ObjectArray&) = delete;
  ObjectArray& operator=(const ObjectArray&) = delete;

  /// Constructs an object in the next slot. Requires a free slot. Called at setup.
  template <typename... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    static_cast<void>(SLUICE_INVARIANT(size_ < capacity_, table_index));
    T* const made = new (places_[size_].bytes) T(std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }

  std::size_t size() const noexcept { return size_; }
  T& operator[](std::size_t i) noexcept {
    SLUICE_INVARIANT_DEBUG(i < size_, table_index);
    return *places_[i].object();
  }
  const T& operator[](std::size_t i) const noexcept {
    SLUICE_INVARIANT_DEBUG(i < size_, table_index);
    return *places_[i].object();
  }
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
  const std::size_t capacity_;
};

}  // namespace sluice
