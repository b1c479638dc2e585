// SPDX-License-Identifier: Apache-2.0
//
// State that a plane publishes about itself: its heartbeat, its resource usage, and its service state for
// systemd.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "dataplane/base/cache_line.h"

namespace sluice::segment {

/// Heartbeat timeout: a plane whose heartbeat has not advanced for this long counts as dead or stuck.
inline constexpr std::uint64_t kHeartbeatTimeoutNs = 3'000'000'000;

/// Liveness of one plane: a counter that it keeps incrementing. The plane's main thread is the only writer;
/// any thread or process reads. Its size is identical in all releases.
struct Heartbeat {
  alignas(kCacheLine) std::atomic<std::uint32_t> pid;  ///< for display, in its PID namespace; zero: ended
  std::atomic<std::uint64_t> beats;
  std::atomic<std::uint64_t> beat_ns;         ///< monotonic clock, common to all processes of the host
  std::atomic<std::uint64_t> started_ns;      ///< wall clock
  std::array<std::atomic<char>, 16> version;  ///< version of the program, truncated; empty: not published
  std::atomic<std::uint64_t> owner;           ///< see segment/ownership.h; its epoch never decreases
};
static_assert(sizeof(Heartbeat) == kCacheLine);
/// Returns the epoch: the number of processes that have been this plane so far. Zero: none yet.
constexpr std::uint32_t epoch_of(std::uint64_t owner) noexcept {
  return static_cast<std::uint32_t>(owner >> 32);
}

/// Returns the age of a heartbeat in ns; the largest value if the plane has never started.
std::uint64_t heartbeat_age_ns(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Returns whether the heartbeat is recent. It still is shortly after a plane was killed;
/// Segment::data_plane_runs() is exact.
bool alive(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;
/// Returns the version of the plane's program; empty if the plane does not publish it.
std::string version_of(const Heartbeat& heartbeat);
/// Starts the heartbeat of this process.
void start_heartbeat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns,
                     std::uint64_t wall_now_ns) noexcept;
void beat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept;

std::uint64_t monotonic_ns() noexcept;
std::uint64_t wall_ns() noexcept;

/// Resource usage of a process. Each plane measures itself, because the other plane may lack the permission,
/// and may be in another PID namespace. The process is the only writer; any thread or process reads. All
/// zero: not measured yet.
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

namespace sluice::notify {

// Service state notifications to systemd (sd_notify). They have no effect outside a systemd unit. Called by
// the main thread of either plane only; failures are ignored.
void ready();
/// Resets the unit's watchdog, at most every 500 ms. Called in every loop iteration of a healthy plane.
void alive();
void stopping();

}  // namespace sluice::notify
