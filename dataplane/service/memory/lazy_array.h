// SPDX-License-Identifier: Apache-2.0
//
// Array whose pages become resident on first use.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <type_traits>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"

namespace sluice::service::memory {

/// A fixed-size array of zeroed elements. Pages become resident when first written. Construct it at setup;
/// the constructor throws SetupError.
template <typename T>
class LazyArray {
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  explicit LazyArray(std::size_t count) : count_(count) {
    void* memory =
        ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      throw SetupError("There is not enough address space for the configured max_files.");
    elements_ = static_cast<T*>(memory);
  }
  ~LazyArray() { ::munmap(elements_, bytes()); }
  LazyArray(const LazyArray&) = delete;
  LazyArray& operator=(const LazyArray&) = delete;

  std::size_t size() const noexcept { return count_; }
  T& operator[](std::size_t i) noexcept {
    SLUICE_INVARIANT_DEBUG(i < count_, table_index);
    return elements_[i];
  }
  const T& operator[](std::size_t i) const noexcept {
    SLUICE_INVARIANT_DEBUG(i < count_, table_index);
    return elements_[i];
  }

 private:
  std::size_t bytes() const noexcept { return count_ * sizeof(T) + 1; }
  std::size_t count_;
  T* elements_ = nullptr;
};

}  // namespace sluice::service::memory
