// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/capture_channel.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dataplane/segment/part_file.h"

namespace sluice::segment {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw SetupError("The path " + path +
                     " is too long for a socket: give the segment a name of fewer than 80 bytes.");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

/// Ancillary data of one message: descriptors and the sender's credentials.
struct Ancillary {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int) * 4) + CMSG_SPACE(sizeof(ucred))];
};

/// Takes the first descriptor that came with a message and closes the others. The sender's user, if the kernel says it.
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

std::string capture_socket_of(const std::string& segment) {
  return base_path_of(segment) + ".capture";
}

void send_capture_request(const std::string& path, const CaptureRequest& request, int descriptor) {
  sockaddr_un address = address_of(path);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  iovec bytes{const_cast<CaptureRequest*>(&request), sizeof request};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = sizeof address;
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof descriptor)] = {};
  if (descriptor >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  }
  if (socket && ::sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof request))
    return;
  throw SetupError("The data plane takes no request for a capture at " + path + " (" + std::strerror(errno) +
                   "): is it running ('sluicectl status')?");
}

CaptureInbox::CaptureInbox(std::string path, uid_t control_plane_user)
    : path_(std::move(path)),
      control_plane_user_(control_plane_user),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  const sockaddr_un address = address_of(path_);
  constexpr int kOn = 1;
  ::unlink(path_.c_str());
  // Any process may send; receive() looks at its credentials.
  if (!socket_ || ::setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0 ||
      ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path_.c_str(), 0666) != 0)
    throw SetupError("Cannot make the socket " + path_ + " for captures (" + std::strerror(errno) +
                     "): remove what is there, and let the data plane's user write to that directory.");
}

CaptureInbox::~CaptureInbox() {
  ::unlink(path_.c_str());
}

bool CaptureInbox::may_ask(uid_t user) const {
  return user == 0 || user == ::geteuid() || user == control_plane_user_;
}

std::optional<CaptureInbox::Received> CaptureInbox::receive() {
  Received received;
  Ancillary ancillary;
  iovec bytes{&received.request, sizeof received.request};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes;
  message.msg_controllen = sizeof ancillary.bytes;
  const ssize_t got = ::recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return std::nullopt;
  const std::optional<uid_t> sender = read_ancillary(message, received.descriptor);
  const bool whole =
      got == static_cast<ssize_t>(sizeof received.request) && (message.msg_flags & MSG_TRUNC) == 0;
  if (!sender || !may_ask(*sender) || !whole || received.request.magic != kCaptureMagic) return std::nullopt;
  return received;
}

}  // namespace sluice::segment
