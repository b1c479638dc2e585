// SPDX-License-Identifier: Apache-2.0
//
// How many packet buffers a pool needs, so that it is never empty because its buffers wait elsewhere: in descriptors (drivers of
// real cards free a transmitted buffer only when its descriptor is used again), in rings between lanes, and in the caches that a
// pool keeps for each thread. With fewer, lanes take each other's buffers, and who waits for one may never get it.
#pragma once

#include <cstdint>

namespace sluice::rdma::softroce {

/// Capacity for staged packets, which are passed to the ethdev in one burst.
inline constexpr std::uint32_t kTransmitBurst = 64;
inline constexpr std::uint16_t kReceiveBurst = 32;
/// Packets that wait in the ring from one lane to another: two answers to READs of 1 MiB with the largest path MTU. Peers send one
/// at once, also to a lane that does not get its processor just then.
inline constexpr std::uint32_t kHandOverDepth = 512;
/// Pieces of payload that are sent in place; a packet with more is copied.
inline constexpr std::uint32_t kInPlacePieces = 4;
/// Of such a packet: headers, pieces, padding with the invariant CRC.
inline constexpr std::uint32_t kSegmentsInPlace = kInPlacePieces + 2;
/// Buffers that a lane takes out of a pool at a time (buffer_stock.h).
inline constexpr std::uint32_t kStockBuffers = 32;
/// What a mempool keeps for each thread that takes or frees buffers, and what that may grow to before buffers go back (DPDK,
/// mempool library, "Local Cache"). Received ones are freed by any lane, and each keeps as many of each queue.
inline constexpr std::uint32_t kReceiveCache = 64;
inline constexpr std::uint32_t kTransmitCache = 256;
constexpr std::uint32_t most_cached(std::uint32_t cache) noexcept {
  return cache * 3 / 2;
}

struct PortShape {
  std::uint32_t lanes = 1;
  /// In each direction. Lanes from this number on transmit by the queue of another.
  std::uint32_t queues = 1;
  std::uint32_t receive_descriptors = 0;   ///< of each queue
  std::uint32_t transmit_descriptors = 0;  ///< the same
};

/// For each receive queue, which one lane reads: any lane may have the buffers in hand, or free them.
constexpr std::uint32_t receive_buffers(const PortShape& shape) noexcept {
  return shape.receive_descriptors + (shape.lanes - 1) * kHandOverDepth +
         shape.lanes * (kReceiveBurst + most_cached(kReceiveCache));
}

/// Packets of one lane that are neither staged nor in descriptors.
constexpr std::uint32_t packets_between(const PortShape& shape, std::uint32_t lane) noexcept {
  return lane < shape.queues ? 0 : kHandOverDepth + kTransmitBurst;
}

/// For each lane, of a pool from which each packet takes one at most. The thread that transmits them frees them.
constexpr std::uint32_t transmit_buffers(const PortShape& shape, std::uint32_t lane) noexcept {
  const std::uint32_t threads = lane < shape.queues ? 1 : 2;
  return shape.transmit_descriptors + packets_between(shape, lane) + kTransmitBurst + kStockBuffers +
         threads * most_cached(kTransmitCache);
}

/// The same of the pool from which a packet in place takes one for each piece, and one for its trailer.
constexpr std::uint32_t piece_buffers(const PortShape& shape, std::uint32_t lane) noexcept {
  return transmit_buffers(shape, lane) + kInPlacePieces * (packets_between(shape, lane) + kTransmitBurst);
}

}  // namespace sluice::rdma::softroce
