// SPDX-License-Identifier: Apache-2.0
//
// Listening TCP sockets of tests. Several tests require the same port at two addresses of the host. A port
// that the kernel selects may be in use at the second address, so these ports are outside the ephemeral
// range.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "dataplane/tcp/sockets.h"

namespace sluice::lab {

inline constexpr std::uint32_t kFirstPort = 10'000;
inline constexpr std::uint32_t kPorts = 20'000;  ///< up to the start of net.ipv4.ip_local_port_range

/// Returns a non-blocking listening socket, or -1 if the port is in use.
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

/// Returns a listening socket at a port that no other test uses, or -1 if no port is free.
inline int listen_anywhere(const PeerAddress& here) {
  static std::uint32_t next = static_cast<std::uint32_t>(::getpid()) * 97;  // tests run in parallel
  for (std::uint32_t tries = 0; tries < kPorts; ++tries)
    if (const int fd = listen_at(here, static_cast<std::uint16_t>(kFirstPort + next++ % kPorts)); fd >= 0)
      return fd;
  return -1;
}

}  // namespace sluice::lab
