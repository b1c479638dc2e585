// SPDX-License-Identifier: Apache-2.0
//
// Memory of a ring: an array whose elements are uninitialized until they are written. Its construction costs
// no time proportional to its size, and pages become resident on first use. Allocated at setup;
// single-threaded.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace sluice {

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
  T& operator[](std::size_t i) noexcept { return elements_[i]; }
  const T& operator[](std::size_t i) const noexcept { return elements_[i]; }

 private:
  T* elements_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace sluice
