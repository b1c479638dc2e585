// SPDX-License-Identifier: Apache-2.0
//
// How far apart equal buffers in one region begin. Any thread.
#pragma once

#include <cstddef>

#include "dataplane/base/cache_line.h"

namespace sluice {

/// At least `bytes`, and an odd number of cache lines. Buffers a power of two apart would all begin in the same set
/// of the level 1 cache, which holds about a dozen lines: of a burst of short messages most would be pushed out
/// before they are read.
constexpr std::size_t buffer_stride(std::size_t bytes) noexcept {
  return ((bytes + kCacheLine - 1) / kCacheLine | 1) * kCacheLine;
}

}  // namespace sluice
