// SPDX-License-Identifier: Apache-2.0
//
// Number, duration and latencies of the calls of one side of a comparison.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::bench {

struct Rate {
  std::uint64_t operations = 0;
  double seconds = 0;
  std::vector<std::uint32_t> latency_ns;  ///< of the first calls, up to the reserved capacity

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
