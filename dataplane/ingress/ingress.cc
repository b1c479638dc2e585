// SPDX-License-Identifier: Apache-2.0
#include "dataplane/ingress/ingress.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "dataplane/base/setup_error.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::ingress {

Ingress::Ingress(rpcrdma::Engine& engine, Dialer& dialer, const IngressConfig& config,
                 segment::IngressArea& area, Clock clock)
    : config_(config),
      dialer_(dialer),
      area_(area),
      clock_(clock),
      memory_{{engine.device(), config.record_buffers, tcp::kMaxRecordBytes},
              {engine.device(), config.item_buffers, tcp::kStreamBytes}},
      scratch_(new std::byte[tcp::kMaxRecordBytes]),
      by_connection_(engine.connection_count()) {
  std::construct_at(&area_);  // drops the counts of an earlier data plane
  for (std::uint32_t i = 0; i < config.clients; ++i)
    clients_.push_back(std::make_unique<TcpClient>(*this, engine));
  to_flush_.reserve(config.clients);
  waiting_.reserve(config.clients);
  resuming_.reserve(config.clients);
  listener_ =
      tcp::listening_socket(reinterpret_cast<const sockaddr*>(&config_.address), config_.address_bytes);
  if (listener_ < 0)
    throw SetupError(std::string("The reverse gateway cannot listen (") + std::strerror(-listener_) +
                     "): check listen_address and listen_port in [reverse]; ports below 1024 need "
                     "CAP_NET_BIND_SERVICE.");
}

Ingress::~Ingress() {
  ::close(listener_);
}

std::uint16_t Ingress::port() const noexcept {
  return tcp::local_port(listener_);
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

void Ingress::on_accepted(int result) noexcept {
  accept_failed_ = result < 0;
  if (accept_failed_) return;
  accepting_ = false;
  const auto place = std::find_if(clients_.begin(), clients_.end(), [](const auto& client) {
    return client->state() == TcpClient::State::Free;
  });
  if (place == clients_.end() || !is_allowed()) {
    count(Counter::clients_refused);
    ::close(result);
    return;
  }
  count(Counter::clients_accepted);
  tcp::tune(result, tcp::kPeerTimeoutMs);
  (*place)->open(result);
}

service::Execution Ingress::Callee::execute(service::Call& call) noexcept {
  TcpClient* const client =
      call.client() != nullptr ? ingress_.by_connection_[call.client()->number()] : nullptr;
  if (client != nullptr)
    client->on_server_call(call);
  else
    call.complete(rpc::AcceptStat::ProgUnavail);
  return service::Execution::Started;
}

void Ingress::Callee::client_gone(service::Client& client) noexcept {
  if (TcpClient* const own = ingress_.by_connection_[client.number()]) own->on_server_gone();
}

// --- The reactor's loop

bool Ingress::poll(std::uint64_t now_ns) noexcept {
  if (released_) resume_waiting();
  for (TcpClient* const client : to_flush_) client->flush();
  to_flush_.clear();
  if (!accepting_) {
    accepting_ = true;
    peer_bytes_ = sizeof peer_;
    uring_.accept(this, listener_, reinterpret_cast<sockaddr*>(&peer_), &peer_bytes_);
  }
  const std::size_t handled = uring_.poll([](void* target, tcp::Uring::Kind kind, int result) {
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
  std::uint32_t open = 0;
  std::uint32_t connected = 0;
  std::uint32_t outstanding = 0;
  for (const auto& client : clients_) {
    open += client->state() == TcpClient::State::Open;
    connected += client->connected();
    outstanding += client->outstanding();
  }
  area_.clients.store(open, std::memory_order_relaxed);
  area_.connected.store(connected, std::memory_order_relaxed);
  area_.outstanding.store(outstanding, std::memory_order_relaxed);
}

}  // namespace sluice::ingress
