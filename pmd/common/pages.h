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

class Pages {
 public:
  Pages() = default;
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  /// page_bytes(bytes) of memory, owned by this object. Throws SetupError.
  std::span<std::byte> allocate(std::size_t bytes);

 private:
  std::vector<std::span<std::byte>> mapped_;
};

}  // namespace sluice::rdma
