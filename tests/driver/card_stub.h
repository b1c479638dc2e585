// SPDX-License-Identifier: Apache-2.0
//
// Stub of a network card's driver and of the IOMMU, in place of DPDK's own functions. While a CardStub
// exists, every ethdev is a PCI card that reads memory mapped for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

namespace sluice::rdma::conformance {

class CardStub {
 public:
  CardStub();
  ~CardStub();
  CardStub(const CardStub&) = delete;
  CardStub& operator=(const CardStub&) = delete;

  /// True if all of `memory` is mapped.
  bool reaches(std::span<const std::byte> memory) const;

  bool frees_when_asked = true;       ///< rte_eth_tx_done_cleanup()
  bool addresses_are_virtual = true;  ///< of DMA
  std::size_t most_mappings = SIZE_MAX;
  /// Called when the driver is requested to free transmitted frames.
  std::function<void(std::uint16_t ethdev, std::uint16_t queue)> free_sent;
  std::map<std::uintptr_t, std::size_t> mapped;  ///< size in bytes by address
  std::uint16_t tx_rs_thresh = 0;                ///< of the last transmit queue; zero: the driver's default
};

}  // namespace sluice::rdma::conformance
