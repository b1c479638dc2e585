// SPDX-License-Identifier: Apache-2.0
//
// Calls that one side of a comparison has done, and how long they took.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::bench {

struct Rate {
  std::uint64_t operations = 0;
  double seconds = 0;
  std::vector<std::uint32_t> latency_ns;  ///< of the first ones, as many as were reserved

  double per_second() const { return static_cast<double>(operations) / seconds; }
  double p50_us() {
    const auto middle = latency_ns.begin() + static_cast<std::ptrdiff_t>(latency_ns.size() / 2);
    std::nth_element(latency_ns.begin(), middle, latency_ns.end());
    return *middle / 1e3;
  }
  void note(std::uint64_t begun_ns, std::uint64_t now) {
    ++operations;
    if (latency_ns.size() < latency_ns.capacity())
      latency_ns.push_back(static_cast<std::uint32_t>(now - begun_ns));
  }
};

}  // namespace sluice::bench
