// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/process_use.h"

#include <sys/resource.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace sluice::segment {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;

std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecondNs + static_cast<std::uint64_t>(time.tv_nsec);
}

/// In clock ticks since the machine's start: field 22, see proc(5). Zero: unknown.
std::uint64_t start_ticks() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text, ')');  // the program's name, which may hold blanks
  for (int field = 3; field < 22; ++field) file >> text;
  std::uint64_t ticks = 0;
  file >> ticks;
  return ticks;
}

/// Wall clock, always the same. Zero: unknown.
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
  std::ifstream file("/proc/self/statm");
  std::uint64_t total_pages = 0;
  std::uint64_t resident_pages = 0;
  if (!(file >> total_pages >> resident_pages)) return;
  const auto page_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  set(use.virtual_bytes, total_pages * page_bytes);
  set(use.resident_bytes, resident_pages * page_bytes);
}

void measure_descriptors(ProcessUse& use) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    set(use.max_descriptors, limit.rlim_cur == RLIM_INFINITY ? 0 : limit.rlim_cur);
  std::error_code error;
  std::uint64_t open = 0;
  for (std::filesystem::directory_iterator each("/proc/self/fd", error), end; !error && each != end;
       each.increment(error))
    ++open;
  if (error == std::errc::too_many_files_open)
    set(use.open_descriptors, limit.rlim_cur);  // not even one for the list is left
  else if (!error && open > 0)
    set(use.open_descriptors, open - 1);  // without that of the list itself
}

}  // namespace

void measure_process(ProcessUse& use) {
  set(use.cpu_ns, read_clock(CLOCK_PROCESS_CPUTIME_ID));
  set(use.started_ns, started_ns());
  measure_memory(use);
  measure_descriptors(use);
}

}  // namespace sluice::segment
