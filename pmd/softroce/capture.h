// SPDX-License-Identifier: Apache-2.0
//
// Packet capture of a port: lanes copy the frames that a filter asks for into rings, one thread takes them out. It
// knows no files. A lane never waits: a frame that finds its ring full is dropped and counted.
//
// start(), next(), pop(), stop() and release() are for one thread, the capturing one. Ports and lanes may know a capture
// (Port::set_capture()) for as long as it lives, whether it runs or not: it has to outlive the lanes' last turn.
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

  /// Begins, with empty rings. Not while running. At most `snap_bytes` of each frame are kept. Throws SetupError.
  void start(const CaptureFilter& filter, std::uint32_t snap_bytes);
  /// Ends; waits until no lane is in add(), for a turn of a reactor at most. What was queued can still be taken.
  void stop();
  /// After stop(): gives the memory back.
  void release();

  /// The oldest of the frames that are queued, which is there until pop(); null while there is none.
  const CapturedFrame* next() noexcept;
  /// Drops what next() has returned.
  void pop() noexcept;
  /// Since the start.
  std::uint64_t dropped() const noexcept;

  // Message path: the reactor of `lane` only.
  void add(std::uint32_t lane, std::span<rte_mbuf* const> packets, Way way) noexcept;
  /// The queue pair that is asked for, whose flow its lane has to know; zero: none.
  std::uint32_t queue_pair() const noexcept { return queue_pair_.load(std::memory_order_relaxed); }
  void set_flow(std::uint32_t lane, const Flow& flow) noexcept { lanes_[lane].flow = flow; }

 private:
  struct alignas(kCacheLine) Lane {
    FrameRing ring;
    Flow flow;                        ///< the lane's
    std::atomic<bool> inside{false};  ///< the lane is in add()
    std::atomic<std::uint64_t> dropped{0};
  };
  void add_one(Lane& lane, const rte_mbuf& packet, Way way, std::uint64_t tsc) noexcept;

  const std::uint32_t lane_count_;
  const std::uint32_t longest_frame_bytes_;
  std::atomic<bool> running_{false};
  std::atomic<std::uint32_t> queue_pair_{0};  ///< as in filter_
  // Written while no lane is in add().
  CaptureFilter filter_;
  std::uint32_t kept_bytes_ = 0;
  FrameRing* from_ = nullptr;  ///< the ring of what next() has returned
  std::array<Lane, kMaxLanes> lanes_;
};

}  // namespace sluice::rdma::softroce
