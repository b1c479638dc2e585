// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/channels.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/sockets.h"
#include "dataplane/segment/part_file.h"

namespace sluice::segment {
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
