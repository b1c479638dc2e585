// SPDX-License-Identifier: Apache-2.0
//
// Makes packets out of headers and payload and stages them for the ethdev. One lane's; reactor-owned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/softroce.h"
#include "pmd/softroce/wire.h"

struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace sluice::rdma::softroce {

class EthernetPort;

/// Packets staged at most, and so the most that one turn sends.
inline constexpr std::uint32_t kTransmitBurst = 64;
/// Payloads up to this are copied behind their headers: cheaper than two more buffers.
inline constexpr std::uint32_t kCopyBytes = 512;
/// Pieces of memory one packet's payload may be gathered from.
inline constexpr std::size_t kMaxPayloadPieces = 32;

/// Where staged packets go: a hardware queue of our own, or the lane that has one.
struct TransmitPath {
  std::uint16_t ethdev = 0;
  std::uint16_t queue = 0;
  rte_ring* to_owner = nullptr;  ///< null: the queue is ours
};

class Transmitter {
 public:
  /// Setup. Pools are named after `name`.
  Transmitter(const std::string& name, const EthernetPort& port, std::uint32_t lane, const TransmitPath& path,
              std::uint32_t frame_bytes, bool in_place, int numa_node, Statistics& statistics);
  ~Transmitter();
  Transmitter(const Transmitter&) = delete;
  Transmitter& operator=(const Transmitter&) = delete;

  std::uint32_t room() const noexcept { return kTransmitBurst - staged_; }

  /// Stages one RoCEv2 packet. `packet` has everything but pad and payload; the payload lies in `pieces`.
  ///
  /// In place, the ethdev reads registered memory after post_send()'s work completion only for a packet that
  /// was sent twice: its invariant CRC then fails, and the peer drops what it has already.
  ///
  /// False when there is no room or no buffer: try again later.
  bool send(const Route& route, Packet& packet, std::span<const std::span<const std::byte>> pieces) noexcept;

  /// Stages a frame as it is; takes it over in any case.
  void send_frame(rte_mbuf* frame) noexcept;
  /// An empty buffer for such a frame, or null.
  rte_mbuf* frame_buffer() noexcept;

  void flush() noexcept;

 private:
  rte_mbuf* build(const Route& route, Packet& packet, std::span<const std::span<const std::byte>> pieces,
                  std::size_t payload_bytes) noexcept;
  bool append_in_place(rte_mbuf* head, rte_mbuf*& last, std::span<const std::byte> piece) noexcept;

  const EthernetPort& port_;
  const std::uint32_t lane_;
  const TransmitPath path_;
  const bool in_place_;
  Statistics& statistics_;
  rte_mempool* headers_ = nullptr;  ///< packets whose payload is small or elsewhere
  rte_mempool* frames_ = nullptr;   ///< whole frames
  rte_mempool* pieces_ = nullptr;   ///< buffers that only point to payload
  std::uint32_t staged_ = 0;
  std::uint32_t captured_ = 0;  ///< of these
  std::array<rte_mbuf*, kTransmitBurst> packets_{};
};

}  // namespace sluice::rdma::softroce
