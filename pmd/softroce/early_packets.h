// SPDX-License-Identifier: Apache-2.0
//
// Requests that arrived before their turn, copied, until they can be executed (InfiniBand 9.7.5.1 lets a responder drop
// them; then one lost packet costs a round trip and all packets behind it). One object per lane; each queue pair has a
// share of it. Only the owning reactor may call; the constructor allocates. Sizes in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dataplane/base/ring_storage.h"
#include "pmd/softroce/wire.h"

namespace sluice::rdma::softroce {

/// Packets of one lane that are kept.
inline constexpr std::uint16_t kEarlyPackets = 256;
/// Packets of one queue pair among them.
inline constexpr std::uint16_t kEarlyPacketsPerQueuePair = 16;

class EarlyPackets {
 public:
  static constexpr std::uint16_t kNone = 0xFFFF;

  /// The packets of one queue pair, in PSN order. Has to be released before it ends.
  struct Queue {
    std::uint16_t first = kNone;
    std::uint16_t count = 0;
  };

  explicit EarlyPackets(std::size_t payload_bytes);

  /// Copies a packet unless a packet with its PSN is kept already. False: the queue pair's share or the lane's room is used
  /// up, or the payload is longer than that of a valid packet.
  bool add(Queue& queue, const Packet& packet) noexcept;
  /// Drops the packets before `psn`. Returns the packet with this PSN, or null. It stays in the queue, and is valid until
  /// the next call of add().
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
