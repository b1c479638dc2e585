// SPDX-License-Identifier: Apache-2.0
//
// Registered memory of a driver in software: regions by lkey. The reactor that owns the device; registration
// is setup.
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
  /// `device` names the device in errors. `tags` outlives the table.
  RegionTable(std::string device, SteeringTags& tags) : device_(std::move(device)), tags_(tags) {}

  // Setup; SetupError with a sentence.
  /// Memory of the caller's, which outlives the table.
  MemoryRegion add(std::span<std::byte> bytes);
  MemoryRegion allocate(std::size_t bytes) { return add(pages_.allocate(bytes)); }

  /// Whether all of `sge` lies in the region of its lkey.
  bool covers(const Sge& sge) const noexcept;

 private:
  const std::string device_;
  SteeringTags& tags_;
  Pages pages_;
  std::vector<MemoryRegion> regions_;
};

}  // namespace sluice::rdma
