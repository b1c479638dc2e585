// SPDX-License-Identifier: Apache-2.0
//
// Statistics of a lane of a softroce port.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::rdma::softroce {

/// Counters of one lane. Written by its reactor only.
struct Statistics {
#define SLUICE_SOFTROCE_STATISTICS(X)                                                                    \
  X(packets_received, "packets received")                                                                \
  X(packets_expected, "packets received whose headers were recognized as those of their connection")     \
  X(packets_sent, "packets sent")                                                                        \
  X(bytes_received, "bytes received, with all headers")                                                  \
  X(bytes_sent, "bytes sent, with all headers")                                                          \
  X(frames_malformed, "frames dropped because an Ethernet, IP, UDP or transport header is invalid")      \
  X(frames_ignored, "frames of other protocols dropped")                                                 \
  X(frames_foreign, "RoCEv2 packets for IP addresses that are not the port's")                           \
  X(frames_misaddressed, "RoCEv2 packets for Ethernet addresses that are not the port's")                \
  X(icrc_errors, "packets dropped because the invariant CRC is wrong")                                   \
  X(unknown_queue_pair, "packets dropped because the queue pair does not exist")                         \
  X(wrong_peer, "packets dropped because they are not from the queue pair's peer")                       \
  X(partition_errors, "packets dropped because the partition key is wrong")                              \
  X(queue_key_errors, "datagrams dropped because the queue key is wrong")                                \
  X(datagrams_received, "management datagrams received")                                                 \
  X(datagrams_sent, "management datagrams sent")                                                         \
  X(datagrams_dropped,                                                                                   \
    "management datagrams dropped because the share of their source was full, or there was no next hop") \
  X(handed_over, "packets handed to the lane that owns the queue pair")                                  \
  X(hand_over_drops, "packets lost because the ring of the owning lane was full")                        \
  X(acks_sent, "acknowledgements sent")                                                                  \
  X(acks_received, "acknowledgements received")                                                          \
  X(naks_sent, "negative acknowledgements sent")                                                         \
  X(naks_received, "negative acknowledgements received")                                                 \
  X(rnr_naks_sent, "receiver-not-ready sent")                                                            \
  X(rnr_naks_received, "receiver-not-ready received")                                                    \
  X(sequence_errors, "requests received behind a gap in the sequence")                                   \
  X(duplicates, "duplicate requests")                                                                    \
  X(duplicate_reads, "duplicate RDMA Read requests")                                                     \
  X(go_backs, "times that a sender went back to the oldest unacknowledged packet")                       \
  X(timeouts, "acknowledge timeouts")                                                                    \
  X(spurious_timeouts, "acknowledge timeouts that were followed by a late acknowledgement")              \
  X(probes, "last packets retransmitted to request their acknowledgement")                               \
  X(repairs, "single packets, or parts of RDMA Reads, retransmitted because they were missing")          \
  X(packets_kept, "request and response packets kept although an earlier one was missing")               \
  X(early_dropped,                                                                                       \
    "requests dropped behind a gap because there was no memory to keep them or they were invalid there") \
  X(packets_sent_again, "request packets retransmitted")                                                 \
  X(stale_responses, "acknowledgements and responses that match nothing outstanding")                    \
  X(sends, "Sends completed")                                                                            \
  X(receives, "Sends received")                                                                          \
  X(reads, "RDMA Reads completed")                                                                       \
  X(writes, "RDMA Writes completed")                                                                     \
  X(reads_served, "RDMA Reads answered")                                                                 \
  X(access_errors, "requests refused because of key, bounds, rights or queue pair")                      \
  X(invalid_requests, "requests refused because they violate the protocol")                              \
  X(solicited, "Sends received that request an event")                                                   \
  X(congestion_marks, "packets received with a congestion mark")                                         \
  X(cnps_sent, "congestion notifications sent")                                                          \
  X(cnps_received, "congestion notifications received")                                                  \
  X(rate_cuts, "congestion notifications that slowed a sender down")                                     \
  X(transmit_waits, "bursts that the ethdev did not accept completely")                                  \
  X(buffer_waits, "packets that waited for a buffer")                                                    \
  X(memory_waits, "polls after which work completions waited until the ethdev had sent their packets")   \
  X(left_overs_copied, "packets copied because the queue of the ethdev was full")                        \
  X(left_overs_lost, "packets lost because no buffer for a copy was free")                               \
  X(arp_replies, "ARP requests and neighbour solicitations answered")                                    \
  X(address_conflicts, "frames of other hosts that use an address of the port")                          \
  X(port_down, "times that the link went down")                                                          \
  X(port_up, "times that the link came up again")                                                        \
  X(port_reopened, "times that the port was opened again after its device had been removed")             \
  X(mac_changes, "times that the port's MAC address changed")                                            \
  X(mtu_changes, "times that the port's MTU changed with that of its interface")                         \
  X(packets_unsent, "packets dropped because the port was closed")                                       \
  X(hops_changed, "queue pairs that follow their next hop to another link address")                      \
  X(echo_replies, "echo requests answered")                                                              \
  X(refusals_sent, "TCP segments and UDP datagrams answered by a reset or port unreachable")             \
  X(refusals_limited, "TCP segments and UDP datagrams not answered, because their rate was too high")    \
  X(flushed, "work requests flushed")
#define SLUICE_STATISTIC_FIELD(name, help) std::uint64_t name = 0;
  SLUICE_SOFTROCE_STATISTICS(SLUICE_STATISTIC_FIELD)
#undef SLUICE_STATISTIC_FIELD
};

struct StatisticInfo {
  std::string_view name;
  std::string_view help;
};
#define SLUICE_STATISTIC_INFO(name, help) StatisticInfo{#name, help},
inline constexpr StatisticInfo kStatistics[] = {SLUICE_SOFTROCE_STATISTICS(SLUICE_STATISTIC_INFO)};
#undef SLUICE_STATISTIC_INFO

}  // namespace sluice::rdma::softroce
