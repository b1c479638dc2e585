// SPDX-License-Identifier: Apache-2.0
//
// Size in bytes of a cache line on every processor that Sluice runs on. A constant, because structures that
// two processes share must not depend on the compiler.
#pragma once

#include <cstddef>

namespace sluice {

inline constexpr std::size_t kCacheLine = 64;

}  // namespace sluice
