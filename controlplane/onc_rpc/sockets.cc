// SPDX-License-Identifier: Apache-2.0
//
// Sockets of a service, and calls over UDP.
#include "controlplane/onc_rpc/sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "dataplane/base/net_address.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::onc_rpc {
namespace {

constexpr int kBacklog = 64;
/// Retries with other ports, because a port that is free for one transport may be in use for another.
constexpr int kAttemptsForAnyPort = 16;

/// Returns a bound socket, or -errno.
int bound_socket(int family, int type, std::uint16_t port) {
  const int fd = ::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  const int on = 1;
  // This option would let another server share a UDP port.
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
                   "). " + advice);
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

namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(in6_pktinfo));

/// Source of a datagram, and the control message that selects the source address of the reply.
struct Route {
  sockaddr_storage peer{};
  socklen_t peer_bytes = 0;
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  std::size_t control_bytes = 0;
  PeerAddress local{};  ///< address that the call was sent to
};

template <typename Info>
void set_control(Route& route, int level, int type, const Info& info) {
  cmsghdr head{};
  head.cmsg_level = level;
  head.cmsg_type = type;
  head.cmsg_len = CMSG_LEN(sizeof info);
  std::memcpy(route.control.data(), &head, sizeof head);
  std::memcpy(route.control.data() + CMSG_LEN(0), &info, sizeof info);
  route.control_bytes = CMSG_SPACE(sizeof info);
}

void read_control(msghdr& message, Route& route) {
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_PKTINFO) {
      in_pktinfo info;
      std::memcpy(&info, CMSG_DATA(head), sizeof info);
      info.ipi_ifindex = 0;  // the route back may use another interface
      const auto* to = reinterpret_cast<const std::uint8_t*>(&info.ipi_addr);
      route.local = PeerAddress::from_ipv4(to[0], to[1], to[2], to[3]);
      return set_control(route, IPPROTO_IP, IP_PKTINFO, info);
    }
    if (head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(head), sizeof info);
      if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) info.ipi6_ifindex = 0;
      route.local.zone = info.ipi6_ifindex;
      std::memcpy(route.local.bytes.data(), &info.ipi6_addr, sizeof info.ipi6_addr);
      return set_control(route, IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
  }
}

void send(int socket, const Route& route, std::span<const std::byte> reply) {
  Route to = route;
  if (reply.empty()) return;
  iovec data{const_cast<std::byte*>(reply.data()), reply.size()};
  msghdr message{};
  message.msg_name = &to.peer;
  message.msg_namelen = to.peer_bytes;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (to.control_bytes > 0) {
    message.msg_control = to.control.data();
    message.msg_controllen = to.control_bytes;
  }
  ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);  // clients retransmit after a loss
}

}  // namespace

Datagrams::Datagrams(int socket, int family, CallHandler& handler) : socket_(socket), handler_(handler) {
  const int on = 1;
  if (family == AF_INET)
    ::setsockopt(socket, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  else
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
}

void Datagrams::poll(const PollSet& set, std::uint64_t now_ns) {
  if (set.events(place_) == 0) return;
  for (int i = 0; i < kDatagramsPerTurn && receive(now_ns); ++i) {
  }
}

bool Datagrams::receive(std::uint64_t now_ns) {
  std::array<std::byte, kMaxDatagramCallBytes> room;
  Route route;
  alignas(cmsghdr) std::array<char, 2 * kControlBytes> control{};
  iovec data{room.data(), room.size()};
  msghdr message{};
  message.msg_name = &route.peer;
  message.msg_namelen = sizeof route.peer;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t bytes = ::recvmsg(socket_, &message, MSG_DONTWAIT);
  if (bytes < 0) return false;
  route.peer_bytes = message.msg_namelen;
  read_control(message, route);
  const Asker asker{.address = tcp::peer_address(route.peer),
                    .now_ns = now_ns,
                    .connected = false,
                    .local = route.local,
                    .privileged = tcp::has_privileged_port(route.peer)};
  handler_.answer(
      std::span(room).first(static_cast<std::size_t>(bytes)), asker, kMaxDatagramBytes,
      [socket = socket_, route](std::span<const std::byte> reply) { send(socket, route, reply); });
  return true;
}

}  // namespace sluice::onc_rpc
