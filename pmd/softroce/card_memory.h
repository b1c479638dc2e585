// SPDX-License-Identifier: Apache-2.0
//
// Memory beside DPDK's own that a network card may read, at addresses that are the process's (DPDK, environment abstraction
// layer, "Support for Externally Allocated Memory"). Setup, by one thread.
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
  /// When the card reads nothing any more.
  ~CardMemory() { remove(); }
  CardMemory(const CardMemory&) = delete;
  CardMemory& operator=(const CardMemory&) = delete;

  /// False: no memory can be mapped for this card; error() says why.
  bool open(rte_device& card);
  /// The pages of `bytes`, as far as they are not mapped yet. False: some cannot be, and error() says why. They need not be
  /// there any more at the end.
  bool add(std::span<std::byte> bytes);
  const std::string& error() const noexcept { return error_; }
  /// Unmaps everything before the card is closed, and remembers it for resume().
  void suspend() noexcept;
  /// Maps for this card what suspend() has unmapped. Returns false if some of it cannot be mapped; error() has the reason.
  bool resume(rte_device& card);

 private:
  void remove() noexcept;
  bool map(std::uintptr_t begin, std::uintptr_t end);
  void unmap(std::uintptr_t begin, std::uintptr_t end) noexcept;

  rte_device* card_ = nullptr;
  std::map<std::uintptr_t, std::uintptr_t> mapped_;     ///< end by begin
  std::map<std::uintptr_t, std::uintptr_t> suspended_;  ///< end by begin
  std::string error_;
};

}  // namespace sluice::rdma::softroce
