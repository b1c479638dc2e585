// SPDX-License-Identifier: Apache-2.0
//
// Sockets of a service, its clients over TCP, and calls over UDP.
#include "controlplane/mount/sockets.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "controlplane/mount/datagrams.h"
#include "controlplane/mount/rpc_link.h"
#include "controlplane/mount/tcp_clients.h"
#include "dataplane/base/net_address.h"
#include "dataplane/base/network.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::mount {
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

TcpClients::TcpClients(std::vector<int> listeners, CallHandler& handler, MountStatistics& statistics,
                       std::size_t max_call_bytes)
    : listeners_(std::move(listeners)),
      places_(listeners_.size(), PollSet::kNowhere),
      handler_(handler),
      statistics_(statistics),
      max_call_bytes_(max_call_bytes) {}

TcpClients::~TcpClients() {
  for (const Client& client : clients_) ::close(client.fd);
}

std::uint64_t TcpClients::Client::deadline_ns() const {
  std::uint64_t deadline = PollSet::kNever;
  if (call_since_ns != 0) deadline = std::min(deadline, call_since_ns + kCallNs);
  if (reply_since_ns != 0) deadline = std::min(deadline, reply_since_ns + kReplyNs);
  if (idle()) deadline = std::min(deadline, idle_since_ns + kIdleClientNs);
  return deadline;
}

void TcpClients::prepare(PollSet& set) {
  const bool resting = now_ns_ < accept_after_ns_;
  if (resting) set.wake_at(accept_after_ns_);
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    places_[i] = resting ? PollSet::kNowhere : set.add(listeners_[i], POLLIN);
  for (Client& client : clients_) {
    const bool receives = client.takes_calls() && !client.closing;
    const int events = (receives ? POLLIN : 0) | (client.unsent.empty() ? 0 : POLLOUT);
    client.place = set.add(client.fd, static_cast<short>(events));
    const bool at_once = client.ended || client.finished() || (client.more && client.takes_calls());
    set.wake_at(at_once ? 0 : client.deadline_ns());
  }
}

void TcpClients::poll(const PollSet& set, std::uint64_t now_ns) {
  now_ns_ = now_ns;
  for (Client& client : clients_) {
    serve(client, set.events(client.place), now_ns);
    if (client.ended || now_ns < client.deadline_ns()) continue;
    count(statistics_.connections_overdue);
    client.ended = true;
  }
  std::erase_if(clients_, [](const Client& client) {
    if (client.ended) ::close(client.fd);
    return client.ended;
  });
  for (std::size_t i = 0; i < listeners_.size(); ++i)
    if (set.events(places_[i]) != 0) accept(listeners_[i], now_ns);
}

void TcpClients::accept(int listener, std::uint64_t now_ns) {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    sockaddr_storage from{};
    socklen_t bytes = sizeof from;
    const int fd =
        ::accept4(listener, reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        accept_after_ns_ = now_ns + kAcceptRestNs;
      return;
    }
    const PeerAddress address = tcp::peer_address(from);
    if (!make_room(address)) {
      count(statistics_.connections_refused);
      ::close(fd);
      continue;
    }
    count(statistics_.connections);
    tcp::tune(fd, tcp::kPeerTimeoutMs);
    Client& client = clients_.emplace_back(max_call_bytes_);
    client.number = ++last_number_;
    client.fd = fd;
    client.address = address;
    client.privileged = tcp::has_privileged_port(from);
    client.local = tcp::local_address(fd);
    client.idle_since_ns = now_ns;
  }
}

/// Makes room for a connection by evicting another one. If the network of the new client has used up its
/// share, an idle connection of that network is evicted. If all slots are in use, the victim is a connection
/// of the network with the most connections if that has more than the new client's network, even if it is not
/// idle; otherwise it is an idle connection. Returns false if there is no candidate.
bool TcpClients::make_room(const PeerAddress& address) {
  const std::size_t own = clients_of(address);
  const bool share_taken = own >= kMaxClientsOfNetwork;
  if (!share_taken && clients_.size() < kMaxClients) return true;
  std::size_t most = 0;
  for (const Client& client : clients_) most = std::max(most, clients_of(client.address));
  const auto may_go = [&](const Client& client) {
    if (share_taken) return client.idle() && network_of(client.address) == network_of(address);
    return most > own ? clients_of(client.address) == most : client.idle();
  };
  auto chosen = clients_.end();
  for (auto at = clients_.begin(); at != clients_.end(); ++at)
    if (may_go(*at) && (chosen == clients_.end() || at->rank() < chosen->rank())) chosen = at;
  if (chosen == clients_.end()) return false;
  count(statistics_.connections_replaced);
  ::close(chosen->fd);
  clients_.erase(chosen);
  return true;
}

std::size_t TcpClients::clients_of(const PeerAddress& address) const {
  return static_cast<std::size_t>(std::count_if(clients_.begin(), clients_.end(), [&](const Client& client) {
    return network_of(client.address) == network_of(address);
  }));
}

void TcpClients::serve(Client& client, short events, std::uint64_t now_ns) {
  if ((events & POLLOUT) != 0) send(client);
  if ((events & (POLLERR | POLLHUP)) != 0 && (events & POLLIN) == 0) client.ended = true;
  if ((events & POLLIN) != 0 && client.takes_calls()) receive(client);
  if (client.more && !client.ended) take_calls(client, now_ns);
  if (client.finished()) client.ended = true;
}

void TcpClients::receive(Client& client) {
  const std::span<std::byte> room = client.stream.room();
  const ssize_t bytes = ::recv(client.fd, room.data(), room.size(), 0);
  if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (bytes < 0) client.ended = true;
  if (bytes == 0) client.closing = true;  // the client may still read
  if (bytes <= 0) return;
  client.stream.received(static_cast<std::size_t>(bytes));
  client.more = true;
}

void TcpClients::take_calls(Client& client, std::uint64_t now_ns) {
  for (int i = 0; client.takes_calls() && !client.ended; ++i) {
    if (i == kCallsPerTurn) return;
    switch (client.stream.next()) {
      case tcp::RecordStream::Step::Record:
        client.call_since_ns = 0;
        take_call(client, now_ns);
        break;
      case tcp::RecordStream::Step::NeedBytes:
        client.more = false;
        client.idle_since_ns = now_ns;
        if (!client.stream.in_record())
          client.call_since_ns = 0;
        else if (client.call_since_ns == 0)
          client.call_since_ns = now_ns;
        return;
      default:  // longer than any call, or too many fragments
        count(statistics_.records_too_long);
        client.ended = true;
    }
  }
}

void TcpClients::take_call(Client& client, std::uint64_t now_ns) {
  ++client.waiting;
  const Asker asker{.address = client.address,
                    .now_ns = now_ns,
                    .connected = true,
                    .local = client.local,
                    .privileged = client.privileged};
  const std::uint64_t number = client.number;
  const bool called =
      handler_.answer(client.stream.record(), asker, kMaxReplyBytes,
                      [this, number](std::span<const std::byte> message) { reply(number, message); });
  if (!called) client.ended = true;
}

/// Sends a reply. Ignores replies to clients that have disconnected.
void TcpClients::reply(std::uint64_t number, std::span<const std::byte> message) {
  const auto at = std::find_if(clients_.begin(), clients_.end(),
                               [&](const Client& client) { return client.number == number; });
  if (at == clients_.end()) return;
  Client& client = *at;
  --client.waiting;
  if (message.empty()) {
    client.ended = true;
    return;
  }
  constexpr std::uint32_t kLastFragment = 1u << 31;
  std::array<std::byte, xdr::kUnit> mark;
  xdr::store_u32(mark.data(), kLastFragment | static_cast<std::uint32_t>(message.size()));
  if (client.unsent.empty()) client.reply_since_ns = now_ns_;
  client.unsent.insert(client.unsent.end(), mark.begin(), mark.end());
  client.unsent.insert(client.unsent.end(), message.begin(), message.end());
  client.idle_since_ns = now_ns_;
  send(client);
}

void TcpClients::send(Client& client) {
  while (client.sent < client.unsent.size()) {
    const ssize_t bytes = ::send(client.fd, client.unsent.data() + client.sent,
                                 client.unsent.size() - client.sent, MSG_NOSIGNAL);
    if (bytes < 0) {
      if (errno != EAGAIN && errno != EINTR) client.ended = true;
      return;
    }
    client.sent += static_cast<std::size_t>(bytes);
  }
  client.unsent.clear();
  client.unsent.shrink_to_fit();
  client.sent = 0;
  client.reply_since_ns = 0;
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

}  // namespace sluice::mount
