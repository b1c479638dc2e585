// SPDX-License-Identifier: Apache-2.0
//
// Resource usage of a process. Each plane measures itself, because the other plane may lack the permission,
// and may be in another PID namespace.
#pragma once

#include <atomic>
#include <cstdint>

namespace sluice::segment {

/// Resource usage. The process is the only writer; any thread or process reads. All zero: not measured yet.
struct ProcessUse {
  std::atomic<std::uint64_t> cpu_ns;  ///< user and system time of all threads
  std::atomic<std::uint64_t> resident_bytes;
  std::atomic<std::uint64_t> virtual_bytes;
  std::atomic<std::uint64_t> open_descriptors;
  std::atomic<std::uint64_t> max_descriptors;  ///< zero: no limit
  std::atomic<std::uint64_t> started_ns;       ///< wall clock
  std::atomic<std::uint64_t> log_lines_lost;   ///< set by the plane itself
};

/// Measures this process. Reads files below /proc and lists all descriptors, so it must not be called on the
/// message path. Values that cannot be read remain unchanged.
void measure_process(ProcessUse& use);

}  // namespace sluice::segment
