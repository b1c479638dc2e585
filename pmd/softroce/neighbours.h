// SPDX-License-Identifier: Apache-2.0
//
// Minimal host functions on Ethernet: replies to ARP (RFC 826), neighbour solicitations (RFC 4861) and echo
// requests (RFC 792, RFC 4443) for the port's addresses, refuses TCP and UDP, and resolves the link addresses
// of peers. One per lane; only the owning reactor may call. on_frame() and learn() are for lane 0, which
// receives all such frames. The caller owns the frames; configuration, MAC address, cache and clock outlive
// it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pmd/softroce/frame.h"
#include "pmd/softroce/host_frames.h"
#include "pmd/softroce/neighbour_cache.h"
#include "pmd/softroce/port_config.h"
#include "pmd/softroce/port_refusals.h"
#include "pmd/softroce/statistics.h"

namespace sluice::rdma::softroce {

/// Size of the largest frame sent from here, in bytes: a whole packet of the largest configurable MTU, which
/// guides to RoCE use to check the path. A device with a smaller MTU has less room for replies.
inline constexpr std::size_t kMaxAnswerBytes = 9000 + kEthernetBytes + kVlanBytes;

class Neighbours {
 public:
  /// Keeps references to `own` and `now_ns`, the owner's MAC address and time, which may change.
  Neighbours(const PortConfig& config, const MacAddress& own, NeighbourCache& cache,
             const std::uint64_t& now_ns)
      : config_(config), own_(own), cache_(cache), now_ns_(now_ns) {}

  /// Reports whether the port has this address.
  bool is_own(const PeerAddress& address) const noexcept {
    for (const InterfaceAddress& own : config_.addresses)
      if (same(own.address, address)) return true;
    return false;
  }

  /// Handles a frame that is not RoCEv2. Writes a reply to `out` (kMaxAnswerBytes) and returns its length, or
  /// zero if there is no reply.
  std::size_t on_frame(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                       Statistics& statistics) noexcept;

  PortRefusals& refusals() noexcept { return refusals_; }

  /// Returns the next hop to `remote`, or nullopt if it is not in the cache.
  std::optional<NeighbourCache::Found> find(const PeerAddress& remote) const noexcept {
    return cache_.find(next_hop(remote), now_ns_);
  }
  void learn(const PeerAddress& remote, const MacAddress& link) noexcept {
    cache_.learn(remote, link, now_ns_);
  }
  /// Writes an ARP request or neighbour solicitation for the next hop to `remote`. Returns its length.
  std::size_t ask(const PeerAddress& remote, std::byte* out) const noexcept;

 private:
  const PeerAddress& next_hop(const PeerAddress& remote) const noexcept;
  const PeerAddress* own_of_family(bool v4) const noexcept;
  std::size_t on_arp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                     Statistics& statistics) noexcept;
  std::size_t on_icmp(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                      Statistics& statistics) const noexcept;
  std::size_t on_icmp6(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                       Statistics& statistics) noexcept;
  std::size_t on_solicitation(const Frame& frame, const MacAddress& sender, std::byte* out,
                              Statistics& statistics) noexcept;
  void on_advertisement(const Frame& frame, Statistics& statistics) noexcept;
  std::size_t on_no_service(const Frame& frame, std::span<const std::byte> bytes, std::byte* out,
                            Statistics& statistics) noexcept;
  std::size_t on_group_query(const Frame& frame, std::byte* out) const noexcept;
  std::size_t ethernet_header(const MacAddress& to, std::uint16_t type, std::byte* out) const noexcept {
    return write_ethernet(config_, own_, to, type, out);
  }

  const PortConfig& config_;
  const MacAddress& own_;
  NeighbourCache& cache_;
  const std::uint64_t& now_ns_;
  PortRefusals refusals_;
};

}  // namespace sluice::rdma::softroce
