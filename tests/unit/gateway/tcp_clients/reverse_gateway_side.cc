// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/gateway/tcp_clients/reverse_gateway_side.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/sockets.h"

namespace sluice::tcp_clients_test {
namespace {

rpcrdma::EngineConfig engine_config(const SideOptions& options) {
  rpcrdma::EngineConfig config;
  config.max_connections = options.connections + 2;
  config.capacity.call_slots = rdma_server_test::kServerCalls;
  config.capacity.requests = options.calls;
  return config;
}

}  // namespace

TcpPeer::TcpPeer(std::uint16_t port, std::uint8_t host, bool privileged) {
  const PeerAddress from = PeerAddress::from_ipv4(127, 0, 0, host);
  socket_ = tcp::connecting_socket(AF_INET, privileged, 30'000, &from);
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

void TcpPeer::shut_sending() {
  poll();
  EXPECT_TRUE(out_.empty());
  ::shutdown(socket_, SHUT_WR);
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

ReverseGatewaySide::ReverseGatewaySide(std::shared_ptr<rdma::loopback::Fabric> fabric,
                                       const SideOptions& chosen, Clock clock,
                                       std::shared_ptr<tcp_clients::Listener> shared)
    : DialingSide(std::move(fabric), {.name = "reverse",
                                      .version = chosen.version,
                                      .calls = chosen.calls,
                                      .engine = engine_config(chosen)}),
      options(chosen),
      listener(std::move(shared)) {
  tcp_clients::ReverseGatewayConfig config{.allowed = options.allowed,
                                           .privileged_clients = options.privileged_clients,
                                           .clients = options.clients,
                                           .server_side = {.connections = options.connections,
                                                           .calls = options.calls,
                                                           .record_buffers = options.record_buffers,
                                                           .item_buffers = options.item_buffers,
                                                           .max_io_bytes = options.max_io_bytes,
                                                           .call_timeout_ns = options.call_timeout_ns,
                                                           .withheld = options.withheld},
                                           .uring = options.uring};
  if (listener == nullptr) {
    sockaddr_storage address{};
    const socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), 0, address);
    listener = std::make_shared<tcp_clients::Listener>(address, bytes);
  }
  gateway = std::make_unique<tcp_clients::ReverseGateway>(engine, *this, *listener, config, *area, clock);
}

void ReverseGatewaySide::poll(std::uint64_t now_ns) {
  poll_connections(now_ns);
  gateway->poll(now_ns);
  for (const auto& peer : peers) peer->poll();
}

}  // namespace sluice::tcp_clients_test
