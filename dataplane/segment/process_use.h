// SPDX-License-Identifier: Apache-2.0
//
// What a process takes of the machine. Each plane measures itself: the other one may not look into it, and need not be in
// the same PID namespace.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::segment {

/// One writer, its process; any thread or process reads. All zero: not measured yet.
struct ProcessUse {
  std::atomic<std::uint64_t> cpu_ns;  ///< user and system time of all threads
  std::atomic<std::uint64_t> resident_bytes;
  std::atomic<std::uint64_t> virtual_bytes;
  std::atomic<std::uint64_t> open_descriptors;
  std::atomic<std::uint64_t> max_descriptors;  ///< zero: no limit
  std::atomic<std::uint64_t> started_ns;       ///< wall clock
  std::atomic<std::uint64_t> log_lines_lost;   ///< set by the plane itself
};

/// Of this process. It reads files below /proc, and lists all descriptors: not on the message path. What cannot be
/// read keeps its value.
void measure_process(ProcessUse& use);

}  // namespace sluice::segment
