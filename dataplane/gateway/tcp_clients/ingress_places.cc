// SPDX-License-Identifier: Apache-2.0
//
// This file accepts TCP clients, and evicts a client for a newcomer while all places are in use.
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "dataplane/gateway/tcp_clients/ingress.h"
#include "dataplane/gateway/tcp_clients/listener.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::tcp_clients {

bool Ingress::is_allowed(const PeerAddress& peer) const noexcept {
  return allowed_.empty() || std::any_of(allowed_.begin(), allowed_.end(), [&](const auto& prefix) {
           return peer.within(prefix.address, prefix.prefix_bits);
         });
}

/// Accepts a client if a place is free. If none is free, accepts a newcomer only if a client can be evicted
/// and no other reactor has a free place. Otherwise the newcomer waits in the backlog of the listener.
void Ingress::accept() noexcept {
  if (newcomer_.socket >= 0 && !free_clients_.empty()) admit(std::exchange(newcomer_, {}));
  const bool full = free_clients_.empty();
  if (full != std::exchange(full_, full)) {
    listener_.note_room(!full);
    if (full) count(Counter::waits_client);
  }
  if (accepting_ || newcomer_.socket >= 0) return;
  if (full_ && (!evictable_ || listener_.has_room())) return;
  accepting_ = true;
  peer_bytes_ = sizeof peer_;
  uring_.accept(this, listener_.descriptor(), reinterpret_cast<sockaddr*>(&peer_), &peer_bytes_);
}

void Ingress::on_accepted(int result) noexcept {
  accept_failed_ = result < 0;
  if (accept_failed_) return;
  accepting_ = false;
  const Newcomer newcomer{.socket = result, .address = tcp::peer_address(peer_)};
  if (!is_allowed(newcomer.address)) {
    count(Counter::clients_refused);
    ::close(result);
  } else if (privileged_clients_ && !tcp::has_privileged_port(peer_)) {
    count(Counter::clients_unprivileged);
    ::close(result);
  } else if (free_clients_.empty()) {
    newcomer_ = newcomer;
  } else {
    admit(newcomer);
  }
}

void Ingress::admit(const Newcomer& newcomer) noexcept {
  count(Counter::clients_accepted);
  tcp::tune(newcomer.socket, tcp::kPeerTimeoutMs);
  free_clients_.pop()->open(newcomer.socket, hosts_.take(newcomer.address));
}

void Ingress::on_free(TcpClient& client) noexcept {
  hosts_.release(client.host());
  free_clients_.push(&client);
}

/// Compares a client with the choice of this round. Clients are evicted in the order of, first, the number of
/// places of their host, then membership in the newcomer's host, then the time without bytes.
void Ingress::consider(TcpClient& client, std::uint64_t now_ns) noexcept {
  if (client.state() != TcpClient::State::Open) return;
  const PeerAddress network = network_of(newcomer_.address);
  const auto rank = [&](const TcpClient& some) {
    return std::tuple(some.host().places, some.host().network == network, now_ns - some.moved_ns());
  };
  const auto choose = [&](TcpClient*& chosen) {
    if (chosen == nullptr || rank(client) > rank(*chosen)) chosen = &client;
  };
  if (client.is_idle()) {
    if (now_ns - client.moved_ns() >= kLeastStayNs) choose(idlest_);
  } else if (client.host().places > share_ && now_ns - client.opened_ns() >= kLeastStayNs &&
             !client.is_called_back()) {
    choose(busiest_);
  }
}

/// Ends a round over all clients. If a newcomer waits, evicts the chosen client, or refuses the newcomer if
/// no client may be evicted and its host already holds a place.
void Ingress::end_round(std::uint64_t now_ns) noexcept {
  TcpClient* const idlest = std::exchange(idlest_, nullptr);
  TcpClient* const busiest = std::exchange(busiest_, nullptr);
  evictable_ = idlest != nullptr || busiest != nullptr;
  if (newcomer_.socket < 0 || now_ns < evict_again_ns_) return;
  const std::uint32_t own = hosts_.places_of(newcomer_.address);
  if (idlest != nullptr && idlest->is_idle() && may_displace(*idlest, own)) {
    evict_again_ns_ = now_ns + kDrainNs;
    count(Counter::clients_evicted);
    idlest->disconnect();
  } else if (busiest != nullptr && busiest->host().places > own + 1) {
    evict_again_ns_ = now_ns + kDrainNs;
    count(Counter::clients_evicted);
    busiest->drain();
  } else if (own > 0) {
    count(Counter::clients_over_share);
    ::close(std::exchange(newcomer_, {}).socket);
  }
}

/// Returns true if the newcomer may displace `client`. The newcomer's host holds `own` places.
bool Ingress::may_displace(const TcpClient& client, std::uint32_t own) const noexcept {
  return client.host().places > own || client.host().network == network_of(newcomer_.address);
}

void Ingress::look_at_clients(std::uint64_t now_ns) noexcept {
  std::uint32_t due = clients_round_.due(now_ns, static_cast<std::uint32_t>(clients_.size()));
  if (due == 0) return;
  for (const std::uint64_t clock_ns = clock_(); due > 0; --due) {
    TcpClient& client = *clients_[next_looked_at_];
    client.tick(clock_ns);
    if (full_) consider(client, clock_ns);
    if (++next_looked_at_ < clients_.size()) continue;
    next_looked_at_ = 0;
    end_round(clock_ns);
  }
}

}  // namespace sluice::tcp_clients
