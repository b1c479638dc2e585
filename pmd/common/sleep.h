// SPDX-License-Identifier: Apache-2.0
//
// Sleeping for a thread. Not message path; any thread.
#pragma once

#include <errno.h>
#include <time.h>

#include <cstdint>

namespace sluice::rdma {

/// Sleeps for `ns` nanoseconds, even if signals interrupt the sleep.
inline void sleep_ns(std::uint64_t ns) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  timespec left{static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
  while (::nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace sluice::rdma
