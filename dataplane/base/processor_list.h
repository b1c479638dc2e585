// SPDX-License-Identifier: Apache-2.0
//
// Affinity masks, and their text in the format of the kernel and of taskset: "0-3,8". For setup; any thread.
#pragma once

#include <sched.h>

#include <cstdint>
#include <string>

namespace sluice {

/// Number of processors, from the first, that DPDK numbers.
inline constexpr std::uint32_t kMaxProcessors = 128;

/// Returns the affinity mask of the calling thread.
inline cpu_set_t own_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  return allowed;
}

/// Returns the list of processors as text; "none" for an empty set.
inline std::string to_text(const cpu_set_t& processors) {
  std::string text;
  for (int first = 0; first < CPU_SETSIZE; ++first) {
    if (!CPU_ISSET(first, &processors)) continue;
    int last = first;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &processors)) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
    first = last;
  }
  return text.empty() ? "none" : text;
}

}  // namespace sluice
