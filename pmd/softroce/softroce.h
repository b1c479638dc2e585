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

#include "pmd/rdma.h"

namespace sluice::rdma::softroce {

inline constexpr std::uint32_t kLaneBits = 3;
inline constexpr std::uint32_t kMaxLanes = 1u << kLaneBits;
inline constexpr std::uint32_t kMaxQueuePairs = 1024;  ///< of one lane

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

/// What happened, of one lane. Written by its reactor only.
struct Statistics {
#define SLUICE_SOFTROCE_STATISTICS(X)                                                \
  X(packets_received, "packets received")                                            \
  X(packets_sent, "packets sent")                                                    \
  X(bytes_received, "bytes received, with all headers")                              \
  X(bytes_sent, "bytes sent, with all headers")                                      \
  X(frames_malformed, "frames dropped: Ethernet, IP, UDP or transport header wrong") \
  X(frames_ignored, "frames of other protocols dropped")                             \
  X(frames_foreign, "RoCEv2 packets for addresses that are not ours")                \
  X(icrc_errors, "packets dropped: invariant CRC wrong")                             \
  X(unknown_queue_pair, "packets dropped: no such queue pair")                       \
  X(wrong_peer, "packets dropped: not from the queue pair's peer")                   \
  X(partition_errors, "packets dropped: partition key wrong")                        \
  X(queue_key_errors, "datagrams dropped: queue key wrong")                          \
  X(datagrams_received, "management datagrams received")                             \
  X(datagrams_sent, "management datagrams sent")                                     \
  X(datagrams_dropped, "management datagrams lost for want of room or a neighbour")  \
  X(handed_over, "packets handed to the lane that owns the queue pair")              \
  X(hand_over_drops, "packets lost because that lane's ring was full")               \
  X(acks_sent, "acknowledgements sent")                                              \
  X(acks_received, "acknowledgements received")                                      \
  X(naks_sent, "negative acknowledgements sent")                                     \
  X(naks_received, "negative acknowledgements received")                             \
  X(rnr_naks_sent, "receiver-not-ready sent")                                        \
  X(rnr_naks_received, "receiver-not-ready received")                                \
  X(sequence_errors, "requests that came after a gap")                               \
  X(duplicates, "requests that came again")                                          \
  X(duplicate_reads, "RDMA Read requests that came again")                           \
  X(go_backs, "times a sender went back")                                            \
  X(timeouts, "acknowledge timeouts")                                                \
  X(packets_sent_again, "request packets sent again")                                \
  X(stale_responses, "acknowledgements and responses that fit nothing outstanding")  \
  X(sends, "Sends completed")                                                        \
  X(receives, "Sends received")                                                      \
  X(reads, "RDMA Reads completed")                                                   \
  X(writes, "RDMA Writes completed")                                                 \
  X(reads_served, "RDMA Reads answered")                                             \
  X(access_errors, "requests refused: key, bounds, rights or queue pair")            \
  X(invalid_requests, "requests refused: not allowed by the protocol")               \
  X(solicited, "Sends received that ask for an event")                               \
  X(congestion_marks, "packets received with a congestion mark")                     \
  X(cnps_sent, "congestion notifications sent")                                      \
  X(cnps_received, "congestion notifications received")                              \
  X(transmit_waits, "turns in which the ethdev took not all packets")                \
  X(buffer_waits, "packets that waited for a buffer")                                \
  X(arp_replies, "ARP requests and neighbour solicitations answered")                \
  X(echo_replies, "echo requests answered")                                          \
  X(flushed, "work requests flushed")
#define SLUICE_STATISTIC_FIELD(name, help) std::uint64_t name = 0;
  SLUICE_SOFTROCE_STATISTICS(SLUICE_STATISTIC_FIELD)
#undef SLUICE_STATISTIC_FIELD
};

class SoftRoce : public Device {
 public:
  virtual const Statistics& statistics() const noexcept = 0;
  /// Hands to the ethdev what is staged; poll() does it too.
  virtual void flush() noexcept = 0;
};

class Port {
 public:
  /// Setup: EAL is initialised and the ethdev probed. Configures and starts it.
  static std::shared_ptr<Port> open(const PortConfig& config);
  virtual ~Port() = default;
  /// Once for each lane, before any lane is polled.
  virtual std::unique_ptr<SoftRoce> make_device(std::uint32_t lane) = 0;
  virtual const PortConfig& config() const noexcept = 0;
  virtual LinkAddress link_address() const noexcept = 0;
};

}  // namespace sluice::rdma::softroce
