// SPDX-License-Identifier: Apache-2.0
#include "controlplane/onc_rpc/tcp_clients.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>
#include <vector>

#include "controlplane/onc_rpc/rpc_link.h"
#include "dataplane/base/net_address.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::onc_rpc {

TcpClients::TcpClients(std::vector<int> listeners, CallHandler& handler, ServerStatistics& statistics,
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

}  // namespace sluice::onc_rpc
