// SPDX-License-Identifier: Apache-2.0
//
// Determines from the known properties of a driver when an ethdev no longer accesses the memory of a packet.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::rdma::softroce {

enum class PacketMemory : std::uint8_t {
  Unknown,     ///< not known, or the ethdev can access only DPDK's own memory
  UntilTaken,  ///< the driver copies a packet when it accepts it
  UntilFreed,  ///< the ethdev reads memory mapped for it, and its driver frees sent packets on request
};

struct EthdevTraits {
  std::string_view driver = {};     ///< rte_eth_dev_info::driver_name
  std::string_view arguments = {};  ///< devargs
  std::string_view bus = {};
  bool sends_segments = false;    ///< supports packets with as many segments as an in-place packet has
  bool frees_when_asked = false;  ///< supports rte_eth_tx_done_cleanup()
  /// DMA addresses are virtual addresses (DPDK, environment abstraction layer, "IOVA Mode Detection").
  bool addresses_are_virtual = false;
};

/// Reports whether a virtual ethdev's driver copies the packets that it accepts, which DPDK has no query for.
/// Other drivers of virtual ethdevs pass packets on to a reader that runs later.
inline bool copies_what_it_takes(std::string_view driver, std::string_view arguments) noexcept {
  // net_ring is used by tests, where the other end reads a packet immediately.
  constexpr std::string_view kDrivers[] = {"net_af_packet", "net_memif", "net_pcap",
                                           "net_ring",      "net_tap",   "net_vhost"};
  const bool shares_memory = arguments.find("zero-copy=yes") != std::string_view::npos;  // of memif
  for (const std::string_view known : kDrivers)
    if (driver == known) return !shares_memory;
  return false;
}

/// Reports whether the driver stops sending when asked to free sent packets. Such a driver looks for
/// completion in the descriptor of a packet's first segment, for which the card reports none (DPDK 22.11 and
/// later, igb_tx_done_cleanup()).
inline bool stops_when_asked_to_free(std::string_view driver) noexcept {
  return driver == "net_e1000_igb" || driver == "net_e1000_igb_vf";
}

/// Reports whether the bus belongs to network cards, for which memory outside DPDK's own can be mapped. An
/// auxiliary device is one function of a card.
inline bool is_card(std::string_view bus) noexcept {
  return bus == "pci" || bus == "auxiliary";
}

inline PacketMemory packet_memory(const EthdevTraits& ethdev) noexcept {
  if (!is_card(ethdev.bus))
    return copies_what_it_takes(ethdev.driver, ethdev.arguments) ? PacketMemory::UntilTaken
                                                                 : PacketMemory::Unknown;
  return ethdev.sends_segments && ethdev.frees_when_asked && !stops_when_asked_to_free(ethdev.driver) &&
                 ethdev.addresses_are_virtual
             ? PacketMemory::UntilFreed
             : PacketMemory::Unknown;
}

/// Returns the reason why payload is copied for the ethdev. Empty if it need not be copied.
inline std::string_view why_copied(const EthdevTraits& ethdev) noexcept {
  if (packet_memory(ethdev) != PacketMemory::Unknown) return {};
  if (!is_card(ethdev.bus)) return "its driver passes packets on";
  if (!ethdev.sends_segments) return "it cannot send packets of several segments";
  if (!ethdev.frees_when_asked) return "its driver does not free sent packets on request";
  if (stops_when_asked_to_free(ethdev.driver))
    return "its driver stops when it is requested to free sent packets";
  return "DPDK uses physical addresses. Bind the card to vfio-pci, with an IOMMU";
}

}  // namespace sluice::rdma::softroce
