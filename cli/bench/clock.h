// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::bench {

/// Returns the time of the monotonic clock. Any thread.
std::uint64_t now_ns() noexcept;

}  // namespace sluice::bench
