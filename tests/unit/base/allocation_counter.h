// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::service::test {

/// Calls of operator new in this program so far. Any thread.
std::uint64_t allocations() noexcept;

}  // namespace sluice::service::test
