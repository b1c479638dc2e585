// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/ownership.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "dataplane/base/file_lock.h"
#include "dataplane/base/setup_error.h"

namespace sluice::segment {
namespace {

/// How often the file may be another one when it has been locked.
constexpr int kTries = 10;
constexpr std::chrono::milliseconds kLook{5};
/// The first layout whose planes hold locks.
constexpr std::uint32_t kFirstLayoutWithLocks = 18;

constexpr std::uint64_t turns_of(std::uint64_t owner) {
  return owner & 0xffffffff;
}
constexpr std::uint64_t without_turns(std::uint32_t epoch) {
  return std::uint64_t{epoch} << 32;
}
constexpr std::uint64_t lock_of(std::uint32_t epoch) {
  return kControlPlaneLocks + epoch;
}

std::string process(std::uint32_t pid) {
  return " (process " + std::to_string(pid) + ")";
}

[[noreturn]] void refuse_beside(std::uint32_t pid, const std::string& name) {
  throw SetupError("Another control plane" +
                   (pid == 0 ? std::string(" starts just now, and") : process(pid)) + " owns segment '" +
                   name + "': stop it first, or set another segment name.");
}

/// Of a file whose layout is another release's: magic, version and heartbeats are where ours are.
struct ForeignHead {
  std::uint64_t magic = 0;
  std::uint32_t layout_version = 0;
  struct Plane {
    std::uint32_t pid = 0;
    std::uint64_t beat_ns = 0;
    std::uint64_t owner = 0;
  };
  Plane control;
  Plane data;

  explicit ForeignHead(int fd) {
    get(fd, magic, offsetof(Layout, magic));
    if (magic != kMagic) return;
    get(fd, layout_version, offsetof(Layout, layout_version));
    read(fd, control, offsetof(Layout, control_plane));
    read(fd, data, offsetof(Layout, data_plane));
  }
  template <typename T>
  static void get(int fd, T& value, std::size_t at) {
    T got{};
    if (::pread(fd, &got, sizeof got, static_cast<off_t>(at)) == sizeof got) value = got;
  }
  static void read(int fd, Plane& plane, std::size_t at) {
    get(fd, plane.pid, at + offsetof(Heartbeat, pid));
    get(fd, plane.beat_ns, at + offsetof(Heartbeat, beat_ns));
    get(fd, plane.owner, at + offsetof(Heartbeat, owner));
  }
  /// Of a release without locks there is only the heartbeat.
  bool lives(const Plane& plane, bool locked) const {
    if (layout_version >= kFirstLayoutWithLocks) return locked;
    const std::uint64_t now_ns = monotonic_ns();
    return plane.pid != 0 && (now_ns < plane.beat_ns || now_ns - plane.beat_ns < kHeartbeatTimeoutNs);
  }
};

}  // namespace

/// An open file under /dev/shm.
struct ControlOwnership::File {
  explicit File(const std::string& file_path)
      : path(file_path), fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  /// Whether the path still leads to it.
  bool has_its_name() const {
    struct stat open {};
    struct stat named {};
    return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 && open.st_ino == named.st_ino &&
           open.st_dev == named.st_dev;
  }

  const std::string path;
  int fd;
};

ControlOwnership::ControlOwnership(const std::string& name) : name_(name) {
  const std::string path = Segment::path_of(name);
  for (int i = 0; i < kTries; ++i) {
    auto file = std::make_unique<File>(path);
    if (file->fd < 0 && errno != ENOENT)
      throw SetupError("Cannot use the shared segment " + path + " (" + std::strerror(errno) +
                       "): remove it if it is not another Sluice's, or set another segment name.");
    if (file->fd >= 0) {
      if (const std::string reason = why_untrusted(file->fd); !reason.empty())
        throw SetupError(std::string("The shared segment ")
                             .append(path)
                             .append(" cannot be used: ")
                             .append(reason)
                             .append(". Remove it, or set another segment name."));
      if (!reserve(file)) continue;
    }
    if (segment_ == nullptr) {
      segment_ = Segment::make(name);
      epoch_ = 1;
      file_lock::take(segment_->descriptor(), lock_of(epoch_));
    }
    return;
  }
  refuse_beside(0, name_);
}

/// False when it is no longer the file of that name: its user has replaced it. Otherwise the file is our segment, or
/// what take() replaces.
bool ControlOwnership::reserve(std::unique_ptr<File>& file) {
  const ForeignHead head(file->fd);
  const std::uint32_t epoch = epoch_of(head.control.owner);
  if (!file_lock::take(file->fd, lock_of(epoch + 1))) refuse_beside(0, name_);
  if (!file->has_its_name()) return false;
  if (!defect_of(file->fd).empty()) {
    check_other_layout(*file);
    replaced_ = std::move(file);
    return true;
  }
  segment_ = Segment::map(std::exchange(file->fd, -1));
  epoch_ = epoch + 1;
  // Whoever has moved the epoch meanwhile held this lock before us.
  if (epoch_of(layout().control_plane.owner.load()) != epoch) {
    segment_.reset();
    return false;
  }
  wait_for_predecessor();
  return true;
}

/// The data plane's lock is taken too, so that none starts with a file that is about to go.
void ControlOwnership::check_other_layout(const File& file) const {
  const ForeignHead head(file.fd);
  if (head.magic != kMagic) return;
  const std::uint32_t epoch = epoch_of(head.control.owner);
  if (head.lives(head.control, epoch != 0 && file_lock::taken_by_other(file.fd, lock_of(epoch))))
    throw SetupError("A control plane of another release" + process(head.control.pid) +
                     " owns the shared segment " + file.path + ": stop it first.");
  if (head.lives(head.data, !file_lock::take(file.fd, kDataPlaneLock)))
    throw SetupError("A data plane of another release" + process(head.data.pid) +
                     " works with the shared segment " + file.path +
                     ": stop it first, then start both planes of one release.");
}

/// Looks at its heart rather than at the clock: clocks differ between time namespaces.
void ControlOwnership::wait_for_predecessor() {
  const std::uint32_t predecessor = epoch_ - 1;
  const Heartbeat& heart = layout().control_plane;
  const std::uint64_t beats = heart.beats.load();
  const std::uint64_t since_ns = monotonic_ns();
  while (file_lock::taken_by_other(segment_->descriptor(), lock_of(predecessor))) {
    if (heart.beats.load() != beats) refuse_beside(heart.pid.load(), name_);
    if (monotonic_ns() - since_ns > kHeartbeatTimeoutNs) {
      stopped_ = predecessor;
      stopped_beats_ = beats;
      if (turns_of(heart.owner.load()) == 0) return;
      throw SetupError("The control plane" + process(heart.pid.load()) + " of segment '" + name_ +
                       "' stands still in the middle of its work: continue it, or end it (kill -KILL " +
                       std::to_string(heart.pid.load()) + ") and start this one again.");
    }
    std::this_thread::sleep_for(kLook);
  }
}

void ControlOwnership::take() {
  if (segment_->created())
    take_new();
  else
    take_shown();
}

void ControlOwnership::take_new() {
  layout().control_plane.owner = without_turns(epoch_);
  if (replaced_ && replaced_->has_its_name()) ::unlink(replaced_->path.c_str());
  if (!segment_->show(name_)) {
    layout().control_plane.owner = 0;
    refuse_beside(0, name_);
  }
  replaced_.reset();
}

void ControlOwnership::take_shown() {
  Heartbeat& heart = layout().control_plane;
  if (!file_lock::taken_by_other(segment_->descriptor(), lock_of(epoch_ - 1))) stopped_ = 0;
  std::uint64_t owner = heart.owner.load();
  // One that is gone may have left its turns.
  const auto may_take = [&] {
    return epoch_of(owner) + 1 == epoch_ &&
           (stopped_ == 0 || (turns_of(owner) == 0 && heart.beats.load() == stopped_beats_));
  };
  while (may_take())
    if (heart.owner.compare_exchange_weak(owner, without_turns(epoch_))) return;
  refuse_beside(heart.pid.load(), name_);
}

std::optional<ControlOwnership::Turn> ControlOwnership::enter() noexcept {
  std::atomic<std::uint64_t>& word = layout().control_plane.owner;
  std::uint64_t owner = word.load(std::memory_order_relaxed);
  while (epoch_of(owner) == epoch_)
    if (word.compare_exchange_weak(owner, owner + 1, std::memory_order_acquire)) return Turn(word);
  return std::nullopt;
}

ControlOwnership::~ControlOwnership() {
  if (const auto turn = enter()) layout().control_plane.pid = 0;
}

DataPlaneOwnership::DataPlaneOwnership(Segment& segment, const std::string& name) : segment_(segment) {
  Heartbeat& heart = segment.layout().data_plane;
  if (file_lock::take(segment.descriptor(), kDataPlaneLock)) {
    // The last beat of a predecessor that was killed may be a moment old, and this one does not serve yet.
    heart.pid = 0;
    return;
  }
  const bool beats = alive(heart, monotonic_ns());
  throw SetupError("Another data plane" + process(heart.pid.load()) + " serves segment '" + name + "'" +
                   (beats ? "" : ", and does not turn") + ": stop it first" +
                   (beats ? "" : " (kill -KILL, where it has been stopped by a signal)") +
                   ", or use another --segment.");
}

DataPlaneOwnership::~DataPlaneOwnership() {
  file_lock::give_back(segment_.descriptor(), kDataPlaneLock);
}

}  // namespace sluice::segment
