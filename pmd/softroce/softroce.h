// SPDX-License-Identifier: Apache-2.0
//
// The softroce driver: RoCEv2 (InfiniBand Architecture Specification volume 1, chapter 9 and annex A17) in
// user space on any DPDK ethdev. A Port is one ethdev; it has one Device for each reactor ("lane").
//
// A queue pair belongs to the lane whose number is in the low bits of its queue pair number. A packet that
// reaches another lane is handed over through a ring. Queue pair 1 is lane 0's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pmd/device.h"
#include "pmd/softroce/statistics.h"

namespace sluice::rdma::softroce {

inline constexpr std::uint32_t kLaneBits = 3;
inline constexpr std::uint32_t kMaxLanes = 1u << kLaneBits;
inline constexpr std::uint32_t kMaxQueuePairs = 16384;  ///< of one lane

struct InterfaceAddress {
  PeerAddress address;
  std::uint8_t prefix_bits = 128;  ///< of the 128; an IPv4 prefix has 96 added
};

struct PortConfig {
  std::string name = "softroce0";
  std::uint16_t ethdev = 0;  ///< DPDK port number
  std::uint32_t lanes = 1;
  std::uint32_t hardware_queues = 1;  ///< receive and transmit queues; at most `lanes`
  std::vector<InterfaceAddress> addresses;
  std::vector<PeerAddress> gateways;     ///< next hops for addresses outside of all prefixes, one per family
  std::uint16_t vlan = 0xFFFF;           ///< 0 to 4095; 0xFFFF is untagged
  std::uint16_t link_mtu = 1500;         ///< bytes of an IP packet
  std::uint32_t frame_buffer_bytes = 0;  ///< least room of a receive buffer; zero: what link_mtu needs
  std::uint32_t receive_buffers = 2048;  ///< of one hardware queue
  std::uint32_t max_queue_pairs = 128;   ///< of one lane
  /// Packets that one queue pair may have unacknowledged. The congestion window moves below it.
  std::uint32_t max_inflight_packets = 256;
  /// Hand payload to the ethdev in place. False copies it once.
  bool transmit_in_place = true;
};

class SoftRoce : public Device {
 public:
  virtual const Statistics& statistics() const noexcept = 0;
  /// Hands to the ethdev what is staged; poll() does it too.
  virtual void flush() noexcept = 0;
};

/// Where copies of a port's packets go while somebody looks (capture.h).
class Capture;

class Port {
 public:
  /// Setup: EAL is initialised and the ethdev probed. Configures and starts it.
  static std::shared_ptr<Port> open(const PortConfig& config);
  virtual ~Port() = default;
  /// Once for each lane, before any lane is polled.
  virtual std::unique_ptr<SoftRoce> make_device(std::uint32_t lane) = 0;
  virtual const PortConfig& config() const noexcept = 0;
  virtual LinkAddress link_address() const noexcept = 0;
  /// Any thread: from now on every packet of every lane is copied to `capture`, until null is set and the
  /// lanes have made a turn. `capture` outlives that.
  virtual void set_capture(Capture* capture) noexcept = 0;
};

}  // namespace sluice::rdma::softroce
