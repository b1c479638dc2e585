// SPDX-License-Identifier: Apache-2.0
//
// Handles of registered memory and memory windows. Plain values that own nothing; any thread may copy them.
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

/// A registered range, for local use by its lkey. Remote access is granted through a MemoryWindow only.
struct MemoryRegion {
  std::span<std::byte> bytes;
  Lkey lkey{};
};

/// Handle of a type 2 memory window, which grants the peer of one queue pair access to a part of a region,
/// from bind until invalidation. A queue pair in Error grants no remote access. Destroying a queue pair
/// unbinds its windows, which queue pairs connected later can bind. The driver assigns `number`. On a device
/// without memory windows the handle stands for a region of its own, which is registered for one call; see
/// QueuePair::register_region().
struct MemoryWindow {
  std::uint32_t number = 0;
};

/// Number of a protection domain of a device; zero is the device's first. An rkey gives access only through
/// queue pairs of its domain.
enum class ProtectionDomain : std::uint16_t {};

}  // namespace sluice::rdma
