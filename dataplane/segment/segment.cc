// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "dataplane/base/file_lock.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/ownership.h"
#include "dataplane/segment/version.h"

namespace sluice::segment {
namespace {

/// Owns a descriptor.
struct File {
  int fd;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  int release() { return std::exchange(fd, -1); }
};

/// All of it now: memory that is missing later would end whoever touches it.
void allocate(int fd, const std::string& path) {
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(sizeof(Layout)));
  if (error == 0) return;
  constexpr std::size_t kMiB = 1u << 20;
  throw SetupError("Cannot allocate the shared segment " + path + " (" + std::strerror(error) +
                   "): /dev/shm needs " + std::to_string((sizeof(Layout) + kMiB - 1) / kMiB) +
                   " MiB of free space, which a container is given as its shm size.");
}

Layout* memory_of(int fd) {
  void* memory = ::mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED)
    throw SetupError(std::string("Cannot map the shared segment (") + std::strerror(errno) + ").");
  return static_cast<Layout*>(memory);
}

}  // namespace

std::string why_untrusted(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return "it is not a file";
  if (status.st_uid == 0 || status.st_uid == ::geteuid()) return {};
  return "it belongs to user " + std::to_string(status.st_uid);
}

std::string defect_of(int descriptor) {
  if (std::string reason = why_untrusted(descriptor); !reason.empty()) return reason;
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size != static_cast<off_t>(sizeof(Layout)))
    return "it has another size";
  std::array<std::byte, 24> head;
  if (::pread(descriptor, head.data(), head.size(), 0) != static_cast<ssize_t>(head.size()))
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

std::unique_ptr<Segment> Segment::make(const std::string& name) {
  // Without a name: nobody sees a segment that is not complete, and a process that ends here leaves nothing.
  File file{::open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0660)};
  if (file.fd < 0)
    throw SetupError("Cannot create the shared segment " + path_of(name) + " (" + std::strerror(errno) +
                     "): /dev/shm has to be a tmpfs that is writable for this user.");
  allocate(file.fd, path_of(name));
  Layout* const layout = memory_of(file.fd);
  layout->layout_version = kLayoutVersion;
  layout->counter_count = kCounterCount;
  layout->total_bytes = sizeof(Layout);
  layout->magic = kMagic;
  return std::unique_ptr<Segment>(new Segment(layout, file.release(), true));
}

bool Segment::show(const std::string& name) {
  const std::string anonymous = "/proc/self/fd/" + std::to_string(descriptor_);
  const std::string path = path_of(name);
  if (::linkat(AT_FDCWD, anonymous.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
  if (errno == EEXIST) return false;
  throw SetupError("Cannot create the shared segment " + path + " (" + std::strerror(errno) +
                   "): /dev/shm has to be writable for this user, and /proc mounted.");
}

std::unique_ptr<Segment> Segment::map(int descriptor) {
  File file{descriptor};
  Layout* const layout = memory_of(descriptor);
  return std::unique_ptr<Segment>(new Segment(layout, file.release(), false));
}

std::unique_ptr<Segment> Segment::open_or_create(const std::string& name) {
  auto made = make(name);
  if (made->show(name)) return made;
  return attach(name);
}

std::unique_ptr<Segment> Segment::attach(const std::string& name) {
  const std::string path = path_of(name);
  File file{::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW)};
  if (file.fd < 0)
    throw SetupError("There is no shared segment " + path + " (" + std::strerror(errno) +
                     "): start sluice-controlplane first, with the same segment name.");
  const std::string defect = defect_of(file.fd);
  if (!defect.empty())
    throw SetupError("The shared segment " + path + " cannot be used: " + defect +
                     ". Stop both planes, remove the file and start both planes of one release.");
  return map(file.release());
}

void Segment::remove(const std::string& name) noexcept {
  ::unlink(path_of(name).c_str());
}

bool Segment::data_plane_runs() const noexcept {
  return file_lock::taken_by_other(descriptor_, kDataPlaneLock);
}

Segment::~Segment() {
  ::munmap(layout_, sizeof(Layout));
  ::close(descriptor_);
}

}  // namespace sluice::segment
