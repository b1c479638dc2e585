// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/ingress/ingress_side.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::ingress_test {
namespace {

constexpr std::uint32_t kServerCalls = 4;

rpcrdma::EngineConfig engine_config(const SideOptions& options) {
  rpcrdma::EngineConfig config;
  config.max_connections = options.connections + 2;
  config.capacity.call_slots = kServerCalls;
  config.capacity.requests = options.calls;
  return config;
}

}  // namespace

TcpPeer::TcpPeer(std::uint16_t port) : socket_(tcp::connecting_socket(AF_INET, false, 30'000)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
}

TcpPeer::~TcpPeer() {
  ::close(socket_);
}

void TcpPeer::shut() {
  ::shutdown(socket_, SHUT_RDWR);
}

void TcpPeer::send_record(std::span<const std::byte> message) {
  append(out_, words({1u << 31 | static_cast<std::uint32_t>(message.size())}));
  append(out_, message);
}

void TcpPeer::poll() {
  if (!out_.empty()) {
    const ssize_t sent = ::send(socket_, out_.data(), out_.size(), MSG_NOSIGNAL);
    if (sent > 0) out_.erase(out_.begin(), out_.begin() + sent);
  }
  if (!reads) return;
  std::array<std::byte, 65536> bytes;
  const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
  if (got > 0) append(in_, std::span(bytes).first(static_cast<std::size_t>(got)));
}

std::optional<Bytes> TcpPeer::take_record() {
  if (in_.size() < xdr::kUnit) return std::nullopt;
  const std::uint32_t mark = word_at(in_, 0);
  EXPECT_NE(mark & 1u << 31, 0u);
  const std::size_t end = xdr::kUnit + (mark & ~(1u << 31));
  if (in_.size() < end) return std::nullopt;
  Bytes record(in_.begin() + xdr::kUnit, in_.begin() + static_cast<std::ptrdiff_t>(end));
  in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(end));
  return record;
}

IngressSide::IngressSide(std::shared_ptr<rdma::loopback::Fabric> fabric, const SideOptions& chosen,
                         Clock clock, std::shared_ptr<ingress::Listener> shared)
    : options(chosen),
      device(rdma::loopback::make_device(std::move(fabric), {.name = "ingress"})),
      engine(*device, engine_config(chosen)),
      listener(std::move(shared)) {
  ingress::IngressConfig config{.allowed = options.allowed,
                                .clients = options.clients,
                                .connections = options.connections,
                                .calls = options.calls,
                                .record_buffers = options.record_buffers,
                                .item_buffers = options.item_buffers,
                                .call_timeout_ns = options.call_timeout_ns};
  if (listener == nullptr) {
    sockaddr_storage address{};
    const socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), 0, address);
    listener = std::make_shared<ingress::Listener>(address, bytes);
  }
  ingress = std::make_unique<ingress::Ingress>(engine, *this, *listener, config, *area, clock);
}

IngressSide::~IngressSide() {
  for (std::uint16_t i = 0; i < engine.connection_count(); ++i)
    engine.connection(i).close(rpcrdma::CloseReason::LocalClose);
  for (int i = 0; i < 100; ++i) engine.poll(1);
}

rpcrdma::Connection* IngressSide::dial(rpcrdma::Requester& requester, service::Service& callee) noexcept {
  rpcrdma::Connection* const connection = may_dial ? engine.free_connection() : nullptr;
  if (connection == nullptr) return nullptr;
  connection->open(device->create_queue_pair(engine.queue_pair_limits()),
                   {.send_inline_bytes = 4096,
                    .credit_grant = kServerCalls,
                    .credits_requested = options.calls,
                    .sole_service = &callee,
                    .active = true,
                    .max_version = options.version},
                   PeerAddress::from_ipv4(10, 0, 0, 1), &requester);
  const auto id = device->connection_manager()->connect(connection->queue_pair(), conformance::kPort, {});
  if (id)
    dialed_.push_back({*id, connection});
  else
    connection->close(rpcrdma::CloseReason::PeerClosed);
  connections.push_back(connection);
  return connection;
}

void IngressSide::hang_up(rpcrdma::Connection& connection, rpcrdma::CloseReason reason) noexcept {
  for (const Dialed& dialed : dialed_)
    if (dialed.connection == &connection) device->connection_manager()->disconnect(dialed.id);
  connection.close(reason);
  hung_up.push_back(reason);
}

void IngressSide::poll(std::uint64_t now_ns) {
  engine.poll(now_ns);
  while (const rpcrdma::Connection* closed = engine.take_closed())
    std::erase_if(dialed_, [closed](const Dialed& dialed) { return dialed.connection == closed; });
  std::array<rdma::CmEvent, 4> events;
  const std::size_t count = device->connection_manager()->poll_events(events);
  for (const rdma::CmEvent& event : std::span(events).first(count)) {
    const auto at = std::find_if(dialed_.begin(), dialed_.end(),
                                 [&](const Dialed& dialed) { return dialed.id == event.id; });
    if (at == dialed_.end()) continue;
    if (event.type == rdma::CmEventType::Established)
      at->connection->established();
    else
      at->connection->close(rpcrdma::CloseReason::PeerClosed);
  }
  ingress->poll(now_ns);
  for (const auto& peer : peers) peer->poll();
}

}  // namespace sluice::ingress_test
