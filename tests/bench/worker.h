// SPDX-License-Identifier: Apache-2.0
//
// Protocol between a benchmark program and pairs.py: the program reads lines 'SIDE SECONDS' and answers each
// with a number. It is idle between two requests.
#pragma once

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace sluice::bench {

// Processors of the data plane's reactor and of its clients.
inline constexpr int kServerCpu = 1;
inline constexpr int kClientCpu = 0;

inline void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Returns the processor time of this thread, which measures work on one core independently of other
/// programs.
inline std::uint64_t thread_ns() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Side {
  const char* name;
  double (*measure)(double seconds);
};

inline int serve(std::span<const Side> sides) {
  std::string name;
  double seconds = 0;
  while (std::cin >> name >> seconds) {
    const auto side =
        std::find_if(sides.begin(), sides.end(), [&](const Side& one) { return name == one.name; });
    if (side == sides.end()) return std::fprintf(stderr, "There is no side '%s'.\n", name.c_str()), 2;
    std::printf("%.9g\n", side->measure(seconds));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace sluice::bench
