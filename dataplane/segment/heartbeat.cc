// SPDX-License-Identifier: Apache-2.0
//
// State that a plane publishes about itself: its heartbeat and its resource usage.
#include "dataplane/segment/heartbeat.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <string_view>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/segment/version.h"

namespace sluice::segment {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecondNs + static_cast<std::uint64_t>(time.tv_nsec);
}

}  // namespace

std::uint64_t monotonic_ns() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}

std::uint64_t wall_ns() noexcept {
  return read_clock(CLOCK_REALTIME);
}

std::uint64_t heartbeat_age_ns(const Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept {
  // Pairs with start_heartbeat(): the first beat.
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
  // Pairs with heartbeat_age_ns() and other loads of `pid`: the first beat, the version and the start time.
  heartbeat.pid.store(static_cast<std::uint32_t>(::getpid()), std::memory_order_release);
}

void beat(Heartbeat& heartbeat, std::uint64_t monotonic_now_ns) noexcept {
  heartbeat.beat_ns.store(monotonic_now_ns, std::memory_order_relaxed);
  heartbeat.beats.store(heartbeat.beats.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// --- Resource usage of the process

namespace {

/// Text of a short file below /proc; empty if it cannot be read.
struct ProcText {
  char text[4096] = {};

  explicit ProcText(const char* path) noexcept {
    const FileDescriptor file(::open(path, O_RDONLY | O_CLOEXEC));
    if (file && ::read(file.get(), text, sizeof text - 1) < 0) text[0] = '\0';
  }
};

/// Returns the start time of the process in clock ticks since boot: field 22 of proc(5). Zero: unknown.
std::uint64_t start_ticks() {
  const ProcText stat("/proc/self/stat");
  const char* at = std::strchr(stat.text, ')');  // end of the program's name, which may contain blanks
  for (int field = 2; field < 22 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  return at != nullptr ? std::strtoull(at, nullptr, 10) : 0;
}

/// Returns the start time of the process by the wall clock, in ns; computed once. Zero: unknown.
std::uint64_t started_ns() {
  static const std::uint64_t started = [] {
    const std::uint64_t ticks = start_ticks();
    const std::uint64_t age_ns =
        read_clock(CLOCK_BOOTTIME) - ticks * (kSecondNs / static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
    return ticks == 0 ? 0 : read_clock(CLOCK_REALTIME) - age_ns;
  }();
  return started;
}

void set(std::atomic<std::uint64_t>& word, std::uint64_t value) noexcept {
  word.store(value, std::memory_order_relaxed);
}

void measure_memory(ProcessUse& use) {
  const ProcText statm("/proc/self/statm");
  char* behind_total = nullptr;
  char* behind_resident = nullptr;
  const std::uint64_t total_pages = std::strtoull(statm.text, &behind_total, 10);
  const std::uint64_t resident_pages = std::strtoull(behind_total, &behind_resident, 10);
  if (behind_resident == behind_total) return;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  set(use.virtual_bytes, total_pages * page_bytes);
  set(use.resident_bytes, resident_pages * page_bytes);
}

void measure_descriptors(ProcessUse& use) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    set(use.max_descriptors, limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur);
  DIR* const list = ::opendir("/proc/self/fd");
  if (list == nullptr) {
    if (errno == EMFILE) set(use.open_descriptors, limit.rlim_cur);  // no descriptor is left for opendir()
    return;
  }
  std::uint64_t open = 0;
  errno = 0;
  while (const dirent* const each = ::readdir(list)) open += each->d_name[0] != '.' ? 1 : 0;
  if (errno == 0 && open > 0) set(use.open_descriptors, open - 1);  // except the list's own
  ::closedir(list);
}

}  // namespace

void measure_process(ProcessUse& use) {
  set(use.cpu_ns, read_clock(CLOCK_PROCESS_CPUTIME_ID));
  set(use.started_ns, started_ns());
  measure_memory(use);
  measure_descriptors(use);
}

}  // namespace sluice::segment

namespace sluice::notify {
namespace {

constexpr std::uint64_t kIntervalNs = 500'000'000;

}  // namespace

void ready() {
  ::sd_notify(0, "READY=1");
}

void alive() {
  static std::uint64_t notified_ns = 0;
  const std::uint64_t now_ns = segment::monotonic_ns();
  if (now_ns - notified_ns < kIntervalNs) return;
  notified_ns = now_ns;
  ::sd_notify(0, "WATCHDOG=1");
}

void stopping() {
  ::sd_notify(0, "STOPPING=1");
}

}  // namespace sluice::notify
