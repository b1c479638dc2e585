// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice {

/// Clock that returns monotonic nanoseconds. Cheap, without a system call; any thread.
using Clock = std::uint64_t (*)() noexcept;

}  // namespace sluice
