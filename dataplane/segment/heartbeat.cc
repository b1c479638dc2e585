// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/heartbeat.h"

#include <unistd.h>

#include <chrono>
#include <limits>
#include <string_view>

#include "dataplane/segment/version.h"

namespace sluice::segment {

std::uint64_t monotonic_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

std::uint64_t wall_ns() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

std::uint64_t heartbeat_age_ns(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept {
  if (heartbeat.pid.load(std::memory_order_acquire) == 0) return std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t last = heartbeat.beat_ns.load(std::memory_order_relaxed);
  return monotonic_now_ns > last ? monotonic_now_ns - last : 0;
}

bool alive(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept {
  return heartbeat_age_ns(heartbeat, monotonic_now_ns) <= kHeartbeatTimeoutNs;
}

std::string version_of(const Heartbeat& heartbeat) {
  std::string version;
  for (const std::atomic<char>& character : heartbeat.version) {
    const char read = character.load(std::memory_order_relaxed);
    if (read == '\0') break;
    version += read;
  }
  return version;
}

void start_heartbeat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns,
                     std::uint64_t wall_now_ns) noexcept {
  const std::string_view version = kVersion;
  for (std::size_t i = 0; i < heartbeat.version.size(); ++i)
    heartbeat.version[i].store(i < version.size() ? version[i] : '\0', std::memory_order_relaxed);
  heartbeat.started_ns.store(wall_now_ns, std::memory_order_relaxed);
  beat(heartbeat, monotonic_now_ns);
  heartbeat.pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_release);
}

void beat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept {
  heartbeat.beat_ns.store(monotonic_now_ns, std::memory_order_relaxed);
  heartbeat.beats.store(heartbeat.beats.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

}  // namespace sluice::segment
