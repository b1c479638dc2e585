// SPDX-License-Identifier: Apache-2.0
#include "dataplane/tcp/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "dataplane/base/net_address.h"

namespace sluice::tcp {
namespace {

// Skips the lower ports, which well-known services use.
constexpr std::uint16_t kFirstPrivilegedPort = 665;
constexpr std::uint16_t kLastPrivilegedPort = kPrivilegedPortsEnd - 1;

constexpr PeerAddress any_address(int family) noexcept {
  return family == AF_INET ? PeerAddress::from_ipv4(0, 0, 0, 0) : PeerAddress{};
}

int bind_to(int socket, const PeerAddress& host, std::uint16_t port) noexcept {
  sockaddr_storage address;
  const socklen_t bytes = socket_address(host, port, address);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 ? 0 : -errno;
}

/// Each attempt starts behind the port of the last one, so that ports are reused as late as possible.
int bind_privileged(int socket, const PeerAddress& host) noexcept {
  static std::atomic<std::uint32_t> next{0};
  constexpr std::uint32_t kPorts = kLastPrivilegedPort - kFirstPrivilegedPort + 1;
  int error = 0;
  for (std::uint32_t i = 0; i < kPorts; ++i) {
    const auto port = static_cast<std::uint16_t>(kLastPrivilegedPort - next.fetch_add(1) % kPorts);
    error = bind_to(socket, host, port);
    if (error != -EADDRINUSE) break;
  }
  return error;
}

}  // namespace

socklen_t socket_address(const PeerAddress& host, std::uint16_t port, sockaddr_storage& address) noexcept {
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
  std::memcpy(&six.sin6_addr, host.bytes.data(), sizeof six.sin6_addr);
  std::memcpy(&address, &six, sizeof six);
  return sizeof six;
}

PeerAddress peer_address(const sockaddr_storage& address) noexcept {
  PeerAddress result;
  if (address.ss_family == AF_INET) {
    sockaddr_in four;
    std::memcpy(&four, &address, sizeof four);
    const std::uint32_t host = ntohl(four.sin_addr.s_addr);
    return PeerAddress::from_ipv4(static_cast<std::uint8_t>(host >> 24),
                                  static_cast<std::uint8_t>(host >> 16), static_cast<std::uint8_t>(host >> 8),
                                  static_cast<std::uint8_t>(host));
  }
  sockaddr_in6 six;
  std::memcpy(&six, &address, sizeof six);
  std::memcpy(result.bytes.data(), &six.sin6_addr, sizeof six.sin6_addr);
  return result;
}

int listening_socket(const sockaddr* address, socklen_t bytes) noexcept {
  const int fd = ::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address->sa_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (::bind(fd, address, bytes) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  return -error;
}

PeerAddress local_address(int socket) noexcept {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  return peer_address(address);
}

std::uint16_t local_port(int socket) noexcept {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  return port_of(address);
}

std::uint16_t port_of(const sockaddr_storage& address) noexcept {
  in_port_t port = 0;  // at the same offset in both families
  std::memcpy(&port, reinterpret_cast<const std::byte*>(&address) + offsetof(sockaddr_in, sin_port),
              sizeof port);
  return ntohs(port);
}

void tune(int fd, unsigned peer_timeout_ms) noexcept {
  const int on = 1;
  const int probe_after_s = static_cast<int>(peer_timeout_ms / 3000);
  const int probes = 2;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &probe_after_s, sizeof probe_after_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe_after_s, sizeof probe_after_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &peer_timeout_ms, sizeof peer_timeout_ms);
}

void reset(int fd) noexcept {
  const sockaddr none{.sa_family = AF_UNSPEC, .sa_data = {}};
  static_cast<void>(::connect(fd, &none, sizeof none));
}

int connecting_socket(int family, bool privileged, unsigned peer_timeout_ms,
                      const PeerAddress* from) noexcept {
  const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -errno;
  const int attempts = 3;
  tune(fd, peer_timeout_ms);
  ::setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &attempts, sizeof attempts);
  if (!privileged && from == nullptr) return fd;
  const PeerAddress host = from != nullptr ? *from : any_address(family);
  const int bound = privileged ? bind_privileged(fd, host) : bind_to(fd, host, 0);
  if (bound == 0) return fd;
  ::close(fd);
  return bound;
}

int bound_socket(int family, bool privileged, unsigned peer_timeout_ms, std::uint16_t port) noexcept {
  const int fd = connecting_socket(family, false, peer_timeout_ms);
  if (fd < 0) return fd;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const PeerAddress any = any_address(family);
  const int bound = privileged && port == 0 ? bind_privileged(fd, any) : bind_to(fd, any, port);
  if (bound == 0) return fd;
  ::close(fd);
  return bound;
}

}  // namespace sluice::tcp
