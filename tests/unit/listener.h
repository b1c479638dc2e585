// SPDX-License-Identifier: Apache-2.0
//
// Listening TCP sockets of tests. Several tests want the same port at two addresses of the host. The ports that the
// kernel gives to sockets by itself may be taken at the second address by any other program, so these are others.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "dataplane/tcp/sockets.h"

namespace sluice::lab {

inline constexpr std::uint32_t kFirstPort = 10'000;
inline constexpr std::uint32_t kPorts = 20'000;  ///< up to where net.ipv4.ip_local_port_range begins

/// A listening socket that does not block, or -1 if the port is taken.
inline int listen_at(const PeerAddress& here, std::uint16_t port) {
  sockaddr_storage address;
  const socklen_t bytes = tcp::socket_address(here, port, address);
  const int fd = ::socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 && ::listen(fd, 64) == 0) return fd;
  ::close(fd);
  return -1;
}

/// At a port that no other test uses; -1 if there is none.
inline int listen_anywhere(const PeerAddress& here) {
  static std::uint32_t next = static_cast<std::uint32_t>(::getpid()) * 97;  // tests run side by side
  for (std::uint32_t tries = 0; tries < kPorts; ++tries)
    if (const int fd = listen_at(here, static_cast<std::uint16_t>(kFirstPort + next++ % kPorts)); fd >= 0)
      return fd;
  return -1;
}

}  // namespace sluice::lab
