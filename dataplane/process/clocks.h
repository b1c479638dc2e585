// SPDX-License-Identifier: Apache-2.0
//
// Clocks of the message path: the processor's time-stamp counter. DPDK's environment is up.
#pragma once

#include <cstdint>

namespace sluice::process {

/// Any thread: monotonic nanoseconds.
std::uint64_t tsc_ns() noexcept;
/// Any thread: nanoseconds since 1970, as of the last set_wall_clock().
std::uint64_t wall_ns() noexcept;
/// The main thread, now and then: takes over what the kernel's wall clock says.
void set_wall_clock() noexcept;

}  // namespace sluice::process
