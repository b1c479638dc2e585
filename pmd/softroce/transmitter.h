// SPDX-License-Identifier: Apache-2.0
//
// Builds packets from headers and payload and stages them for the ethdev. One per lane; only the owning
// reactor may call. Owns its buffer pools; payload belongs to the caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "pmd/softroce/buffer_stock.h"
#include "pmd/softroce/driver_traits.h"
#include "pmd/softroce/header_template.h"
#include "pmd/softroce/pieces_in_use.h"
#include "pmd/softroce/pool_sizes.h"
#include "pmd/softroce/port_link.h"
#include "pmd/softroce/statistics.h"
#include "pmd/softroce/wire.h"

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::softroce {

class EthernetPort;

/// Size up to which payload is copied next to its headers, which is cheaper than two more buffers.
inline constexpr std::uint32_t kCopyBytes = 512;
/// Number of pieces of memory per packet payload.
inline constexpr std::size_t kMaxPayloadPieces = 32;
/// Payload of a packet in several pieces.
using Pieces = std::span<const std::span<const std::byte>>;

class Transmitter {
 public:
  /// Setup. `name` prefixes the names of the mempools. Throws SetupError.
  Transmitter(const std::string& name, EthernetPort& port, std::uint32_t lane, std::uint32_t frame_bytes,
              int numa_node, Statistics& statistics);
  ~Transmitter();
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;

  std::uint32_t room() const noexcept { return kTransmitBurst - staged_; }

  /// Stages one RoCEv2 packet. If the payload is not copied, the ethdev reads it until
  /// lets_go_of(read_until), and read_until is raised. Returns false if there is no room or no buffer; try
  /// again later.
  bool send(const HeaderTemplate& headers, const TransportHeaders& transport,
            std::span<const std::byte> payload, std::uint64_t& read_until) noexcept;
  /// Stages one packet with `payload_bytes` of payload in several pieces.
  bool send(const HeaderTemplate& headers, const TransportHeaders& transport, Pieces pieces,
            std::size_t payload_bytes, std::uint64_t& read_until) noexcept;

  /// Stages a complete frame. Consumes it even if there is no room.
  void send_frame(rte_mbuf* frame) noexcept;
  /// Returns an empty buffer for send_frame(), owned by the caller, or null if none is free.
  rte_mbuf* frame_buffer() noexcept;

  /// Passes the staged packets to the ethdev. Returns false if there was nothing to send or the ethdev has no
  /// room. Without an ethdev the staged packets are lost.
  bool flush() noexcept;
  /// Frees and counts the staged packets because the ethdev is being closed.
  void drop_staged() noexcept;
  /// Returns how long payload that is not copied is read.
  PacketMemory memory() const noexcept { return memory_; }
  /// Copies all payload from now on.
  void copy_all() noexcept { copies_all_ = true; }
  /// Returns whether payload that send() has left in place is no longer read. Returns false while the port is
  /// being closed, because the main thread then frees the packets of its ethdev.
  bool lets_go_of(std::uint64_t read_until) const noexcept {
    if (memory_ != PacketMemory::UntilFreed) return read_until + staged_ <= ever_staged_;
    return link_.use(lane_) != EthdevUse::Leaving && in_use_.freed_before(read_until);
  }
  /// Releases the memory of staged packets. Call before that memory is returned to its owner. Packets that
  /// the ethdev does not accept get copies of their payload; a packet without a free buffer is lost. Packets
  /// that the ethdev has accepted are not affected.
  void let_go_of_memory() noexcept;
  /// Transmits for the lanes that share its transmit queue, and for this lane if it has packets. Returns
  /// false if nothing was sent.
  bool take_turns() noexcept;

 private:
  rte_mbuf* build(const HeaderTemplate& headers, const TransportHeaders& transport, Pieces pieces,
                  std::size_t payload_bytes) noexcept;
  void stage(rte_mbuf* frame) noexcept;
  rte_mbuf* copy_of(rte_mbuf* packet) noexcept;
  bool append_in_place(rte_mbuf* head, rte_mbuf*& last, std::span<const std::byte> piece,
                       bool of_caller) noexcept;

  EthernetPort& port_;
  const PortLink& link_;
  const std::uint32_t lane_;
  rte_ring* const queue_owner_;  ///< EthernetPort::queue_owner()
  const PacketMemory memory_;
  bool copies_all_;
  PiecesInUse& in_use_;
  Statistics& statistics_;
  rte_mempool* headers_ = nullptr;  ///< headers, with small payloads
  rte_mempool* frames_ = nullptr;   ///< complete frames
  rte_mempool* pieces_ = nullptr;   ///< buffers attached to payload in place
  BufferStock header_stock_;
  BufferStock piece_stock_;
  std::uint32_t staged_ = 0;
  std::uint64_t ever_staged_ = 0;  ///< number of packets ever staged
  bool in_memory_ = false;         ///< a staged packet may refer to payload in place
  std::uint32_t captured_ = 0;     ///< number of staged packets that were captured already
  std::array<rte_mbuf*, kTransmitBurst> packets_{};
};

}  // namespace sluice::rdma::softroce
