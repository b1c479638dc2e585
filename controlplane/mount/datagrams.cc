// SPDX-License-Identifier: Apache-2.0
#include "controlplane/mount/datagrams.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "dataplane/tcp/sockets.h"

namespace sluice::mount {
namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(sizeof(in6_pktinfo));

/// Where a call came from, and the control message that makes the reply leave from where the call went.
struct Route {
  sockaddr_storage peer{};
  socklen_t peer_bytes = 0;
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  std::size_t control_bytes = 0;
  PeerAddress local{};  ///< that the call went to
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
      info.ipi_ifindex = 0;  // the way back may be another
      const auto* to = reinterpret_cast<const std::uint8_t*>(&info.ipi_addr);
      route.local = PeerAddress::from_ipv4(to[0], to[1], to[2], to[3]);
      return set_control(route, IPPROTO_IP, IP_PKTINFO, info);
    }
    if (head->cmsg_level == IPPROTO_IPV6 && head->cmsg_type == IPV6_PKTINFO) {
      in6_pktinfo info;
      std::memcpy(&info, CMSG_DATA(head), sizeof info);
      if (!IN6_IS_ADDR_LINKLOCAL(&info.ipi6_addr)) info.ipi6_ifindex = 0;
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
  ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);  // one that is lost is asked for again
}

}  // namespace

Datagrams::Datagrams(int socket, int family, CallHandler& handler) : socket_(socket), handler_(handler) {
  const int on = 1;
  if (family == AF_INET)
    ::setsockopt(socket, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  else
    ::setsockopt(socket, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
}

void Datagrams::turn(const PollSet& set, std::uint64_t now_ns) {
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
  const Asker asker{
      .address = tcp::peer_address(route.peer), .now_ns = now_ns, .connected = false, .local = route.local};
  handler_.answer(
      std::span(room).first(static_cast<std::size_t>(bytes)), asker, kMaxDatagramBytes,
      [socket = socket_, route](std::span<const std::byte> reply) { send(socket, route, reply); });
  return true;
}

}  // namespace sluice::mount
