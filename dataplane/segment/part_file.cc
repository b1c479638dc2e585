// SPDX-License-Identifier: Apache-2.0
//
// The file of one part of the segment.
#include "dataplane/segment/part_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "dataplane/base/file_descriptor.h"
#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/sockets.h"
#include "dataplane/segment/channels.h"
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

namespace {

/// Returns nullopt if the path is too long.
std::optional<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

/// Ancillary data of one message: descriptors and the sender's credentials.
struct Ancillary {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * 4) + CMSG_SPACE(sizeof(ucred))];
};

/// Takes the first descriptor that came with a message and closes the others. Returns the sender's user if
/// the kernel reports it.
std::optional<uid_t> read_ancillary(msghdr& message, FileDescriptor& descriptor) {
  std::optional<uid_t> user;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(part), sizeof sender);
      user = sender.uid;
    } else if (part->cmsg_type == SCM_RIGHTS) {
      for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
        FileDescriptor taken(fd);
        if (!descriptor) descriptor = std::move(taken);
      }
    }
  }
  return user;
}

}  // namespace

int send_datagram(const std::string& path, std::span<const std::byte> bytes, int descriptor) {
  std::optional<sockaddr_un> address = address_of(path);
  if (!address) return ENAMETOOLONG;
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  return send_with_descriptor(socket.get(), bytes, descriptor, &*address) < 0 ? errno : 0;
}

DatagramInbox::DatagramInbox(std::string path, mode_t mode, uid_t control_plane_user)
    : path_(std::move(path)),
      control_plane_user_(control_plane_user),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const std::optional<sockaddr_un> address = address_of(path_);
  if (!address)
    throw SetupError("The path " + path_ +
                     " is too long for a socket. Give the segment a name of fewer than 80 bytes.");
  constexpr int kOn = 1;
  ::unlink(path_.c_str());
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0 ||
      ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      ::chmod(path_.c_str(), mode) != 0)
    throw SetupError(
        "Cannot create the socket " + path_ + " (" + std::strerror(errno) +
        "). Remove the file at this path, and let the data plane's user write to the directory.");
}

DatagramInbox::~DatagramInbox() {
  ::unlink(path_.c_str());
}

bool DatagramInbox::may_send(uid_t user) const {
  return user == 0 || user == ::geteuid() || user == control_plane_user_;
}

DatagramInbox::Got DatagramInbox::receive(std::span<std::byte> bytes, FileDescriptor& descriptor) {
  Ancillary ancillary;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof ancillary.bytes;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return Got::Nothing;
  descriptor.reset();
  const std::optional<uid_t> sender = read_ancillary(message, descriptor);
  static_cast<void>(SLUICE_INVARIANT(static_cast<std::size_t>(got) <= bytes.size(), buffer_bounds));
  const bool whole = static_cast<std::size_t>(got) == bytes.size() && (message.msg_flags & MSG_TRUNC) == 0;
  if (sender && may_send(*sender) && whole) return Got::Datagram;
  descriptor.reset();
  return Got::Dropped;
}

namespace {

/// Mode of the capture socket. Any process may send; DatagramInbox checks its credentials.
constexpr mode_t kCaptureMode = 0666;

}  // namespace

std::string capture_socket_of(const std::string& segment) {
  return base_path_of(segment) + ".capture";
}

std::string kept_socket_of(const std::string& segment) {
  return base_path_of(segment) + ".kept";
}

void send_capture_request(const std::string& path, const CaptureRequest& request, int descriptor) {
  const int error = send_datagram(path, std::as_bytes(std::span(&request, 1)), descriptor);
  if (error == 0) return;
  throw SetupError("The data plane does not accept the capture request at " + path + " (" +
                   std::strerror(error) + "). Check with 'sluicectl status' whether it runs.");
}

CaptureInbox::CaptureInbox(std::string path, uid_t control_plane_user)
    : inbox_(std::move(path), kCaptureMode, control_plane_user) {}

std::optional<CaptureInbox::Received> CaptureInbox::receive() {
  Received received;
  const auto got =
      inbox_.receive(std::as_writable_bytes(std::span(&received.request, 1)), received.descriptor);
  if (got != DatagramInbox::Got::Datagram || received.request.magic != kCaptureMagic) return std::nullopt;
  return received;
}

}  // namespace sluice::segment
