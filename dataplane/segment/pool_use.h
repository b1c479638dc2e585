// SPDX-License-Identifier: Apache-2.0
//
// Usage of a shared pool. One writer, its reactor. The words are relaxed atomics that any thread or process
// may read.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::segment {

struct PoolUse {
  std::atomic<std::uint32_t> buffers;
  std::atomic<std::uint32_t> held;
  std::atomic<std::uint32_t> waiting;  ///< calls or messages that wait for a buffer

  void publish(std::uint32_t of, std::uint32_t in_use, std::uint32_t waiters) noexcept {
    buffers.store(of, std::memory_order_relaxed);
    held.store(in_use, std::memory_order_relaxed);
    waiting.store(waiters, std::memory_order_relaxed);
  }
};

}  // namespace sluice::segment
