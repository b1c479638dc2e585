// SPDX-License-Identifier: Apache-2.0
//
// Liveness of a plane: its main thread is the only writer; any thread or process reads.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "dataplane/base/cache_line.h"

namespace sluice::segment {

/// A plane whose heartbeat has not advanced for this long counts as dead or stuck.
inline constexpr std::uint64_t kHeartbeatTimeoutNs = 3'000'000'000;

/// Liveness of one plane: a counter that it keeps incrementing. Of the same size in every release.
struct Heartbeat {
  alignas(
      kCacheLine) std::atomic<std::uint32_t> pid;  ///< in its own PID namespace: for people. Zero: it ended
  std::atomic<std::uint64_t> beats;
  std::atomic<std::uint64_t> beat_ns;         ///< monotonic clock, the same for all processes of the host
  std::atomic<std::uint64_t> started_ns;      ///< wall clock
  std::array<std::atomic<char>, 16> version;  ///< of the program, cut if longer; empty: it did not say
  std::atomic<std::uint64_t> owner;           ///< segment/ownership.h; its epoch never decreases
};
static_assert(sizeof(Heartbeat) == kCacheLine);
/// Counts the processes that have been this plane, from one. Zero: there was none.
constexpr std::uint32_t epoch_of(std::uint64_t owner) noexcept {
  return static_cast<std::uint32_t>(owner >> 32);
}

/// Age of a heartbeat in ns; the largest value if the plane has never started.
std::uint64_t heartbeat_age_ns(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Whether the heartbeat is recent. Right after a plane was killed it still is: Segment::data_plane_runs().
bool alive(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Version of the plane's program; empty if that does not say it.
std::string version_of(const Heartbeat& heartbeat);
/// Claims a heartbeat for this process.
void start_heartbeat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns,
                     std::uint64_t wall_now_ns) noexcept;
void beat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;

std::uint64_t monotonic_ns() noexcept;
std::uint64_t wall_ns() noexcept;

}  // namespace sluice::segment
