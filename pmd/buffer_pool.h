// SPDX-License-Identifier: Apache-2.0
//
// Pool of equal-sized buffers in registered memory, for messages that do not fit a call slot: Long Calls and
// large replies. Only the owning reactor may call; constructors are setup. The device owns the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/base/invariant.h"
#include "pmd/memory.h"
#include "pmd/work_request.h"

namespace sluice::rdma {

class Device;

class BufferPool {
 public:
  BufferPool() = default;
  /// Splits `region` into buffers. A remainder smaller than a buffer stays unused.
  BufferPool(MemoryRegion region, std::size_t buffer_bytes)
      : region_(region),
        buffer_bytes_(buffer_bytes),
        available_(region.bytes.size() / buffer_bytes),
        in_use_(available_) {
    free_.reserve(available_);
    for (std::size_t i = available_; i > 0; --i) free_.push_back(i - 1);
    static_cast<void>(SLUICE_INVARIANT(available_ * buffer_bytes <= region.bytes.size(), buffer_bounds));
  }

  /// Setup. Allocates and registers the memory. Throws SetupError.
  BufferPool(Device& device, std::size_t buffers, std::size_t buffer_bytes);

  std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
  std::size_t available() const noexcept { return available_; }
  /// Returns the index of a buffer of this pool.
  std::size_t number_of(const std::byte* buffer) const noexcept { return offset_of(buffer) / buffer_bytes_; }
  Lkey lkey() const noexcept { return region_.lkey; }

  /// Returns true for an address in a buffer of this pool, which may be free.
  bool contains(const std::byte* address) const noexcept {
    return offset_of(address) < in_use_.size() * buffer_bytes_;
  }
  /// Returns a buffer that the caller owns until release(), or null if all buffers are in use; the caller
  /// then waits and counts the wait.
  std::byte* acquire() noexcept {
    if (available_ == 0) return nullptr;
    const std::size_t number = free_[--available_];
    SLUICE_INVARIANT_DEBUG(number < in_use_.size() && !in_use_[number], pool_balance);
    in_use_[number] = true;
    return region_.bytes.data() + number * buffer_bytes_;
  }
  /// Returns a buffer of acquire() to the pool. Any other pointer is a bug of the caller and is ignored.
  void release(std::byte* buffer) noexcept {
    if (!SLUICE_INVARIANT(in_use(buffer), pool_balance)) return;
    const std::size_t number = number_of(buffer);
    SLUICE_INVARIANT_DEBUG(available_ < in_use_.size(), pool_balance);
    in_use_[number] = false;
    free_[available_++] = number;
  }

 private:
  std::size_t offset_of(const std::byte* buffer) const noexcept {
    return reinterpret_cast<std::uintptr_t>(buffer) - reinterpret_cast<std::uintptr_t>(region_.bytes.data());
  }
  bool in_use(const std::byte* buffer) const noexcept {
    if (buffer_bytes_ == 0 || offset_of(buffer) % buffer_bytes_ != 0) return false;
    const std::size_t number = number_of(buffer);
    return number < in_use_.size() && in_use_[number];
  }

  MemoryRegion region_;
  std::size_t buffer_bytes_ = 0;
  std::size_t available_ = 0;
  std::vector<bool> in_use_;       ///< by buffer index
  std::vector<std::size_t> free_;  ///< indices of buffers; the first available_ are valid
};

}  // namespace sluice::rdma
