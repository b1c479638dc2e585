// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dataplane/base/net_address.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::mount {
namespace {

constexpr int kBacklog = 64;
/// A port that is free for one transport may be taken for another.
constexpr int kAttemptsForAnyPort = 16;

/// -errno if it cannot be had.
int bound_socket(int family, int type, std::uint16_t port) {
  const int fd = ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  // With UDP it would let another server share the port.
  if (type == SOCK_STREAM) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  sockaddr_storage address;
  const PeerAddress any = family == AF_INET ? PeerAddress::from_ipv4(0, 0, 0, 0) : PeerAddress{};
  const socklen_t bytes = tcp::socket_address(any, port, address);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0 &&
      (type == SOCK_DGRAM || ::listen(fd, kBacklog) == 0))
    return fd;
  const int error = errno;
  ::close(fd);
  return -error;
}

}  // namespace

const char* Sockets::Socket::netid() const {
  if (family == AF_INET) return tcp ? "tcp" : "udp";
  return tcp ? "tcp6" : "udp6";
}

std::string Sockets::Socket::universal_address(std::uint16_t port) const {
  return sluice::universal_address(family == AF_INET ? PeerAddress::from_ipv4(0, 0, 0, 0) : PeerAddress{},
                                   port);
}

Sockets::Sockets(std::uint16_t port, Transports transports, const std::string& what,
                 const std::string& advice) {
  int error = 0;
  for (int attempt = 0; attempt < (port == 0 ? kAttemptsForAnyPort : 1); ++attempt) {
    error = bind_all(port, transports);
    if (error == 0) return;
    close_all();
    if (error != EADDRINUSE) break;
  }
  throw SetupError("Cannot serve " + what + " on port " + std::to_string(port) + " (" + std::strerror(error) +
                   "): " + advice);
}

Sockets::~Sockets() {
  close_all();
}

int Sockets::bind_all(std::uint16_t port, Transports transports) {
  port_ = port;
  for (const int family : {AF_INET, AF_INET6})
    for (const int type : {SOCK_STREAM, SOCK_DGRAM}) {
      if (type == SOCK_DGRAM && transports == Transports::Tcp) continue;
      const int fd = bound_socket(family, type, port_);
      if (family == AF_INET6 && (fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL)) return 0;
      if (fd < 0) return -fd;
      all_.push_back({fd, family, type == SOCK_STREAM});
      if (port_ == 0) port_ = tcp::local_port(fd);
    }
  return 0;
}

void Sockets::close_all() {
  for (const Socket& socket : all_) ::close(socket.fd);
  all_.clear();
}

std::vector<int> Sockets::listeners() const {
  std::vector<int> found;
  for (const Socket& socket : all_)
    if (socket.tcp) found.push_back(socket.fd);
  return found;
}

}  // namespace sluice::mount
