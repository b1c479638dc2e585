// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "cli/bench/client.h"

namespace sluice::interop {

/// Calls `turn()` until `condition()` holds; throws when that takes longer than any working peer needs.
template <typename Turn, typename Condition>
void until(const char* what, Turn turn, Condition condition) {
  constexpr std::uint64_t kPatienceNs = 300'000'000'000;
  const std::uint64_t end = bench::now_ns() + kPatienceNs;
  while (!condition()) {
    turn();
    if (bench::now_ns() > end) throw std::runtime_error(std::string("timed out waiting for: ") + what);
  }
}

}  // namespace sluice::interop
