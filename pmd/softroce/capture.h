// SPDX-License-Identifier: Apache-2.0
//
// Packet capture of a port: lanes copy the frames that match a filter into rings, and one thread reads them.
// The capture does no file I/O. A lane never blocks: a frame that finds its ring full is dropped and counted.
//
// Only the capturing thread may call start(), next(), pop(), stop() and release(). Ports and lanes may refer
// to a capture (Port::set_capture()) whether it runs or not, so it must outlive the last poll of the lanes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>

#include "dataplane/base/cache_line.h"
#include "pmd/softroce/capture_filter.h"
#include "pmd/softroce/frame_ring.h"
#include "pmd/softroce/port_config.h"

struct rte_mbuf;

namespace sluice::rdma::softroce {

inline constexpr std::uint32_t kMinSnapBytes = 64;
inline constexpr std::uint32_t kMaxSnapBytes = 9216;

class Capture {
 public:
  explicit Capture(const PortConfig& port);
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Starts the capture with empty rings. Must not be running. Keeps at most `snap_bytes` of each frame.
  /// Throws SetupError.
  void start(const CaptureFilter& filter, std::uint32_t snap_bytes);
  /// Stops the capture. Blocks until no lane is in add(), for at most one loop iteration of a reactor. Queued
  /// frames can still be read.
  void stop();
  /// Frees the memory. Call after stop().
  void release();

  /// Returns the oldest queued frame, which is valid until pop(), or null if none is queued.
  const CapturedFrame* next() noexcept;
  /// Drops the frame that next() returned.
  void pop() noexcept;
  /// Returns the number of frames dropped since start().
  std::uint64_t dropped() const noexcept;

  // Message path. Only the reactor of `lane` may call.
  void add(std::uint32_t lane, std::span<rte_mbuf* const> packets, Way way) noexcept;
  /// Returns the queue pair of the filter, whose flow its lane has to set, or zero if the filter has none.
  std::uint32_t queue_pair() const noexcept { return queue_pair_.load(std::memory_order_relaxed); }
  void set_flow(std::uint32_t lane, const Flow& flow) noexcept { lanes_[lane].flow = flow; }

 private:
  struct alignas(kCacheLine) Lane {
    FrameRing ring;
    Flow flow;                        ///< written by the lane only
    std::atomic<bool> inside{false};  ///< the lane is in add()
    std::atomic<std::uint64_t> dropped{0};
  };
  void add_one(Lane& lane, const rte_mbuf& packet, Way way, std::uint64_t tsc) noexcept;

  const std::uint32_t lane_count_;
  const std::uint32_t longest_frame_bytes_;
  std::atomic<bool> running_{false};
  std::atomic<std::uint32_t> queue_pair_{0};  ///< copy of filter_.queue_pair
  // Written while no lane is in add().
  CaptureFilter filter_;
  std::uint32_t kept_bytes_ = 0;
  FrameRing* from_ = nullptr;  ///< ring of the frame that next() returned
  std::array<Lane, kMaxLanes> lanes_;
};

}  // namespace sluice::rdma::softroce
