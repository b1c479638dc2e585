// SPDX-License-Identifier: Apache-2.0
//
// Addresses of sockets, and messages over a UNIX socket with an attached file descriptor. Makes system calls;
// any thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "dataplane/base/net_address.h"

namespace sluice {

/// Fills `address` with `host`'s family, address, zone and `port`; returns its size in bytes.
inline socklen_t socket_address(const PeerAddress& host, std::uint16_t port,
                                sockaddr_storage& address) noexcept {
  address = {};
  if (is_mapped_ipv4(host)) {
    sockaddr_in four{};
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    std::memcpy(&four.sin_addr, &host.bytes[12], sizeof four.sin_addr);
    std::memcpy(&address, &four, sizeof four);
    return sizeof four;
  }
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  six.sin6_scope_id = host.zone;
  std::memcpy(&six.sin6_addr, host.bytes.data(), sizeof six.sin6_addr);
  std::memcpy(&address, &six, sizeof six);
  return sizeof six;
}

/// Returns the host of a socket address; all zero if the address has another family.
inline PeerAddress peer_address(const sockaddr_storage& address) noexcept {
  PeerAddress result;
  if (address.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &address, sizeof four);
    const std::uint32_t host = ntohl(four.sin_addr.s_addr);
    return PeerAddress::from_ipv4(static_cast<std::uint8_t>(host >> 24),
                                  static_cast<std::uint8_t>(host >> 16), static_cast<std::uint8_t>(host >> 8),
                                  static_cast<std::uint8_t>(host));
  }
  if (address.ss_family != AF_INET6) return result;
  sockaddr_in6 six;
  std::memcpy(&six, &address, sizeof six);
  std::memcpy(result.bytes.data(), &six.sin6_addr, sizeof six.sin6_addr);
  result.zone = six.sin6_scope_id;
  return result;
}

/// Sends a message with an attached file descriptor (unix(7), SCM_RIGHTS): calls sendmsg(2) without SIGPIPE
/// and returns its result. The caller keeps `descriptor`; negative: none is sent. `to` is null on a connected
/// socket.
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
