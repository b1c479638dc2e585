// SPDX-License-Identifier: Apache-2.0
#include "dataplane/service/forward/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "dataplane/rpcrdma/netid.h"

namespace sluice::forward {
namespace {

// Above those that services of old are at.
constexpr std::uint16_t kFirstPrivilegedPort = 665;
constexpr std::uint16_t kLastPrivilegedPort = 1023;

/// Each attempt begins behind where the last one ended, so that a port is used again as late as can be.
int bind_privileged(int socket, int family) noexcept {
  static std::atomic<std::uint32_t> next{0};
  constexpr std::uint32_t kPorts = kLastPrivilegedPort - kFirstPrivilegedPort + 1;
  int error = 0;
  for (std::uint32_t i = 0; i < kPorts; ++i) {
    const auto port = static_cast<std::uint16_t>(kLastPrivilegedPort - next.fetch_add(1) % kPorts);
    sockaddr_in four{};
    sockaddr_in6 six{};
    const sockaddr* address = reinterpret_cast<const sockaddr*>(&four);
    socklen_t bytes = sizeof four;
    four.sin_family = AF_INET;
    four.sin_port = htons(port);
    if (family == AF_INET6) {
      six.sin6_family = AF_INET6;
      six.sin6_port = htons(port);
      address = reinterpret_cast<const sockaddr*>(&six);
      bytes = sizeof six;
    }
    if (::bind(socket, address, bytes) == 0) return 0;
    error = errno;
    if (error != EADDRINUSE) break;
  }
  return -error;
}

}  // namespace

socklen_t socket_address(const rdma::PeerAddress& host, std::uint16_t port,
                         sockaddr_storage& address) noexcept {
  address = {};
  if (rpcrdma::is_mapped_ipv4(host)) {
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
  std::memcpy(&six.sin6_addr, host.bytes.data(), sizeof six.sin6_addr);
  std::memcpy(&address, &six, sizeof six);
  return sizeof six;
}

int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms) noexcept {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  const int probe_after_s = static_cast<int>(peer_timeout_ms / 3000);
  const int probes = 2;
  const int attempts = 3;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_after_s, sizeof probe_after_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_after_s, sizeof probe_after_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &peer_timeout_ms, sizeof peer_timeout_ms);
  ::setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &attempts, sizeof attempts);
  if (!privileged) return fd;
  const int bound = bind_privileged(fd, family);
  if (bound == 0) return fd;
  ::close(fd);
  return bound;
}

}  // namespace sluice::forward
