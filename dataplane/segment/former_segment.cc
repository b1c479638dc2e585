// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/former_segment.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>

#include "dataplane/base/file_lock.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/part_file.h"

namespace sluice::segment {
namespace {

constexpr std::uint64_t kFormerMagic = 0x736c756963653031;  // "sluice01"
/// The first layout whose planes hold locks.
constexpr std::uint32_t kFirstLayoutWithLocks = 18;
constexpr std::uint64_t kFormerDataPlaneLock = 0;
constexpr std::uint64_t kFormerControlPlaneLocks = 1;

/// Where they were in every one of these releases.
struct FormerHead {
  std::uint64_t magic;
  std::uint32_t layout_version;
  std::uint32_t counter_count;
  std::uint64_t total_bytes;
  Heartbeat control_plane;
  Heartbeat data_plane;
};

struct Plane {
  std::uint32_t pid = 0;
  std::uint64_t beat_ns = 0;
  std::uint64_t owner = 0;
};

template <typename T>
void get(int fd, T& value, std::size_t at) {
  T got{};
  if (::pread(fd, &got, sizeof got, static_cast<off_t>(at)) == sizeof got) value = got;
}

Plane plane_at(int fd, std::size_t at) {
  Plane plane;
  get(fd, plane.pid, at + offsetof(Heartbeat, pid));
  get(fd, plane.beat_ns, at + offsetof(Heartbeat, beat_ns));
  get(fd, plane.owner, at + offsetof(Heartbeat, owner));
  return plane;
}

/// Of a release without locks there is only the heartbeat.
bool lives(std::uint32_t layout, const Plane& plane, bool locked) {
  if (layout >= kFirstLayoutWithLocks) return locked;
  const std::uint64_t now_ns = monotonic_ns();
  return plane.pid != 0 && (now_ns < plane.beat_ns || now_ns - plane.beat_ns < kHeartbeatTimeoutNs);
}

std::string process(const Plane& plane) {
  return " (process " + std::to_string(plane.pid) + ")";
}

}  // namespace

std::optional<FormerSegment> FormerSegment::find(const std::string& segment) {
  std::string path = base_path_of(segment);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;  // whatever it is, no plane of ours has it
  FormerSegment found(std::move(path), fd);
  std::uint64_t magic = 0;
  get(fd, magic, offsetof(FormerHead, magic));
  if (!why_untrusted(fd, found.path_, false).empty() || magic != kFormerMagic) return std::nullopt;
  return found;
}

/// The data plane's lock is taken too, so that none starts with a file that is about to go.
void FormerSegment::check() const {
  const int fd = file_.get();
  std::uint32_t layout = 0;
  get(fd, layout, offsetof(FormerHead, layout_version));
  const Plane control = plane_at(fd, offsetof(FormerHead, control_plane));
  const Plane data = plane_at(fd, offsetof(FormerHead, data_plane));
  const auto epoch = epoch_of(control.owner);
  if (lives(layout, control, epoch != 0 && file_lock::taken_by_other(fd, kFormerControlPlaneLocks + epoch)))
    throw SetupError("A control plane of another release" + process(control) + " owns the shared segment " +
                     path_ + ": stop it first.");
  if (lives(layout, data, !file_lock::take(fd, kFormerDataPlaneLock)))
    throw SetupError("A data plane of another release" + process(data) + " works with the shared segment " +
                     path_ + ": stop it first, then start both planes of one release.");
}

void FormerSegment::remove() const noexcept {
  ::unlink(path_.c_str());
}

}  // namespace sluice::segment
