// SPDX-License-Identifier: Apache-2.0
//
// Array whose size is fixed at setup. Its elements are zeroed or default-constructed. Only the constructors
// allocate. Single-threaded.
#pragma once

#include <cstddef>
#include <utility>

namespace sluice {

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
  T& operator[](std::size_t index) noexcept { return elements_[index]; }
  const T& operator[](std::size_t index) const noexcept { return elements_[index]; }
  T* begin() noexcept { return elements_; }
  T* end() noexcept { return elements_ + size_; }
  const T* begin() const noexcept { return elements_; }
  const T* end() const noexcept { return elements_ + size_; }

 private:
  FixedArray(T* elements, std::size_t size) noexcept : elements_(elements), size_(size) {}

  T* elements_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace sluice
