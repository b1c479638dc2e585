// SPDX-License-Identifier: Apache-2.0
//
// A network card as drivers of real ones treat their buffers: a frame that was transmitted is freed only when its descriptor is
// used again, or when the driver is asked to (card_stub.h), and a frame is received into a buffer that the queue took from its pool
// before. Two cards make a link without losses of its own. The lanes of a port take turns on one thread, each with a cache of
// its own for each pool, as threads have.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::conformance {

/// While one exists, pools take this thread for that of the lane.
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
  /// Of each of its queues, in each direction.
  static constexpr std::uint32_t kDescriptors = 1024;
  /// Frames that each queue carries in one step: no more than a lane receives in one turn.
  static constexpr std::uint32_t kFramesAtOnce = 32;

  explicit LazyCard(std::uint16_t queues);
  ~LazyCard();
  LazyCard(const LazyCard&) = delete;
  LazyCard& operator=(const LazyCard&) = delete;

  /// Null: there is no such card.
  static LazyCard* of(std::uint16_t ethdev);
  std::uint16_t ethdev() const noexcept { return ethdev_; }
  std::uint32_t queues() const noexcept { return static_cast<std::uint32_t>(queues_.size()); }
  /// Its receive descriptors get buffers of the port of that name, as far as there are any. As the lane of the queue.
  void refill(const std::string& port, std::uint32_t queue);
  /// A step of the link. As the lane of the queue.
  void carry_to(LazyCard& peer, std::uint32_t queue);
  /// Frees what it has sent. As the lane of the queue.
  void free_sent(std::uint32_t queue);
  /// Frames sent in several segments.
  std::uint64_t in_segments() const noexcept { return in_segments_; }
  /// Frames for which there was no receive buffer.
  std::uint64_t lost() const noexcept { return lost_; }
  /// Times that a pool had no buffer for a receive descriptor.
  std::uint64_t short_of_buffers() const noexcept { return short_of_buffers_; }

 private:
  struct Queue {
    rte_ring* to_port = nullptr;
    rte_ring* from_port = nullptr;
    std::deque<rte_mbuf*> empty;  ///< in receive descriptors
    std::deque<rte_mbuf*> sent;   ///< segments in transmit descriptors
  };

  /// That of a rule (flow_stub.h); without one the number of the sender's, as a hash would have it.
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
