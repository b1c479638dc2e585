// SPDX-License-Identifier: Apache-2.0
#include "pmd/device.h"

#include <time.h>

namespace sluice::rdma {

void Device::wait(std::uint64_t limit_ns) noexcept {
  constexpr std::uint64_t kSecond = 1'000'000'000;
  const timespec interval{static_cast<time_t>(limit_ns / kSecond), static_cast<long>(limit_ns % kSecond)};
  ::nanosleep(&interval, nullptr);
}

}  // namespace sluice::rdma
