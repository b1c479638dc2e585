// SPDX-License-Identifier: Apache-2.0
//
// Registered memory of a software driver: regions by lkey. Only the reactor that owns the device may call;
// registration is setup.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pmd/common/pages.h"
#include "pmd/common/steering_tags.h"
#include "pmd/memory.h"

namespace sluice::rdma {

class RegionTable {
 public:
  /// `device` is the device's name for error messages. `tags` outlives the table.
  RegionTable(std::string device, SteeringTags& tags) : device_(std::move(device)), tags_(tags) {}

  // Setup. These functions throw SetupError.
  /// Registers the caller's memory, which must outlive the table.
  MemoryRegion add(std::span<std::byte> bytes);
  MemoryRegion allocate(std::size_t bytes) { return add(pages_.allocate(bytes)); }
  MemoryRegion allocate_for_device(std::size_t bytes, int node) {
    return add(pages_.allocate_for_device(bytes, node));
  }

  /// Reports whether `sge` lies entirely inside the region of its lkey.
  bool covers(const Sge& sge) const noexcept {
    const std::size_t number = static_cast<std::uint32_t>(sge.lkey) & ((1u << kRegionBits) - 1);
    if (number >= count_ || regions_[number].lkey != sge.lkey) return false;
    const auto& bytes = regions_[number].bytes;
    const auto address = reinterpret_cast<std::uintptr_t>(sge.address);
    const auto base = reinterpret_cast<std::uintptr_t>(bytes.data());
    return address >= base && address - base <= bytes.size() && sge.length <= bytes.size() - (address - base);
  }

 private:
  static constexpr std::uint32_t kRegionBits = 12;  ///< low bits of an lkey: the region's index

  const std::string device_;
  SteeringTags& tags_;
  Pages pages_;
  std::vector<MemoryRegion> regions_;
  std::size_t count_ = 0;  ///< regions_.size(), which is a division
};

}  // namespace sluice::rdma
