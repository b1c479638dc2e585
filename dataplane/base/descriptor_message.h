// SPDX-License-Identifier: Apache-2.0
//
// Message over a UNIX socket with an attached file descriptor (unix(7), SCM_RIGHTS). Makes system calls; any
// thread.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace sluice {

/// Calls sendmsg(2) without SIGPIPE and returns its result. The caller keeps `descriptor`; negative: none is
/// sent. `to` is null on a connected socket.
inline ssize_t send_with_descriptor(int socket, std::span<const std::byte> bytes, int descriptor,
                                    sockaddr_un* to = nullptr) noexcept {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_name = to;
  message.msg_namelen = to != nullptr ? sizeof *to : 0;
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof descriptor)] = {};
  if (descriptor >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

}  // namespace sluice
