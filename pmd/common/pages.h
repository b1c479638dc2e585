// SPDX-License-Identifier: Apache-2.0
//
// Page-granular memory for drivers: zeroed pages that become resident when written, unmapped by the
// destructor. Setup only; single-threaded.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice::rdma {

inline constexpr std::size_t kPageBytes = 4096;
/// Rounded up to whole pages, at least one.
std::size_t page_bytes(std::size_t bytes) noexcept;
/// A NIC has an entry in its translation tables for each page, of which it caches few.
inline constexpr std::size_t kHugePageBytes = 2u << 20;

class Pages {
 public:
  Pages() = default;
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  /// page_bytes(bytes) of memory, owned by this object. Throws SetupError.
  std::span<std::byte> allocate(std::size_t bytes);
  /// For a device that reads and writes it: whole huge pages, if it is as large as one, of those that the machine has set aside or
  /// finds when they are written; on the NUMA node `node` if that has memory left, below zero on any.
  std::span<std::byte> allocate_for_device(std::size_t bytes, int node);

 private:
  std::vector<std::span<std::byte>> mapped_;
};

}  // namespace sluice::rdma
