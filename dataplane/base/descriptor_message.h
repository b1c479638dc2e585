// SPDX-License-Identifier: Apache-2.0
//
// A message over a UNIX socket that a file descriptor goes with (unix(7), SCM_RIGHTS). Calls the kernel; any thread.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <span>

namespace sluice {

/// As sendmsg(2), without SIGPIPE. `descriptor` stays the caller's; negative: none goes with it. `to`: null over a connected socket.
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
