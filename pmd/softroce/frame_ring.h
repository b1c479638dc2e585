// SPDX-License-Identifier: Apache-2.0
//
// Ring of copied frames from the lane that received or sent them to the capturing thread: a single-producer
// single-consumer ring of fixed slots in the process's memory. A full ring rejects frames. Memory is
// allocated only in allocate() and freed in release(). The consumer calls both while the producer does not
// use the ring.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/small_algorithms.h"
#include "pmd/softroce/capture_filter.h"

namespace sluice::rdma::softroce {

/// Upper bound on the memory of a ring, in bytes.
inline constexpr std::size_t kFrameRingBytes = 8u << 20;
/// Upper bound on the frames in a ring. A ring of long frames has fewer slots.
inline constexpr std::uint32_t kCaptureDepth = 4096;

/// Header of a slot. The bytes of the frame follow it.
struct CapturedFrame {
  std::uint64_t tsc = 0;         ///< time of capture
  std::uint32_t wire_bytes = 0;  ///< length of the frame
  std::uint32_t kept_bytes = 0;  ///< number of bytes kept in the slot
  Way way = Way::In;

  std::byte* bytes() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* bytes() const noexcept { return reinterpret_cast<const std::byte*>(this + 1); }
};

class FrameRing {
 public:
  /// Allocates an empty ring that keeps `kept_bytes` of each frame. All pages are resident afterwards. Throws
  /// std::bad_alloc.
  void allocate(std::uint32_t kept_bytes) {
    const std::size_t slot = sizeof(CapturedFrame) + kept_bytes;
    slot_bytes_ = (slot + alignof(CapturedFrame) - 1) / alignof(CapturedFrame) * alignof(CapturedFrame);
    slots_ =
        smaller_of(kCaptureDepth, static_cast<std::uint32_t>(std::bit_floor(kFrameRingBytes / slot_bytes_)));
    memory_ = std::vector<std::byte>(slots_ * slot_bytes_);
    static_cast<void>(SLUICE_INVARIANT(std::has_single_bit(slots_), ring_index));
    head_.store(0, std::memory_order_relaxed);
    tail_.store(0, std::memory_order_relaxed);
  }
  void release() { memory_ = {}, slots_ = 0; }

  /// Producer: returns a slot to fill, to be followed by publish(), or null if the ring is full.
  CapturedFrame* claim() noexcept {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    SLUICE_INVARIANT_DEBUG(tail - head_.load(std::memory_order_relaxed) <= slots_ || slots_ == 0, ring_index);
    if (tail - head_.load(std::memory_order_acquire) >= slots_) return nullptr;  // pairs with pop()
    return new (slot(tail)) CapturedFrame;
  }
  void publish() noexcept {
    // Pairs with front(): the frame is complete.
    tail_.store(tail_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  /// Consumer: returns the oldest frame, which is valid until pop(), or null if the ring is empty.
  const CapturedFrame* front() const noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (slots_ == 0 || tail_.load(std::memory_order_acquire) == head) return nullptr;  // pairs with publish()
    return std::launder(reinterpret_cast<const CapturedFrame*>(slot(head)));
  }
  void pop() noexcept {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (!SLUICE_INVARIANT(tail_.load(std::memory_order_relaxed) != head, ring_index)) return;
    head_.store(head + 1, std::memory_order_release);  // pairs with claim(): the slot has been read
  }

 private:
  std::byte* slot(std::uint32_t index) noexcept {
    return memory_.data() + (index & (slots_ - 1)) * slot_bytes_;
  }
  const std::byte* slot(std::uint32_t index) const noexcept {
    return memory_.data() + (index & (slots_ - 1)) * slot_bytes_;
  }

  std::vector<std::byte> memory_;
  std::size_t slot_bytes_ = 0;
  std::uint32_t slots_ = 0;
  // Indices are free-running and compared modulo 2^32.
  alignas(kCacheLine) std::atomic<std::uint32_t> tail_{0};  ///< written by the producer
  alignas(kCacheLine) std::atomic<std::uint32_t> head_{0};  ///< written by the consumer
};

}  // namespace sluice::rdma::softroce
