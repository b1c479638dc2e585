// SPDX-License-Identifier: Apache-2.0
//
// Events that the driver of an ethdev reports in DPDK's interrupt thread (rte_eth_dev_callback_register()),
// kept until the main thread takes them. All methods except the callback belong to the main thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace sluice::rdma::softroce {

class EthdevEvents {
 public:
  struct Seen {
    bool removed = false;  ///< RTE_ETH_EVENT_INTR_RMV: the card was removed
    bool reset = false;    ///< RTE_ETH_EVENT_INTR_RESET: the physical function has reset this virtual one
    bool link = false;     ///< RTE_ETH_EVENT_INTR_LSC: the link has changed
  };

  EthdevEvents() = default;
  ~EthdevEvents() { unsubscribe(); }
  EthdevEvents(const EthdevEvents&) = delete;
  EthdevEvents& operator=(const EthdevEvents&) = delete;

  /// Setup. Discards the events of an earlier ethdev.
  void subscribe(std::uint16_t ethdev) noexcept;
  void unsubscribe() noexcept;
  /// Returns the events reported since the last call.
  Seen take() noexcept;
  /// Called by the interrupt thread; `event` is an rte_eth_event_type.
  void add(unsigned event) noexcept { seen_.fetch_or(1u << event, std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> seen_{0};  ///< one bit per rte_eth_event_type
  std::optional<std::uint16_t> ethdev_;
};

}  // namespace sluice::rdma::softroce
