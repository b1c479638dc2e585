// SPDX-License-Identifier: Apache-2.0
#include "dataplane/gateway/tcp_clients/reverse_gateway.h"

#include <unistd.h>

#include <cstring>
#include <string>
#include <tuple>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/gateway/rdma_server/server_user.h"
#include "dataplane/gateway/tcp_clients/tcp_client.h"
#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/sockets.h"
namespace sluice::tcp_clients {
namespace {

/// Maximum number of accept operations in io_uring.
constexpr std::uint32_t kAcceptOperations = 1;

rdma_server::ServerCounters counters_of(segment::ReverseArea& area) {
  const auto of = [&](ReverseGateway::Counter counter) -> std::atomic<std::uint64_t>& {
    return area.counters[static_cast<std::size_t>(counter)];
  };
  return {.calls = of(ReverseGateway::Counter::calls),
          .probes = of(ReverseGateway::Counter::probes),
          .resets = of(ReverseGateway::Counter::server_resets),
          .retransmissions = of(ReverseGateway::Counter::retransmissions),
          .dials = of(ReverseGateway::Counter::dials),
          .dials_failed = of(ReverseGateway::Counter::dials_failed),
          .disconnects = of(ReverseGateway::Counter::disconnects),
          .taken = of(ReverseGateway::Counter::connections_taken),
          .unknown_operations = of(ReverseGateway::Counter::unknown_operations),
          .unknown_operation = area.unknown_operation};
}

}  // namespace

ReverseGateway::ReverseGateway(rpcrdma::Engine& engine, rdma_server::Dialer& dialer, Listener& listener,
                               const ReverseGatewayConfig& config, segment::ReverseArea& area, Clock clock)
    : allowed_(config.allowed),
      privileged_clients_(config.privileged_clients),
      listener_(listener),
      area_(area),
      clock_(clock),
      uring_(kAcceptOperations + kClientOperations * config.clients, config.uring),
      server_(engine, dialer, config.server_side, counters_of(area), clock),
      hosts_(config.clients),
      share_(larger_of(config.clients / kShareOfPlaces, 1u)),
      free_clients_(config.clients) {
  listener_.note_room(true);
  std::construct_at(&area_);  // resets the counters of an earlier data plane
  server_.set_server(config.server);
  for (std::uint32_t i = 0; i < config.clients; ++i)
    free_clients_.push(clients_.emplace_back(make_owned<TcpClient>(*this)).get());
  to_flush_.reserve(config.clients);
}

ReverseGateway::~ReverseGateway() {
  if (!full_) listener_.note_room(false);
  if (newcomer_.socket >= 0) ::close(newcomer_.socket);
}

// --- The reactor's loop

bool ReverseGateway::poll(std::uint64_t now_ns) noexcept {
  SLUICE_INVARIANT_DEBUG(owner_.is_caller(), object_owner);
  if (server_.take_released()) waiting_.on_release();
  resume_waiting();
  for (TcpClient* const client : to_flush_) client->flush();
  to_flush_.clear();
  accept();
  const std::size_t handled =
      uring_.poll([](void* target, tcp::Uring::Kind kind, const tcp::Uring::Completion& end) {
        if (kind == tcp::Uring::kEnded) return static_cast<TcpClient*>(target)->on_ended(end.result);
        if (kind == tcp::Uring::kReceivedAgain)
          return static_cast<TcpClient*>(target)->on_received_again(end);
        switch (kind) {
          case tcp::Uring::Kind::Accept:
            return static_cast<ReverseGateway*>(target)->on_accepted(end.result);
          case tcp::Uring::Kind::Receive:
            return static_cast<TcpClient*>(target)->on_received(end);
          case tcp::Uring::Kind::Send:
            return static_cast<TcpClient*>(target)->on_sent(end.result);
          case tcp::Uring::Kind::Connect:
            return;
        }
      });
  if (now_ns - ticked_ns_ >= kTickNs) {
    ticked_ns_ = now_ns;
    if (std::exchange(accept_failed_, false)) accepting_ = false;
    server_.tick(clock_());
    waiting_.on_release();  // the requester may have released resources without note_release()
    publish();
  }
  look_at_clients(now_ns);
  return handled > 0;
}

/// Resumes some of the waiting clients. Then discards the release notes, because a client that waits again
/// has only returned the resources that it had just acquired.
void ReverseGateway::resume_waiting() noexcept {
  if (waiting_.resume_some()) server_.take_released();
}

void ReverseGateway::publish() noexcept {
  area_.clients.store(static_cast<std::uint32_t>(clients_.size() - free_clients_.size()),
                      std::memory_order_relaxed);
  area_.connected.store(server_.connections().connected(), std::memory_order_relaxed);
  area_.outstanding.store(server_.connections().outstanding(), std::memory_order_relaxed);
}

Listener::Listener(const sockaddr_storage& address, socklen_t address_bytes)
    : descriptor_(tcp::listening_socket(reinterpret_cast<const sockaddr*>(&address), address_bytes)) {
  if (descriptor_ < 0)
    throw SetupError(std::string("The reverse gateway cannot listen (") + std::strerror(-descriptor_) +
                     "): check listen_address and listen_port in [reverse]; ports below 1024 need "
                     "CAP_NET_BIND_SERVICE.");
}

Listener::~Listener() {
  ::close(descriptor_);
}

std::uint16_t Listener::port() const noexcept {
  return tcp::local_port(descriptor_);
}

bool ServerCalls::start(service::Call& call, tcp::SendQueue& queue) noexcept {
  Outstanding* const place =
      first_match(outstanding_, [](const Outstanding& other) { return other.call == nullptr; });
  if (place == nullptr || call.message().size() > kMaxServerCallBytes) return false;
  static_cast<void>(SLUICE_INVARIANT(call.message().size() >= xdr::kUnit, buffer_bounds));
  *place = {&call, xdr::load_u32(call.message().data()), ++sequence_, false};
  pump(queue);
  return true;
}

bool ServerCalls::pump(tcp::SendQueue& queue) noexcept {
  bool any = false;
  while (Outstanding* const next = next_to_queue()) {
    const auto message = next->call->message();
    if (!queue.room_for(xdr::kUnit + message.size(), 0)) break;
    queue.copy(tcp::record_head(message.size(), next->xid));
    queue.copy(message.subspan(xdr::kUnit));
    next->queued = any = true;
  }
  return any;
}

/// Returns the oldest call that is not in the send queue yet, or null.
ServerCalls::Outstanding* ServerCalls::next_to_queue() noexcept {
  Outstanding* oldest = nullptr;
  for (Outstanding& outstanding : outstanding_)
    if (outstanding.call != nullptr && !outstanding.queued &&
        (oldest == nullptr || outstanding.sequence < oldest->sequence))
      oldest = &outstanding;
  return oldest;
}

bool ServerCalls::empty() const noexcept {
  return !has_match(outstanding_, [](const Outstanding& outstanding) { return outstanding.call != nullptr; });
}

ServerCalls::Answer ServerCalls::on_reply(std::span<const std::byte> record) noexcept {
  static_cast<void>(SLUICE_INVARIANT(record.size() >= rpc::kMinDeniedReplyBytes, buffer_bounds));
  const std::uint32_t xid = xdr::load_u32(record.data());
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr || !outstanding.queued || outstanding.xid != xid) continue;
    service::Call& call = *std::exchange(outstanding.call, nullptr);
    return rdma_server::complete_with_reply(call, record) ? Answer::Completed : Answer::TooLong;
  }
  return Answer::Unknown;
}

std::uint32_t ServerCalls::drop_all() noexcept {
  std::uint32_t dropped = 0;
  for (Outstanding& outstanding : outstanding_) {
    if (outstanding.call == nullptr) continue;
    std::exchange(outstanding.call, nullptr)->complete(rpc::AcceptStat::SystemErr);
    ++dropped;
  }
  return dropped;
}

// --- Places: accepts clients, and evicts a client for a newcomer while all places are in use.

bool ReverseGateway::is_allowed(const PeerAddress& peer) const noexcept {
  return allowed_.empty() || has_match(allowed_, [&](const auto& prefix) {
           return peer.within(prefix.address, prefix.prefix_bits);
         });
}

/// Accepts a client if a place is free. If none is free, accepts a newcomer only if a client can be evicted
/// and no other reactor has a free place. Otherwise the newcomer waits in the backlog of the listener.
void ReverseGateway::accept() noexcept {
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

void ReverseGateway::on_accepted(int result) noexcept {
  static_cast<void>(SLUICE_INVARIANT(accepting_ && newcomer_.socket < 0, gateway_state));
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

void ReverseGateway::admit(const Newcomer& newcomer) noexcept {
  count(Counter::clients_accepted);
  tcp::tune(newcomer.socket, tcp::kPeerTimeoutMs);
  static_cast<void>(SLUICE_INVARIANT(!free_clients_.empty() && newcomer.socket >= 0, pool_balance));
  free_clients_.pop()->open(newcomer.socket, hosts_.take(newcomer.address));
}

void ReverseGateway::on_free(TcpClient& client) noexcept {
  static_cast<void>(SLUICE_INVARIANT(client.state() == TcpClient::State::Free, gateway_state));
  static_cast<void>(SLUICE_INVARIANT(&client != idlest_ && &client != busiest_, table_index));
  hosts_.release(client.host());
  free_clients_.push(&client);
}

/// Compares a client with the choice of this round. Clients are evicted in the order of, first, the number of
/// places of their host, then membership in the newcomer's host, then the time without bytes.
void ReverseGateway::consider(TcpClient& client, std::uint64_t now_ns) noexcept {
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
void ReverseGateway::end_round(std::uint64_t now_ns) noexcept {
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
bool ReverseGateway::may_displace(const TcpClient& client, std::uint32_t own) const noexcept {
  return client.host().places > own || client.host().network == network_of(newcomer_.address);
}

void ReverseGateway::look_at_clients(std::uint64_t now_ns) noexcept {
  std::uint32_t due = clients_round_.due(now_ns, static_cast<std::uint32_t>(clients_.size()));
  if (due == 0) return;
  for (const std::uint64_t clock_ns = clock_(); due > 0; --due) {
    static_cast<void>(SLUICE_INVARIANT(next_looked_at_ < clients_.size(), table_index));
    TcpClient& client = *clients_[next_looked_at_];
    client.tick(clock_ns);
    if (full_) consider(client, clock_ns);
    if (++next_looked_at_ < clients_.size()) continue;
    next_looked_at_ = 0;
    end_round(clock_ns);
  }
}

}  // namespace sluice::tcp_clients
