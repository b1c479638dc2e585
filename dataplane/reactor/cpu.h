// SPDX-License-Identifier: Apache-2.0
//
// What is asked of the processor by its own instructions. The only file that names an architecture.
#pragma once

namespace sluice::cpu {

/// In a loop that polls: leaves the core's units to its sibling thread for a moment.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();  // _mm_pause() of <immintrin.h>, which has 50,000 lines
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

}  // namespace sluice::cpu
