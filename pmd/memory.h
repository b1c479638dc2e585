// SPDX-License-Identifier: Apache-2.0
//
// Registered memory and memory windows as a device hands them out. Values; any thread may copy them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pmd/work_request.h"

namespace sluice::rdma {

enum Access : std::uint32_t {
  kLocalRead = 0,
  kLocalWrite = 1,
  kRemoteRead = 2,
  kRemoteWrite = 4,
};
using AccessFlags = std::uint32_t;

/// A registered range, for local use by its lkey. Remote access is only ever given through a MemoryWindow.
struct MemoryRegion {
  std::span<std::byte> bytes;
  Lkey lkey{};
};

/// A type 2 memory window: exposes a part of a region to the one queue pair it is bound on, until it is
/// invalidated. A queue pair in Error grants no remote access, and destroying it unbinds its windows. The
/// number is the driver's.
struct MemoryWindow {
  std::uint32_t number = 0;
};

}  // namespace sluice::rdma
