// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice {

/// Monotonic nanoseconds. Cheap, not a system call; any thread.
using Clock = std::uint64_t (*)() noexcept;

}  // namespace sluice
