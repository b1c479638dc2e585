// SPDX-License-Identifier: Apache-2.0
//
// The file of one part of the segment.
#include "dataplane/segment/part_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/segment/heartbeat.h"
#include "dataplane/segment/layout.h"

namespace sluice::segment {
namespace {

constexpr mode_t kMode = 0640;

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

/// Allocates all memory of the file now: a page that cannot be allocated later would end the process that
/// touches it.
void allocate(int fd, std::size_t bytes, const std::string& path) {
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  if (error == 0) return;
  constexpr std::size_t kMiB = 1u << 20;
  throw SetupError("Cannot allocate the shared segment " + path + " (" + std::strerror(error) +
                   "): " + folder_of(path) + " needs " + std::to_string((bytes + kMiB - 1) / kMiB) +
                   " MiB of free space. In a container the shm size limits /dev/shm.");
}

/// Returns whether other users can create no file in the folder.
bool is_guarded(const std::string& folder) {
  struct stat status {};
  return ::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && (status.st_mode & S_IWOTH) == 0 &&
         (status.st_uid == 0 || status.st_uid == ::geteuid());
}

template <typename T>
void get(int fd, T& value, std::size_t at) {
  T got{};
  if (::pread(fd, &got, sizeof got, static_cast<off_t>(at)) == sizeof got) value = got;
}

}  // namespace

std::size_t bytes_of(Part part) noexcept {
  return part == Part::Control ? sizeof(ControlPart) : sizeof(DataPart);
}

std::string base_path_of(const std::string& segment) {
  return segment.starts_with('/') ? segment : "/dev/shm/" + segment;
}

std::string path_of(const std::string& segment, Part part) {
  return base_path_of(segment) + (part == Part::Control ? ".control" : ".data");
}

std::optional<PartFile> PartFile::open(const std::string& segment, Part part, Access access) {
  std::string path = path_of(segment, part);
  const int mode = access == Access::Write ? O_RDWR : O_RDONLY;
  const int fd = ::open(path.c_str(), mode | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd >= 0) return PartFile(std::move(path), part, access, fd);
  if (errno == ENOENT) return std::nullopt;
  throw SetupError("Cannot use the shared segment " + path + " (" + std::strerror(errno) +
                   "). Remove it if no other Sluice uses it, or set another segment name.");
}

PartFile PartFile::make(const std::string& segment, Part part) {
  std::string path = path_of(segment, part);
  const std::string folder = folder_of(path);
  // The file has no name yet, so no process sees an incomplete segment, and a process that ends here leaves
  // nothing behind.
  PartFile file(path, part, Access::Write, ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
  if (!file.file_)
    throw SetupError("Cannot create the shared segment " + path + " (" + std::strerror(errno) +
                     "): " + folder + " has to be a folder on a tmpfs that this user can write to.");
  allocate(file.descriptor(), bytes_of(part), path);
  void* const memory =
      ::mmap(nullptr, sizeof(PartHead), PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (memory == MAP_FAILED)
    throw SetupError(std::string("Cannot map the shared segment (") + std::strerror(errno) + ").");
  auto* const head = static_cast<PartHead*>(memory);
  static_cast<void>(SLUICE_INVARIANT(bytes_of(part) >= sizeof(PartHead), buffer_bounds));
  head->layout_version = kLayoutVersion;
  head->part = part;
  head->total_bytes = bytes_of(part);
  head->sections = sections_of(part);
  head->magic = kMagic;
  ::munmap(memory, sizeof(PartHead));
  return file;
}

bool PartFile::show() {
  static_cast<void>(SLUICE_INVARIANT(writable() && descriptor() >= 0, segment_state));
  const std::string anonymous = "/proc/self/fd/" + std::to_string(descriptor());
  if (::linkat(AT_FDCWD, anonymous.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) == 0) return true;
  if (errno == EEXIST) return false;
  throw SetupError("Cannot create the shared segment " + path_ + " (" + std::strerror(errno) + "): " +
                   folder_of(path_) + " has to be writable for this user, and /proc has to be mounted.");
}

void PartFile::unlink() noexcept {
  if (has_its_name()) ::unlink(path_.c_str());
}

bool PartFile::has_its_name() const noexcept {
  static_cast<void>(SLUICE_INVARIANT(descriptor() >= 0, segment_state));
  struct stat open {};
  struct stat named {};
  return ::fstat(descriptor(), &open) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

bool PartFile::is_same_as(const PartFile& other) const noexcept {
  static_cast<void>(SLUICE_INVARIANT(descriptor() >= 0 && other.descriptor() >= 0, segment_state));
  struct stat mine {};
  struct stat its {};
  return ::fstat(descriptor(), &mine) == 0 && ::fstat(other.descriptor(), &its) == 0 &&
         mine.st_ino == its.st_ino && mine.st_dev == its.st_dev;
}

uid_t PartFile::user() const noexcept {
  struct stat status {};
  return ::fstat(descriptor(), &status) == 0 ? status.st_uid : 0;
}

/// Accepts a file of another plane's user only to read it, and only in a folder in which other users cannot
/// create files, which /dev/shm is not.
std::string PartFile::why_untrusted() const {
  struct stat status {};
  if (::fstat(descriptor(), &status) != 0 || !S_ISREG(status.st_mode)) return "it is not a file";
  if (status.st_uid == 0 || status.st_uid == ::geteuid()) return {};
  if (access_ == Access::Read && is_guarded(folder_of(path_))) return {};
  return "it belongs to user " + std::to_string(status.st_uid);
}

std::string PartFile::defect() const {
  if (std::string reason = why_untrusted(); !reason.empty()) return reason;
  struct stat status {};
  if (::fstat(descriptor(), &status) != 0) return "it is not a file";
  const Head its = head();
  std::uint32_t part = 0;
  get(descriptor(), part, offsetof(PartHead, part));
  if (its.magic != kMagic || part != static_cast<std::uint32_t>(part_)) return "it is not a Sluice segment";
  if (its.layout_version != kLayoutVersion) return "it has another layout";
  std::array<Section, kMaxSections> sections{};
  get(descriptor(), sections, offsetof(PartHead, sections));
  return difference(part_, sections, static_cast<std::uint64_t>(status.st_size));
}

PartFile::Head PartFile::head() const noexcept {
  static_cast<void>(SLUICE_INVARIANT(descriptor() >= 0, segment_state));
  Head head;
  get(descriptor(), head.magic, offsetof(PartHead, magic));
  get(descriptor(), head.layout_version, offsetof(PartHead, layout_version));
  get(descriptor(), head.pid, offsetof(PartHead, plane) + offsetof(Heartbeat, pid));
  get(descriptor(), head.owner, offsetof(PartHead, plane) + offsetof(Heartbeat, owner));
  get(descriptor(), head.beats, offsetof(PartHead, plane) + offsetof(Heartbeat, beats));
  return head;
}

}  // namespace sluice::segment
