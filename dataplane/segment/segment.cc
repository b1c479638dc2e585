// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/segment.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>

#include "dataplane/base/setup_error.h"
#include "dataplane/segment/version.h"

namespace sluice::segment {
namespace {

struct File {
  int fd;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
};

Layout* map(int fd) {
  void* memory = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    throw SetupError(std::string("Cannot map the shared segment (") + std::strerror(errno) + ").");
  return static_cast<Layout*>(memory);
}

/// Why this /dev/shm file must not be used, or empty. /dev/shm is world-writable.
std::string why_untrusted(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return "it is not a file";
  if (status.st_uid == 0 || status.st_uid == ::geteuid()) return {};
  return "it belongs to user " + std::to_string(status.st_uid);
}

/// Process id of a live data plane that uses the file, whatever its layout version; zero: none.
std::uint32_t live_data_plane(int fd) {
  std::array<std::byte, sizeof(Heartbeat)> head;
  std::uint64_t magic = 0;
  if (::pread(fd, &magic, sizeof magic, 0) != sizeof magic || magic != kMagic) return 0;
  if (::pread(fd, head.data(), head.size(), offsetof(Layout, data_plane)) !=
      static_cast<ssize_t>(head.size()))
    return 0;
  std::uint32_t pid;
  std::memcpy(&pid, head.data() + offsetof(Heartbeat, pid), sizeof pid);
  std::uint64_t beat_ns;
  std::memcpy(&beat_ns, head.data() + offsetof(Heartbeat, beat_ns), sizeof beat_ns);
  const std::uint64_t now_ns = monotonic_ns();
  const bool beats = now_ns < beat_ns || now_ns - beat_ns < kHeartbeatTimeoutNs;
  return pid != 0 && beats && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM) ? pid : 0;
}

/// Why this file is not a usable segment, or empty.
std::string defect_of(int fd) {
  if (std::string reason = why_untrusted(fd); !reason.empty()) return reason;
  struct stat status {};
  if (::fstat(fd, &status) != 0 || status.st_size != static_cast<off_t>(sizeof(Layout)))
    return "it has another size";
  std::array<std::byte, 24> head;
  if (::pread(fd, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
    return "it cannot be read";
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t counters;
  std::memcpy(&magic, head.data(), sizeof magic);
  std::memcpy(&version, head.data() + 8, sizeof version);
  std::memcpy(&counters, head.data() + 12, sizeof counters);
  if (magic != kMagic) return "it is not a Sluice segment";
  if (version != kLayoutVersion || counters != kCounterCount) return "it has another layout";
  return {};
}

/// All of it now: memory that is missing later would end whoever touches it.
void allocate(int fd, const std::string& file, const std::string& path) {
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(sizeof(Layout)));
  if (error == 0) return;
  ::unlink(file.c_str());
  constexpr std::size_t kMiB = 1u << 20;
  throw SetupError("Cannot allocate the shared segment " + path + " (" + std::strerror(error) +
                   "): /dev/shm needs " + std::to_string((sizeof(Layout) + kMiB - 1) / kMiB) +
                   " MiB of free space, which a container is given as its shm size.");
}

}  // namespace

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
  const auto pid = static_cast<pid_t>(heartbeat.pid.load(std::memory_order_acquire));
  if (pid == 0 || heartbeat_age_ns(heartbeat, monotonic_now_ns) > kHeartbeatTimeoutNs) return false;
  return ::kill(pid, 0) == 0 || errno == EPERM;
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

std::unique_ptr<Segment> Segment::open_or_create(const std::string& name) {
  const std::string path = path_of(name);
  {
    const File existing{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
    if (existing.fd < 0 && errno != ENOENT)
      throw SetupError("Cannot use the shared segment " + path + " (" + std::strerror(errno) +
                       "): remove it if it is not another Sluice's, or set another segment name.");
    if (existing.fd >= 0 && defect_of(existing.fd).empty())
      return std::unique_ptr<Segment>(new Segment(map(existing.fd), false));
    if (existing.fd >= 0) {
      if (const std::string reason = why_untrusted(existing.fd); !reason.empty())
        throw SetupError("The shared segment " + path + " cannot be used: " + reason +
                         ". Remove it, or set another segment name.");
      if (const std::uint32_t pid = live_data_plane(existing.fd); pid != 0)
        throw SetupError("A data plane of another release (process " + std::to_string(pid) +
                         ") works with the shared segment " + path +
                         ": stop it first, then start both planes of one release.");
    }
  }
  // Created under a temporary name and renamed, so that no process ever sees a segment without its header.
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const File file{::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0660)};
  if (file.fd < 0)
    throw SetupError("Cannot create the shared segment " + path + " (" + std::strerror(errno) +
                     "): /dev/shm has to be writable for this user.");
  allocate(file.fd, fresh, path);
  std::unique_ptr<Segment> segment(new Segment(map(file.fd), true));
  Layout& layout = segment->layout();
  layout.layout_version = kLayoutVersion;
  layout.counter_count = kCounterCount;
  layout.total_bytes = sizeof(Layout);
  layout.magic = kMagic;
  if (::rename(fresh.c_str(), path.c_str()) != 0)
    throw SetupError("Cannot rename the shared segment to " + path + " (" + std::strerror(errno) + ").");
  return segment;
}

std::unique_ptr<Segment> Segment::attach(const std::string& name) {
  const std::string path = path_of(name);
  const File file{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0)
    throw SetupError("There is no shared segment " + path + " (" + std::strerror(errno) +
                     "): start sluice-controlplane first, with the same segment name.");
  const std::string defect = defect_of(file.fd);
  if (!defect.empty())
    throw SetupError("The shared segment " + path + " cannot be used: " + defect +
                     ". Stop both planes, remove the file and start both planes of one release.");
  return std::unique_ptr<Segment>(new Segment(map(file.fd), false));
}

void Segment::remove(const std::string& name) noexcept {
  ::unlink(path_of(name).c_str());
}

Segment::~Segment() {
  ::munmap(layout_, sizeof(Layout));
}

}  // namespace sluice::segment
