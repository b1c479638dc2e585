// SPDX-License-Identifier: Apache-2.0
//
// A network card that treats its buffers as drivers of real cards do. A transmitted frame is freed only when
// its descriptor is reused, or when the driver is requested to free it (card_stub.h). A frame is received
// into a buffer that the queue took from its pool earlier. Two cards make a link that loses no frame itself.
// All lanes of a port run on one thread in round robin, and each has a separate mempool cache, as separate
// threads would have.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::conformance {

/// Selects the lane whose mempool caches this thread uses while the object exists.
class AsLane {
 public:
  explicit AsLane(std::uint32_t lane) noexcept;
  ~AsLane();
  AsLane(const AsLane&) = delete;
  AsLane& operator=(const AsLane&) = delete;

 private:
  const unsigned before_;
};

class LazyCard {
 public:
  /// Descriptors of each queue, in each direction.
  static constexpr std::uint32_t kDescriptors = 1024;
  /// Frames that each queue carries in one step: as many as a lane receives in one iteration.
  static constexpr std::uint32_t kFramesAtOnce = 32;

  explicit LazyCard(std::uint16_t queues);
  ~LazyCard();
  LazyCard(const LazyCard&) = delete;
  LazyCard& operator=(const LazyCard&) = delete;

  /// Returns the card of an ethdev, or null.
  static LazyCard* of(std::uint16_t ethdev);
  std::uint16_t ethdev() const noexcept { return ethdev_; }
  std::uint32_t queues() const noexcept { return static_cast<std::uint32_t>(queues_.size()); }
  /// Fills the receive descriptors with buffers of this port until its pool is empty. Call as the lane of the
  /// queue.
  void refill(const std::string& port, std::uint32_t queue);
  /// Moves frames one step along the link. Call as the lane of the queue.
  void carry_to(LazyCard& peer, std::uint32_t queue);
  /// Frees the frames that were sent. Call as the lane of the queue.
  void free_sent(std::uint32_t queue);
  /// Frames sent in several segments.
  std::uint64_t in_segments() const noexcept { return in_segments_; }
  /// Frames for which there was no receive buffer.
  std::uint64_t lost() const noexcept { return lost_; }
  /// Number of times that a pool had no buffer for a receive descriptor.
  std::uint64_t short_of_buffers() const noexcept { return short_of_buffers_; }

 private:
  struct Queue {
    rte_ring* to_port = nullptr;
    rte_ring* from_port = nullptr;
    std::deque<rte_mbuf*> empty;  ///< in receive descriptors
    std::deque<rte_mbuf*> sent;   ///< segments in transmit descriptors
  };

  /// Receive queue of a frame: the queue of a matching rule (flow_stub.h), else the sender's queue number, in
  /// place of a hash.
  std::uint32_t queue_for(const rte_mbuf& frame, std::uint32_t senders) const;
  void receive(const rte_mbuf& frame, std::uint32_t queue);
  void retire(Queue& queue, rte_mbuf* frame);

  std::vector<Queue> queues_;
  std::uint16_t ethdev_ = 0;
  std::uint64_t in_segments_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t short_of_buffers_ = 0;
};

}  // namespace sluice::rdma::conformance
