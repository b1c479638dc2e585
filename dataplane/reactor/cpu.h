// SPDX-License-Identifier: Apache-2.0
//
// What is asked of the processor by its own instructions. The only file that names an architecture; any other
// than x86-64 and ARM64 gets what the C++ library has.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#include <chrono>
#endif

namespace sluice::cpu {

/// In a loop that polls: leaves the core's units to its sibling thread for a moment.
inline void pause() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

/// A counter of constant rate, in a unit of its own: the cheapest clock there is.
inline std::uint64_t ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t count;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
  return count;
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace sluice::cpu
