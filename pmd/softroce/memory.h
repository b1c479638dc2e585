// SPDX-License-Identifier: Apache-2.0
//
// Registered memory and memory windows of one device. Only the owning reactor may call; registration is
// setup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pmd/common/region_table.h"
#include "pmd/queue_pair.h"

namespace sluice::rdma::softroce {

/// Number of windows per device. The window's number is in the low bits of its rkey.
inline constexpr std::uint32_t kMaxWindows = 4096;

class MemoryTable {
 public:
  MemoryTable() = default;
  MemoryTable(const MemoryTable&) = delete;
  MemoryTable& operator=(const MemoryTable&) = delete;

  // Setup. These functions throw SetupError. Memory passed to add() must outlive the table.
  MemoryRegion allocate(std::size_t bytes) { return regions_.allocate(bytes); }
  MemoryRegion allocate_for_device(std::size_t bytes, int node) {
    return regions_.allocate_for_device(bytes, node);
  }
  MemoryRegion add(std::span<std::byte> bytes) { return regions_.add(bytes); }
  MemoryWindow allocate_window();

  /// Reports whether `sge` lies entirely inside the region of its lkey.
  bool local_access(const Sge& sge) const noexcept { return regions_.covers(sge); }

  /// Exposes `bytes` to the peer of `owner`. Returns nullopt if the window is bound already or `bytes` are
  /// not in the region.
  std::optional<Rkey> bind(MemoryWindow window, std::span<std::byte> bytes, Lkey lkey, AccessFlags access,
                           const QueuePair& owner) noexcept;
  /// Returns false if `rkey` is not bound to `owner`.
  bool invalidate(Rkey rkey, const QueuePair& owner) noexcept;
  void unbind_all(const QueuePair& owner) noexcept;
  /// Returns the memory for a remote access, or null if rkey, bounds, rights or queue pair do not permit it.
  std::byte* remote(Rkey rkey, std::uint64_t address, std::uint64_t bytes, AccessFlags needed,
                    const QueuePair& owner) const noexcept;

 private:
  struct Window {
    const QueuePair* owner = nullptr;  ///< null when not bound
    Rkey rkey{};
    AccessFlags access = 0;
    std::span<std::byte> bytes;
  };
  static constexpr std::uint32_t number_of(Rkey rkey) noexcept {
    return static_cast<std::uint32_t>(rkey) & (kMaxWindows - 1);
  }

  SteeringTags tags_;
  RegionTable regions_{"softroce", tags_};
  std::vector<Window> windows_;
};

}  // namespace sluice::rdma::softroce
