// SPDX-License-Identifier: Apache-2.0
//
// Bytes of a cache line of every processor that Sluice runs on. A constant, for structures that two processes
// share must not depend on who compiles them.
#pragma once

#include <cstddef>

namespace sluice {

inline constexpr std::size_t kCacheLine = 64;

}  // namespace sluice
