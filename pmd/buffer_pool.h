// SPDX-License-Identifier: Apache-2.0
//
// Pool of equal-sized buffers in registered memory, for messages that do not fit a call slot: Long Calls and
// large replies. Only the owning reactor may call; constructors are setup. The memory is the device's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pmd/device.h"

namespace sluice::rdma {

class BufferPool {
 public:
  BufferPool() = default;
  /// Splits `region` into buffers; a remainder smaller than a buffer stays unused.
  BufferPool(MemoryRegion region, std::size_t buffer_bytes)
      : region_(region), buffer_bytes_(buffer_bytes), available_(region.bytes.size() / buffer_bytes) {
    free_.reserve(available_);
    for (std::size_t i = available_; i > 0; --i)
      free_.push_back(region.bytes.data() + (i - 1) * buffer_bytes);
  }

  /// Setup. Allocates and registers the memory. Throws SetupError.
  BufferPool(Device& device, std::size_t buffers, std::size_t buffer_bytes)
      : BufferPool(device.allocate_memory(buffers * buffer_bytes), buffer_bytes) {}

  std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
  std::size_t available() const noexcept { return available_; }
  Lkey lkey() const noexcept { return region_.lkey; }

  /// Null when all buffers are in use: the caller waits and counts that. The caller owns the buffer until
  /// release().
  std::byte* acquire() noexcept {
    if (available_ == 0) return nullptr;
    return free_[--available_];
  }
  void release(std::byte* buffer) noexcept { free_[available_++] = buffer; }

 private:
  MemoryRegion region_;
  std::size_t buffer_bytes_ = 0;
  std::size_t available_ = 0;
  std::vector<std::byte*> free_;
};

}  // namespace sluice::rdma
