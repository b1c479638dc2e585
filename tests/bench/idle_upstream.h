// SPDX-License-Identifier: Apache-2.0
//
// Periodic work of a reactor's upstream with slots for many clients, none of which is connected.
#pragma once

#include <cstdint>

namespace sluice::bench {

/// Returns the longest iteration, in microseconds, of an interval in which each slot is visited once: the
/// median of the intervals that fit in `seconds`. The loop runs every 10 us of simulated time.
double longest_turn_us(std::uint32_t clients, double seconds);

}  // namespace sluice::bench
