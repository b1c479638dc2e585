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
/// Returns `bytes` rounded up to whole pages, at least one page.
std::size_t page_bytes(std::size_t bytes) noexcept;
/// Size of a huge page. A NIC caches few entries of its translation tables, which have one entry per page.
inline constexpr std::size_t kHugePageBytes = 2u << 20;

class Pages {
 public:
  Pages() = default;
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  /// Allocates page_bytes(bytes) of memory, owned by this object. Throws SetupError.
  std::span<std::byte> allocate(std::size_t bytes);
  /// Allocates memory that a device reads and writes. Memory of at least one huge page consists of whole huge
  /// pages, either reserved ones or transparent ones that the kernel provides on the first write. It lies on
  /// NUMA node `node` if that node has memory left; a negative node means any.
  std::span<std::byte> allocate_for_device(std::size_t bytes, int node);

 private:
  std::vector<std::span<std::byte>> mapped_;
};

}  // namespace sluice::rdma
