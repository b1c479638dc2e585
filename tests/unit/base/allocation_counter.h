// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::service::test {

/// Returns the number of calls of operator new in this program. Any thread.
std::uint64_t allocations() noexcept;

}  // namespace sluice::service::test
