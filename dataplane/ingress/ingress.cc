// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/ingress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dataplane/tcp/sockets.h"

namespace sluice::ingress {
namespace {

/// In io_uring at once, beside those of the clients.
constexpr std::uint32_t kAcceptOperations = 1;

}  // namespace

Ingress::Ingress(rpcrdma::Engine& engine, Dialer& dialer, const Listener& listener,
                 const IngressConfig& config, segment::IngressArea& area, Clock clock)
    : config_(config),
      dialer_(dialer),
      listener_(listener),
      area_(area),
      clock_(clock),
      uring_(kAcceptOperations + kClientOperations * config.clients),
      memory_{{engine.device(), config.record_buffers, tcp::kMaxRecordBytes},
              {engine.device(), config.item_buffers, tcp::kStreamBytes}},
      scratch_(new std::byte[tcp::kMaxRecordBytes]),
      free_clients_(config.clients),
      servers_(*this, engine, config.connections),
      by_connection_(engine.connection_count()) {
  std::construct_at(&area_);  // drops the counts of an earlier data plane
  for (std::uint32_t i = 0; i < config.clients; ++i)
    free_clients_.push(clients_.emplace_back(std::make_unique<TcpClient>(*this)).get());
  to_flush_.reserve(config.clients);
  waiting_.reserve(config.clients);
  resuming_.reserve(config.clients);
}

PoolBuffer Ingress::acquire_buffer(std::size_t bytes) noexcept {
  if (bytes <= memory_.items.buffer_bytes() && memory_.items.available() > 0)
    return {memory_.items.acquire(), false};
  return {memory_.records.acquire(), true};
}

void Ingress::release_buffer(PoolBuffer& buffer) noexcept {
  std::byte* const memory = std::exchange(buffer.address, nullptr);
  if (memory == nullptr) return;
  (buffer.is_record ? memory_.records : memory_.items).release(memory);
  note_release();
}

// --- Clients

bool Ingress::is_allowed() const noexcept {
  const PeerAddress peer = tcp::peer_address(peer_);
  return config_.allowed.empty() ||
         std::any_of(config_.allowed.begin(), config_.allowed.end(),
                     [&](const auto& prefix) { return peer.within(prefix.address, prefix.prefix_bits); });
}

/// Where there is no room a client is left to another reactor, or waits with the kernel.
void Ingress::accept() noexcept {
  if (accepting_) return;
  const bool was_full = std::exchange(full_, free_clients_.empty());
  if (full_ && !was_full) count(Counter::waits_client);
  if (full_) return;
  accepting_ = true;
  peer_bytes_ = sizeof peer_;
  uring_.accept(this, listener_.descriptor(), reinterpret_cast<sockaddr*>(&peer_), &peer_bytes_);
}

void Ingress::on_accepted(int result) noexcept {
  accept_failed_ = result < 0;
  if (accept_failed_) return;
  accepting_ = false;
  if (!is_allowed()) {
    count(Counter::clients_refused);
    ::close(result);
    return;
  }
  count(Counter::clients_accepted);
  tcp::tune(result, tcp::kPeerTimeoutMs);
  free_clients_.pop()->open(result);
}

/// Null: the connection is nobody's any more.
TcpClient* Ingress::client_of(const service::Client& connection) const noexcept {
  const ServerConnection* const server = by_connection_[connection.number()];
  return server != nullptr ? server->client() : nullptr;
}

service::Execution Ingress::Callee::execute(service::Call& call) noexcept {
  TcpClient* const client = call.client() != nullptr ? ingress_.client_of(*call.client()) : nullptr;
  if (client != nullptr)
    client->on_server_call(call);
  else
    call.complete(rpc::AcceptStat::ProgUnavail);
  return service::Execution::Started;
}

void Ingress::Callee::client_gone(service::Client& client) noexcept {
  if (TcpClient* const own = ingress_.client_of(client)) own->on_server_gone();
}

// --- The reactor's loop

bool Ingress::poll(std::uint64_t now_ns) noexcept {
  if (released_) resume_waiting();
  for (TcpClient* const client : to_flush_) client->flush();
  to_flush_.clear();
  accept();
  const std::size_t handled = uring_.poll([](void* target, tcp::Uring::Kind kind, int result) {
    if (kind == tcp::Uring::kEnded) return static_cast<TcpClient*>(target)->on_ended(result);
    switch (kind) {
      case tcp::Uring::Kind::Accept:
        return static_cast<Ingress*>(target)->on_accepted(result);
      case tcp::Uring::Kind::Receive:
        return static_cast<TcpClient*>(target)->on_received(result);
      case tcp::Uring::Kind::Send:
        return static_cast<TcpClient*>(target)->on_sent(result);
      case tcp::Uring::Kind::Connect:
        return;
    }
  });
  if (now_ns - ticked_ns_ >= kTickNs) {
    ticked_ns_ = now_ns;
    if (std::exchange(accept_failed_, false)) accepting_ = false;
    const std::uint64_t clock_ns = clock_();
    for (const auto& client : clients_) client->tick(clock_ns);
    servers_.tick(clock_ns);
    resume_waiting();  // the requester may have released resources without note_release()
    publish();
  }
  return handled > 0;
}

void Ingress::resume_waiting() noexcept {
  resuming_.swap(waiting_);
  for (TcpClient* const client : resuming_) client->resume();
  resuming_.clear();
  // Clients that wait again have only returned what they had just taken.
  released_ = false;
}

void Ingress::publish() noexcept {
  area_.clients.store(static_cast<std::uint32_t>(clients_.size() - free_clients_.size()),
                      std::memory_order_relaxed);
  area_.connected.store(servers_.connected(), std::memory_order_relaxed);
  area_.outstanding.store(servers_.outstanding(), std::memory_order_relaxed);
}

}  // namespace sluice::ingress
