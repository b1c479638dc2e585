// SPDX-License-Identifier: Apache-2.0
//
// Registered memory of a software driver: regions by lkey. Only the reactor that owns the device may call;
// registration is setup.
#pragma once

#include <cstddef>
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

  // Setup. Throw SetupError.
  /// Registers the caller's memory, which must outlive the table.
  MemoryRegion add(std::span<std::byte> bytes);
  MemoryRegion allocate(std::size_t bytes) { return add(pages_.allocate(bytes)); }

  /// Whether `sge` lies entirely inside the region of its lkey.
  bool covers(const Sge& sge) const noexcept;

 private:
  const std::string device_;
  SteeringTags& tags_;
  Pages pages_;
  std::vector<MemoryRegion> regions_;
};

}  // namespace sluice::rdma
