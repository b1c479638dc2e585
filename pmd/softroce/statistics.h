// SPDX-License-Identifier: Apache-2.0
//
// Statistics of a lane of a softroce port.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::rdma::softroce {

/// Counters of one lane. Written by its reactor only.
struct Statistics {
#define SLUICE_SOFTROCE_STATISTICS(X)                                                          \
  X(packets_received, "packets received")                                                      \
  X(packets_sent, "packets sent")                                                              \
  X(bytes_received, "bytes received, with all headers")                                        \
  X(bytes_sent, "bytes sent, with all headers")                                                \
  X(frames_malformed, "frames dropped: Ethernet, IP, UDP or transport header wrong")           \
  X(frames_ignored, "frames of other protocols dropped")                                       \
  X(frames_foreign, "RoCEv2 packets for addresses that are not ours")                          \
  X(frames_misaddressed, "RoCEv2 packets for Ethernet addresses that are not ours")            \
  X(icrc_errors, "packets dropped: invariant CRC wrong")                                       \
  X(unknown_queue_pair, "packets dropped: no such queue pair")                                 \
  X(wrong_peer, "packets dropped: not from the queue pair's peer")                             \
  X(partition_errors, "packets dropped: partition key wrong")                                  \
  X(queue_key_errors, "datagrams dropped: queue key wrong")                                    \
  X(datagrams_received, "management datagrams received")                                       \
  X(datagrams_sent, "management datagrams sent")                                               \
  X(datagrams_dropped, "management datagrams dropped: share of a source full, or no next hop") \
  X(handed_over, "packets handed to the lane that owns the queue pair")                        \
  X(hand_over_drops, "packets lost because that lane's ring was full")                         \
  X(acks_sent, "acknowledgements sent")                                                        \
  X(acks_received, "acknowledgements received")                                                \
  X(naks_sent, "negative acknowledgements sent")                                               \
  X(naks_received, "negative acknowledgements received")                                       \
  X(rnr_naks_sent, "receiver-not-ready sent")                                                  \
  X(rnr_naks_received, "receiver-not-ready received")                                          \
  X(sequence_errors, "requests received behind a gap in the sequence")                         \
  X(duplicates, "duplicate requests")                                                          \
  X(duplicate_reads, "duplicate RDMA Read requests")                                           \
  X(go_backs, "times a sender went back to the oldest unacknowledged packet")                  \
  X(timeouts, "acknowledge timeouts")                                                          \
  X(spurious_timeouts, "acknowledge timeouts before an acknowledgement that was only late")    \
  X(probes, "last packets sent again to ask for their acknowledgement")                        \
  X(repairs, "single packets, or parts of RDMA Reads, sent again because they were missed")    \
  X(packets_kept, "request and response packets kept although an earlier one was missing")     \
  X(early_dropped, "requests dropped behind a gap: no room to keep them, or not valid there")  \
  X(packets_sent_again, "request packets sent again")                                          \
  X(stale_responses, "acknowledgements and responses that match nothing outstanding")          \
  X(sends, "Sends completed")                                                                  \
  X(receives, "Sends received")                                                                \
  X(reads, "RDMA Reads completed")                                                             \
  X(writes, "RDMA Writes completed")                                                           \
  X(reads_served, "RDMA Reads answered")                                                       \
  X(access_errors, "requests refused: key, bounds, rights or queue pair")                      \
  X(invalid_requests, "requests refused: not allowed by the protocol")                         \
  X(solicited, "Sends received that ask for an event")                                         \
  X(congestion_marks, "packets received with a congestion mark")                               \
  X(cnps_sent, "congestion notifications sent")                                                \
  X(cnps_received, "congestion notifications received")                                        \
  X(rate_cuts, "congestion notifications that slowed a sender down")                           \
  X(transmit_waits, "bursts that the ethdev did not accept completely")                        \
  X(buffer_waits, "packets that waited for a buffer")                                          \
  X(memory_waits, "polls after which work completions waited for the ethdev to have sent")     \
  X(left_overs_copied, "packets copied because the ethdev had no room for them")               \
  X(left_overs_lost, "packets lost because there was no buffer to copy them to")               \
  X(arp_replies, "ARP requests and neighbour solicitations answered")                          \
  X(address_conflicts, "frames of other hosts that use an address of ours")                    \
  X(port_down, "times that the link went down")                                                \
  X(port_up, "times that the link came up again")                                              \
  X(port_reopened, "times that the port was opened again after its device had gone")           \
  X(mac_changes, "times that the port's MAC address changed")                                  \
  X(mtu_changes, "times that the port's MTU changed with that of its interface")               \
  X(packets_unsent, "packets dropped because the port was closed")                             \
  X(hops_changed, "queue pairs that follow their next hop to another link address")            \
  X(echo_replies, "echo requests answered")                                                    \
  X(refusals_sent, "TCP segments and UDP datagrams answered by a reset or port unreachable")   \
  X(refusals_limited, "the same without an answer, because their rate was too high")           \
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
