// SPDX-License-Identifier: Apache-2.0
//
// What is known of DPDK's drivers and cannot be asked of them. Constants only.
#pragma once

#include <algorithm>
#include <iterator>
#include <string_view>

namespace sluice::rdma::softroce {

/// Whether an ethdev with this driver and these devargs has no use for a packet's memory once it has taken the packet. Others read
/// it later, pass it on to who does, or cannot reach what is not DPDK's.
inline bool copies_what_it_takes(std::string_view driver, std::string_view arguments) noexcept {
  // net_ring is for tests, whose other end reads a packet at once.
  constexpr std::string_view kDrivers[] = {"net_af_packet", "net_memif", "net_pcap",
                                           "net_ring",      "net_tap",   "net_vhost"};
  const bool shares_memory = arguments.find("zero-copy=yes") != std::string_view::npos;  // of memif
  return !shares_memory && std::find(std::begin(kDrivers), std::end(kDrivers), driver) != std::end(kDrivers);
}

}  // namespace sluice::rdma::softroce
