// SPDX-License-Identifier: Apache-2.0
//
// Stride of equally sized buffers in one region. Any thread.
#pragma once

#include <cstddef>

#include "dataplane/base/cache_line.h"

namespace sluice {

/// Returns a stride of at least `bytes` that is an odd number of cache lines. Buffers whose stride is a power
/// of two would all begin in one set of the level 1 cache. A set holds about a dozen lines, so in a burst of
/// short messages most would be evicted before they are read.
constexpr std::size_t buffer_stride(std::size_t bytes) noexcept {
  return ((bytes + kCacheLine - 1) / kCacheLine | 1) * kCacheLine;
}

}  // namespace sluice
