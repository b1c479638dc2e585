// SPDX-License-Identifier: Apache-2.0
//
// Settings of a softroce port (softroce.h), and what came of them at the card. Plain values; setup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/base/net_address.h"

namespace sluice::rdma::softroce {

inline constexpr std::uint32_t kLaneBits = 3;
inline constexpr std::uint32_t kMaxLanes = 1u << kLaneBits;
inline constexpr std::uint32_t kMaxQueuePairs = 16384;  ///< per lane

struct InterfaceAddress {
  PeerAddress address;
  std::uint8_t prefix_bits = 128;  ///< an IPv4 prefix length has 96 added
};

struct PortConfig {
  std::string name = "softroce0";
  std::uint16_t ethdev = 0;  ///< DPDK port number
  std::uint32_t lanes = 1;
  std::uint32_t hardware_queues = 1;  ///< receive and transmit queues; at most `lanes`
  std::vector<InterfaceAddress> addresses;
  std::vector<PeerAddress> gateways;     ///< next hops for addresses outside all prefixes, one per family
  std::uint16_t vlan = 0xFFFF;           ///< 0 to 4095; 0 is a tag with a priority only, 0xFFFF none
  std::uint8_t traffic_class = 0;        ///< of datagrams; queue pairs have their RcAttributes
  std::uint8_t service_level = 0;        ///< the same
  std::uint8_t cnp_traffic_class = 0;    ///< of congestion notifications; its precedence is their priority
  std::uint16_t link_mtu = 1500;         ///< bytes of the largest IP packet
  std::uint32_t frame_buffer_bytes = 0;  ///< minimum size of a receive buffer; zero: as link_mtu requires
  std::uint32_t max_queue_pairs = 128;   ///< per lane
  /// Upper bound of the congestion window: unacknowledged packets per queue pair.
  std::uint32_t max_inflight_packets = 256;
  /// Leave payload where it is, for ethdevs of which it is known when they have read it (driver_traits.h).
  bool transmit_in_place = true;
  /// That for network cards too.
  bool card_reads_payload = false;
  /// Announce the addresses at start and when the link comes up again, and ask whether another host has them.
  bool announce = false;
  /// The time of all timers, from any fixed point on. Null: that of the processor's counter.
  std::uint64_t (*clock_ns)() noexcept = nullptr;
};

/// How packets get to the hardware queue of the lane that owns their queue pair.
struct Steering {
  std::size_t rules = 0;  ///< of the card; none: by RSS, and lanes hand over what is not theirs
  std::string refusal;    ///< what the driver says; empty: it was not asked, or there are rules
};

}  // namespace sluice::rdma::softroce
