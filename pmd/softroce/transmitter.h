// SPDX-License-Identifier: Apache-2.0
//
// Builds packets from headers and payload and stages them for the ethdev. One per lane; only the owning
// reactor may call. Owns its buffer pools; payload stays the caller's.
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

/// Payloads up to this size are copied behind their headers: cheaper than two more buffers.
inline constexpr std::uint32_t kCopyBytes = 512;
/// Pieces of memory per packet payload.
inline constexpr std::size_t kMaxPayloadPieces = 32;

class Transmitter {
 public:
  /// Setup. `name` prefixes the names of the mempools. Throws SetupError.
  Transmitter(const std::string& name, EthernetPort& port, std::uint32_t lane, std::uint32_t frame_bytes,
              int numa_node, Statistics& statistics);
  ~Transmitter();
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;

  std::uint32_t room() const noexcept { return kTransmitBurst - staged_; }

  /// Stages one RoCEv2 packet. `packet` has everything but padding and payload; the payload is in `pieces`. If it is not copied, it
  /// is read from there until lets_go_of(read_until), which is raised. False: no room or no buffer; try again later.
  bool send(const HeaderTemplate& headers, Packet& packet, std::span<const std::span<const std::byte>> pieces,
            std::uint64_t& read_until) noexcept;

  /// Stages a complete frame. Consumes it, also if there is no room.
  void send_frame(rte_mbuf* frame) noexcept;
  /// An empty buffer for send_frame(), owned by the caller; null: none is free.
  rte_mbuf* frame_buffer() noexcept;

  /// False: there was nothing to send, or the ethdev has no room. Without an ethdev what is staged is lost.
  bool flush() noexcept;
  /// Frees what is staged, and counts it: the ethdev is being closed.
  void drop_staged() noexcept;
  /// Until when payload that is not copied is read.
  PacketMemory memory() const noexcept { return memory_; }
  /// From now on payload is copied.
  void copy_all() noexcept { copies_all_ = true; }
  /// Returns whether payload that send() has left in place is no longer read.
  /// False while the port is being closed, because the main thread then frees the packets of its ethdev.
  bool lets_go_of(std::uint64_t read_until) const noexcept {
    if (memory_ != PacketMemory::UntilFreed) return read_until + staged_ <= ever_staged_;
    return link_.use(lane_) != EthdevUse::Leaving && in_use_.freed_before(read_until);
  }
  /// To be called before memory of staged packets is given back. Packets that the ethdev does not take get copies of their payload;
  /// one that finds no buffer is lost. What the ethdev has taken is another matter.
  void let_go_of_memory() noexcept;
  /// The lanes that share its transmit queue have theirs, and this one too where it has packets. False: nothing was sent.
  bool take_turns() noexcept;

 private:
  rte_mbuf* build(const HeaderTemplate& headers, Packet& packet,
                  std::span<const std::span<const std::byte>> pieces, std::size_t payload_bytes) noexcept;
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
  rte_mempool* pieces_ = nullptr;   ///< buffers attached to payload elsewhere
  BufferStock header_stock_;
  BufferStock piece_stock_;
  std::uint32_t staged_ = 0;
  std::uint64_t ever_staged_ = 0;  ///< packets
  bool in_memory_ = false;         ///< a staged packet may have its payload elsewhere
  std::uint32_t captured_ = 0;     ///< staged packets that the capture has already seen
  std::array<rte_mbuf*, kTransmitBurst> packets_{};
};

}  // namespace sluice::rdma::softroce
