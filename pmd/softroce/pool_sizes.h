// SPDX-License-Identifier: Apache-2.0
//
// Number of packet buffers that a pool needs so that it is never empty while its buffers are held elsewhere:
// in descriptors (drivers of real cards free a transmitted buffer only when its descriptor is reused), in
// rings between lanes, and in the caches that a pool keeps for each thread. With fewer buffers, lanes would
// take each other's buffers, and a waiting lane could starve.
#pragma once

#include <cstdint>

namespace sluice::rdma::softroce {

/// Capacity for staged packets, which are passed to the ethdev in one burst.
inline constexpr std::uint32_t kTransmitBurst = 64;
/// Number of packets received per poll, from the ethdev and from each other lane.
inline constexpr std::uint16_t kReceiveBurst = 32;
/// Capacity of the ring from one lane to another, in packets: two replies to READs of 1 MiB with the largest
/// path MTU. Peers send such a reply in one burst, even while the thread of the receiving lane is not
/// scheduled.
inline constexpr std::uint32_t kHandOverDepth = 512;
/// Number of pieces of payload in a packet sent in place. A packet with more pieces is copied.
inline constexpr std::uint32_t kInPlacePieces = 4;
/// Number of segments of a packet sent in place: headers, pieces, padding with the invariant CRC.
inline constexpr std::uint32_t kSegmentsInPlace = kInPlacePieces + 2;
/// Number of buffers that a lane takes from a pool at a time (buffer_stock.h).
inline constexpr std::uint32_t kStockBuffers = 32;
/// Number of buffers that a mempool caches for each thread that takes or frees buffers. A cache may grow to
/// most_cached() before buffers return to the pool (DPDK, mempool library, "Local Cache"). Any lane may free
/// received buffers, so each lane caches buffers of each receive queue.
inline constexpr std::uint32_t kReceiveCache = 64;
inline constexpr std::uint32_t kTransmitCache = 256;
constexpr std::uint32_t most_cached(std::uint32_t cache) noexcept {
  return cache * 3 / 2;
}

struct PortShape {
  std::uint32_t lanes = 1;
  /// Number of queues in each direction. Lanes with this number or a higher one transmit through the queue of
  /// another lane.
  std::uint32_t queues = 1;
  std::uint32_t receive_descriptors = 0;   ///< descriptors of each receive queue
  std::uint32_t transmit_descriptors = 0;  ///< descriptors of each transmit queue
};

/// Returns the number of buffers for each receive queue, which one lane reads. Any lane may hold or free the
/// buffers.
constexpr std::uint32_t receive_buffers(const PortShape& shape) noexcept {
  return shape.receive_descriptors + (shape.lanes - 1) * kHandOverDepth +
         shape.lanes * (kReceiveBurst + most_cached(kReceiveCache));
}

/// Returns the number of packets of one lane that are neither staged nor in descriptors.
constexpr std::uint32_t packets_between(const PortShape& shape, std::uint32_t lane) noexcept {
  return lane < shape.queues ? 0 : kHandOverDepth + kTransmitBurst;
}

/// Returns the number of buffers for each lane, of a pool from which each packet takes at most one buffer.
/// The thread that transmits the packets frees the buffers.
constexpr std::uint32_t transmit_buffers(const PortShape& shape, std::uint32_t lane) noexcept {
  const std::uint32_t threads = lane < shape.queues ? 1 : 2;
  return shape.transmit_descriptors + packets_between(shape, lane) + kTransmitBurst + kStockBuffers +
         threads * most_cached(kTransmitCache);
}

/// Returns the number of buffers for each lane, of the pool from which a packet sent in place takes one
/// buffer for each piece and one for its trailer.
constexpr std::uint32_t piece_buffers(const PortShape& shape, std::uint32_t lane) noexcept {
  return transmit_buffers(shape, lane) + kInPlacePieces * (packets_between(shape, lane) + kTransmitBurst);
}

}  // namespace sluice::rdma::softroce
