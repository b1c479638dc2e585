// SPDX-License-Identifier: Apache-2.0
//
// Minimal host functions on Ethernet: replies to ARP (RFC 826), neighbour solicitations (RFC 4861) and echo
// requests (RFC 792, RFC 4443) for the port's addresses, and resolves the link addresses of peers. One per
// lane; only the owning reactor may call. The caller owns the frames; the configuration outlives it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/softroce.h"

namespace sluice::rdma::softroce {

/// Entries of the neighbour cache. The oldest is replaced.
inline constexpr std::size_t kMaxNeighbours = 64;
/// Largest frame that is sent from here.
inline constexpr std::size_t kMaxAnswerBytes = 2048;

class Neighbours {
 public:
  Neighbours(const PortConfig& config, const MacAddress& own) : config_(config), own_(own) {}

  bool is_own(const PeerAddress& address) const noexcept;

  /// Handles a frame that is not RoCEv2. Writes a reply to `out` (kMaxAnswerBytes) and returns its length;
  /// zero: no reply.
  std::size_t on_frame(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                       Statistics& statistics) noexcept;

  /// Link address of the next hop to `remote`; nullopt: not in the cache.
  std::optional<MacAddress> find(const PeerAddress& remote) const noexcept;
  void learn(const PeerAddress& remote, const MacAddress& link) noexcept;
  /// Writes an ARP request or neighbour solicitation for the next hop to `remote`; returns its length.
  std::size_t ask(const PeerAddress& remote, std::byte* out) const noexcept;

 private:
  struct Neighbour {
    bool known = false;
    PeerAddress address;
    MacAddress link{};
  };

  const PeerAddress& next_hop(const PeerAddress& remote) const noexcept;
  const PeerAddress* own_of_family(bool v4) const noexcept;
  std::size_t on_arp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                     Statistics& statistics) noexcept;
  std::size_t on_icmp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                      Statistics& statistics) const noexcept;
  std::size_t on_icmp6(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                       Statistics& statistics) noexcept;
  std::size_t ethernet_header(const MacAddress& to, std::uint16_t type, std::byte* out) const noexcept;

  const PortConfig& config_;
  const MacAddress own_;
  std::array<Neighbour, kMaxNeighbours> neighbours_{};
  std::size_t next_ = 0;
};

}  // namespace sluice::rdma::softroce
