// SPDX-License-Identifier: Apache-2.0
//
// Settings of a softroce port (softroce.h), and the resulting flow steering of the card. Plain values; setup.
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
  std::uint8_t traffic_class = 0;        ///< of datagrams; queue pairs use their RcAttributes
  std::uint8_t service_level = 0;        ///< of datagrams
  std::uint8_t cnp_traffic_class = 0;    ///< of congestion notifications; its precedence is their priority
  std::uint16_t link_mtu = 1500;         ///< bytes of the largest IP packet
  std::uint32_t frame_buffer_bytes = 0;  ///< minimum size of a receive buffer; zero means as link_mtu
                                         ///< requires
  std::uint32_t max_queue_pairs = 128;   ///< per lane
  /// Upper bound of the congestion window: unacknowledged packets per queue pair.
  std::uint32_t max_inflight_packets = 256;
  /// Sends payload in place on ethdevs for which the end of reading is known (driver_traits.h).
  bool transmit_in_place = true;
  /// Sends payload in place on network cards as well.
  bool card_reads_payload = false;
  /// Announces the addresses at start and when the link comes up again, and probes whether another host has
  /// them.
  bool announce = false;
  /// Recognizes packets by the headers of earlier ones (expected_headers.h). Otherwise every packet takes the
  /// general path, which tests compare.
  bool expect_headers = true;
  /// Clock of all timers, with an arbitrary origin. Null selects the processor's time-stamp counter.
  std::uint64_t (*clock_ns)() noexcept = nullptr;
};

/// Steering of packets to the hardware queue of the lane that owns their queue pair.
struct Steering {
  std::size_t rules = 0;  ///< number of flow rules; without rules RSS is used, and lanes hand over packets of
                          ///< other lanes
  std::string refusal;    ///< error of the driver; empty if it was not called or accepted the rules
};

}  // namespace sluice::rdma::softroce
