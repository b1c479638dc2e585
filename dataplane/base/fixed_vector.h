// SPDX-License-Identifier: Apache-2.0
//
// Vector of up to N values in place, for short-lived data of a call. Unlike in an array, unused values are
// not initialized, and their memory is not touched. Single-threaded; no allocation.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>

#include "dataplane/base/invariant.h"

namespace sluice {

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
