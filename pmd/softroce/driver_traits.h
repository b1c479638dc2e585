// SPDX-License-Identifier: Apache-2.0
//
// When an ethdev has no use for the memory of a packet any more, by what is known of it. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::rdma::softroce {

enum class PacketMemory : std::uint8_t {
  Unknown,     ///< or it reaches none but DPDK's own
  UntilTaken,  ///< its driver copies a packet when it takes it
  UntilFreed,  ///< it reads what is mapped for it, and its driver frees what has been sent when asked to
};

struct EthdevTraits {
  std::string_view driver = {};     ///< rte_eth_dev_info::driver_name
  std::string_view arguments = {};  ///< devargs
  std::string_view bus = {};
  bool sends_segments = false;    ///< packets of as many segments as one in place has
  bool frees_when_asked = false;  ///< rte_eth_tx_done_cleanup()
  /// Those of DMA (DPDK, environment abstraction layer, "IOVA Mode Detection").
  bool addresses_are_virtual = false;
};

/// Drivers of virtual ethdevs that copy, which cannot be asked of them. The others pass packets on to who reads them later.
inline bool copies_what_it_takes(std::string_view driver, std::string_view arguments) noexcept {
  // net_ring is for tests, whose other end reads a packet at once.
  constexpr std::string_view kDrivers[] = {"net_af_packet", "net_memif", "net_pcap",
                                           "net_ring",      "net_tap",   "net_vhost"};
  const bool shares_memory = arguments.find("zero-copy=yes") != std::string_view::npos;  // of memif
  for (const std::string_view known : kDrivers)
    if (driver == known) return !shares_memory;
  return false;
}

/// Drivers that take a packet for sent, once asked to free what has been, when the descriptor of its first segment says so, of which
/// the card says nothing: they send nothing any more (DPDK 22.11 and later, igb_tx_done_cleanup()).
inline bool stops_when_asked_to_free(std::string_view driver) noexcept {
  return driver == "net_e1000_igb" || driver == "net_e1000_igb_vf";
}

/// Of a card (auxiliary: a function of one) memory that is not DPDK's can be mapped for it.
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

/// Why payload is copied for it; empty: it need not be.
inline std::string_view why_copied(const EthdevTraits& ethdev) noexcept {
  if (packet_memory(ethdev) != PacketMemory::Unknown) return {};
  if (!is_card(ethdev.bus)) return "its driver passes packets on";
  if (!ethdev.sends_segments) return "it sends no packets of several segments";
  if (!ethdev.frees_when_asked) return "its driver does not free what has been sent when asked to";
  if (stops_when_asked_to_free(ethdev.driver))
    return "its driver stops when asked to free what has been sent";
  return "DPDK uses physical addresses: bind the card to vfio-pci, with an IOMMU";
}

}  // namespace sluice::rdma::softroce
