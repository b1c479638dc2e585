// SPDX-License-Identifier: Apache-2.0
//
// Copies of requests that arrived out of order, kept until they can be executed. InfiniBand 9.7.5.1 permits a
// responder to drop them, but then one lost packet costs a round trip and all packets after it. Each lane has
// one object, shared by its queue pairs with a quota each. Only the owning reactor may call; the constructor
// allocates. Sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/base/fixed_containers.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

/// Number of packets kept per lane.
inline constexpr std::uint16_t kEarlyPackets = 256;
/// Number of packets kept per queue pair.
inline constexpr std::uint16_t kEarlyPacketsPerQueuePair = 16;

class EarlyPackets {
 public:
  static constexpr std::uint16_t kNone = 0xFFFF;

  /// The packets of one queue pair, in PSN order. Must be released before it is destroyed.
  struct Queue {
    std::uint16_t first = kNone;
    std::uint16_t count = 0;
  };

  explicit EarlyPackets(std::size_t payload_bytes);

  /// Copies a packet unless a packet with its PSN is kept already. Returns false if the queue pair's quota or
  /// the lane's room is exhausted, or if the payload is longer than that of a valid packet.
  bool add(Queue& queue, const Packet& packet) noexcept;
  /// Drops the packets before `psn`. Returns the packet with this PSN, or null. The packet stays in the queue
  /// and is valid until the next call of add().
  const Packet* find(Queue& queue, std::uint32_t psn) noexcept;
  void release(Queue& queue) noexcept;
  std::size_t room() const noexcept { return free_.count; }

 private:
  std::byte* payload(std::uint16_t index) noexcept { return &payloads_[std::size_t{index} * payload_bytes_]; }
  void drop_first(Queue& queue) noexcept;

  struct Entry {
    Packet packet;
    std::uint16_t next = kNone;
  };

  std::size_t payload_bytes_;
  std::vector<Entry> entries_;
  RingStorage<std::byte> payloads_;
  Queue free_;
};

}  // namespace sluice::rdma::softroce
