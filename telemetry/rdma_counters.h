// SPDX-License-Identifier: Apache-2.0
//
// Counters that RDMA devices keep for a port, with one meaning over all providers. The table has the file
// names of the drivers in Linux's drivers/infiniband. A read may make the device's driver execute a command
// of its firmware, so the files are read on the thread that renders metrics, and never by a reactor.
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::telemetry {

/// Folder in sysfs with a folder for each RDMA device.
inline constexpr const char* kRdmaDevices = "/sys/class/infiniband";

struct RdmaCounter {
  std::string_view name;  ///< part of the metric's name
  std::string_view help;
};

inline constexpr RdmaCounter kRdmaCounters[] = {
    {"out_of_sequence", "packets received whose predecessors were lost"},
    {"sequence_naks_received", "NAKs of peers that have missed packets"},
    {"ack_timeouts", "retransmissions because a peer has sent no acknowledgement in time"},
    {"rnr_naks_received", "NAKs of peers that had no Receive posted"},
    {"no_receive", "messages received while no Receive was posted"},
    {"cnps_sent", "congestion notification packets sent, because packets with an ECN mark were received"},
    {"cnps_received",
     "congestion notification packets received, to each of which the device reduces its rate"},
    {"ecn_marks_received", "packets received with an ECN mark"},
    {"receive_discards", "packets that the device discarded on reception"},
    {"receive_errors", "packets received with an error"},
    {"transmit_discards", "packets that the port discarded instead of sending them"},
};

/// A file of a port's folder. Files with the same counter are added: a driver has several for one meaning, or
/// has renamed one between releases.
struct RdmaCounterFile {
  std::string_view file;
  std::string_view counter;  ///< RdmaCounter::name
};

inline constexpr RdmaCounterFile kRdmaCounterFiles[] = {
    // hw/mlx5/counters.c
    {"hw_counters/out_of_sequence", "out_of_sequence"},
    {"hw_counters/packet_seq_err", "sequence_naks_received"},
    {"hw_counters/local_ack_timeout_err", "ack_timeouts"},
    {"hw_counters/rnr_nak_retry_err", "rnr_naks_received"},
    {"hw_counters/out_of_buffer", "no_receive"},
    {"hw_counters/np_cnp_sent", "cnps_sent"},
    {"hw_counters/rp_cnp_handled", "cnps_received"},
    {"hw_counters/np_ecn_marked_roce_packets", "ecn_marks_received"},
    // hw/bnxt_re/hw_counters.c
    {"hw_counters/oos_drop_count", "out_of_sequence"},
    {"hw_counters/seq_err_naks_rcvd", "sequence_naks_received"},
    {"hw_counters/to_retransmits", "ack_timeouts"},
    {"hw_counters/rnr_naks_rcvd", "rnr_naks_received"},
    {"hw_counters/rx_out_of_buffer", "no_receive"},
    {"hw_counters/tx_cnp_pkts", "cnps_sent"},
    {"hw_counters/rx_cnp_pkts", "cnps_received"},
    {"hw_counters/rx_ecn_marked_pkts", "ecn_marks_received"},
    {"hw_counters/rx_roce_discards", "receive_discards"},
    {"hw_counters/rx_roce_errors", "receive_errors"},
    // hw/irdma/verbs.c, irdma_hw_stat_names; names with spaces belong to the third generation.
    {"hw_counters/Rcvd Out of order packets", "out_of_sequence"},
    {"hw_counters/Nak Sequence Error", "sequence_naks_received"},
    {"hw_counters/RTO", "ack_timeouts"},
    {"hw_counters/RNR received", "rnr_naks_received"},
    {"hw_counters/RNR sent", "no_receive"},
    {"hw_counters/cnpSent", "cnps_sent"},
    {"hw_counters/cnpHandled", "cnps_received"},
    {"hw_counters/RxECNMrkd", "ecn_marks_received"},
    {"hw_counters/ip4InDiscards", "receive_discards"},
    {"hw_counters/ip6InDiscards", "receive_discards"},
    // hw/hns/hns_roce_main.c
    {"hw_counters/tx_cnp_pkt", "cnps_sent"},
    {"hw_counters/rx_cnp_pkt", "cnps_received"},
    {"hw_counters/rx_err_pkt", "receive_errors"},
    // hw/mana/counters.c
    {"hw_counters/responder_oos", "out_of_sequence"},
    {"hw_counters/requester_oos_nak", "sequence_naks_received"},
    {"hw_counters/requester_timeout", "ack_timeouts"},
    {"hw_counters/requester_rnr_nak", "rnr_naks_received"},
    {"hw_counters/responder_rnr_nak", "no_receive"},
    // sw/rxe/rxe_hw_counters.c
    {"hw_counters/out_of_seq_request", "out_of_sequence"},
    {"hw_counters/rcvd_seq_err", "sequence_naks_received"},
    {"hw_counters/rcvd_rnr_err", "rnr_naks_received"},
    {"hw_counters/send_rnr_err", "no_receive"},
    // core/sysfs.c, for all providers that report the counters of InfiniBand
    {"counters/port_rcv_errors", "receive_errors"},
    {"counters/port_xmit_discards", "transmit_discards"},
};

/// Returns the number in a file. Empty if there is none, because the provider lacks the counter.
inline std::optional<double> number_in(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return std::nullopt;
  unsigned long long value = 0;
  const bool found = std::fscanf(file, "%llu", &value) == 1;
  std::fclose(file);
  return found ? std::optional(static_cast<double>(value)) : std::nullopt;
}

/// Returns the sum of a counter's files. `folder` is that of a port. Empty if the provider has none of them.
inline std::optional<double> read_rdma_counter(const std::string& folder, const RdmaCounter& counter) {
  std::optional<double> sum;
  for (const RdmaCounterFile& each : kRdmaCounterFiles)
    if (each.counter == counter.name)
      if (const auto value = number_in(folder + '/' + std::string(each.file))) sum = sum.value_or(0) + *value;
  return sum;
}

}  // namespace sluice::telemetry
