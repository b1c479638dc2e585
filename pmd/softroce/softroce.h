// SPDX-License-Identifier: Apache-2.0
//
// The softroce driver: RoCEv2 (InfiniBand Architecture Specification volume 1, chapter 9 and annex A17) in
// user space on any DPDK ethdev. A Port is one ethdev; it has one Device for each reactor ("lane").
//
// A queue pair belongs to the lane whose number is in the low bits of its QPN. A packet received by another
// lane is handed over through a ring. Queue pair 1 (management) belongs to lane 0.
//
// A Port is used at setup only, except for set_capture(). Each Device belongs to its reactor and shares
// ownership of the port. Setup throws SetupError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pmd/device.h"
#include "pmd/softroce/statistics.h"

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

class SoftRoce : public Device {
 public:
  virtual const Statistics& statistics() const noexcept = 0;
  /// Transmits staged packets; poll() does that too.
  virtual void flush() noexcept = 0;
};

/// Packet capture (capture.h).
class Capture;

/// How packets get to the hardware queue of the lane that owns their queue pair.
struct Steering {
  std::size_t rules = 0;  ///< of the card; none: by RSS, and lanes hand over what is not theirs
  std::string refusal;    ///< what the driver says; empty: it was not asked, or there are rules
};

/// Whether payload is sent from where it lies.
struct Transmission {
  bool in_place = false;
  std::string obstacle;  ///< why not; empty: it is, or is not to be
};

/// The first Ethernet device that EAL has found; nothing: it found none. Setup.
std::optional<std::uint16_t> first_ethdev() noexcept;

class Port {
 public:
  /// Setup, after EAL was initialised and the ethdev probed. Configures and starts it. Throws SetupError.
  static std::shared_ptr<Port> open(const PortConfig& config);
  virtual ~Port() = default;
  /// Once for each lane, before any lane is polled.
  virtual std::unique_ptr<SoftRoce> make_device(std::uint32_t lane) = 0;
  virtual const PortConfig& config() const noexcept = 0;
  virtual LinkAddress link_address() const noexcept = 0;
  virtual const Steering& steering() const noexcept = 0;
  /// Of the lanes with a hardware queue, whose devices may find later that they cannot after all.
  virtual const Transmission& transmission() const noexcept = 0;
  /// Any thread. Shows frames of every lane to `capture`, which outlives the lanes' last poll; null ends that.
  virtual void set_capture(Capture* capture) noexcept = 0;
};

}  // namespace sluice::rdma::softroce
