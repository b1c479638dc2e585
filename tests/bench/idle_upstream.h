// SPDX-License-Identifier: Apache-2.0
//
// A reactor's upstream with places for many clients, none of which is there: what it does from time to time.
#pragma once

#include <cstdint>

namespace sluice::bench {

/// The longest turn of an interval in which everything is looked at once, median of those that fit in `seconds`. The loop
/// turns every 10 us, of a time that is made up.
double longest_turn_us(std::uint32_t clients, double seconds);

}  // namespace sluice::bench
