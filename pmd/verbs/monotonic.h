// SPDX-License-Identifier: Apache-2.0
//
// Monotonic time for deadlines of setup and of queue pairs that end. Any thread.
#pragma once

#include <cstdint>
#include <ctime>

namespace sluice::rdma::verbs {

/// Returns the monotonic time in nanoseconds.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace sluice::rdma::verbs
