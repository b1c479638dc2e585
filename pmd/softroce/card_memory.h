// SPDX-License-Identifier: Apache-2.0
//
// Memory outside DPDK's own that a network card may read, mapped at the addresses of the process (DPDK,
// environment abstraction layer, "Support for Externally Allocated Memory"). Setup, by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

struct rte_device;

namespace sluice::rdma::softroce {

class CardMemory {
 public:
  CardMemory() = default;
  /// Unmaps everything. Requires that the card no longer reads the memory.
  ~CardMemory() { remove(); }
  CardMemory(const CardMemory&) = delete;
  CardMemory& operator=(const CardMemory&) = delete;

  /// Prepares mapping for a card. Returns false if no memory can be mapped for this card; error() has the
  /// reason.
  bool open(rte_device& card);
  /// Maps the pages of `bytes` that are not mapped yet. Returns false if some cannot be mapped; error() has
  /// the reason. The pages may be unmapped from the process before they are unmapped for the card.
  bool add(std::span<std::byte> bytes);
  const std::string& error() const noexcept { return error_; }
  /// Unmaps everything before the card is closed, and records it for resume().
  void suspend() noexcept;
  /// Maps for this card everything that suspend() has unmapped. Returns false if some of it cannot be mapped;
  /// error() has the reason.
  bool resume(rte_device& card);

 private:
  void remove() noexcept;
  bool map(std::uintptr_t begin, std::uintptr_t end);
  void unmap(std::uintptr_t begin, std::uintptr_t end) noexcept;

  rte_device* card_ = nullptr;
  std::map<std::uintptr_t, std::uintptr_t> mapped_;     ///< maps each begin to its end
  std::map<std::uintptr_t, std::uintptr_t> suspended_;  ///< maps each begin to its end
  std::string error_;
};

}  // namespace sluice::rdma::softroce
