// SPDX-License-Identifier: Apache-2.0
//
// Processor instructions. This is the only file that depends on an architecture.
#pragma once

namespace sluice::cpu {

/// Pauses a polling loop briefly, which leaves the core's execution units to its sibling thread.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();  // _mm_pause() of <immintrin.h>, which has 50,000 lines
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

}  // namespace sluice::cpu
