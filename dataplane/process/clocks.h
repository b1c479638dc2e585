// SPDX-License-Identifier: Apache-2.0
//
// Clocks of the message path, based on the processor's time-stamp counter. They require that DPDK's
// environment is initialized.
#pragma once

#include <cstdint>

namespace sluice::process {

/// Returns monotonic nanoseconds. Any thread.
std::uint64_t tsc_ns() noexcept;
/// Returns nanoseconds since 1970, based on the last set_wall_clock(). Any thread.
std::uint64_t wall_ns() noexcept;
/// Synchronizes wall_ns() with the kernel's wall clock. Called periodically by the main thread.
void set_wall_clock() noexcept;

}  // namespace sluice::process
