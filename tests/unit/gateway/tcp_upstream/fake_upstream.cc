// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/gateway/tcp_upstream/fake_upstream.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/listener.h"

namespace sluice::tcp_upstream_test {

Bytes fragment(std::span<const std::byte> part, bool last) {
  Bytes bytes = words({static_cast<std::uint32_t>(part.size()) | (last ? 1u << 31 : 0u)});
  append(bytes, part);
  return bytes;
}

Bytes pattern(std::size_t bytes, std::uint32_t seed) {
  Bytes data(bytes);
  conformance::fill_pattern(data, seed);
  return data;
}

Bytes record(std::span<const std::byte> message) {
  return fragment(message, true);
}

Bytes success(std::uint32_t xid, const Bytes& results) {
  Bytes reply = words({xid, 1, 0, 0, 0, 0});
  append(reply, results);
  return reply;
}

FakeUpstream::FakeUpstream(const PeerAddress& here, std::uint16_t port) : here_(here), port_(port) {
  listen();
}

FakeUpstream::~FakeUpstream() {
  shut();
  for (std::size_t i = 0; i < connections_.size(); ++i) close(i);
}

void FakeUpstream::listen() {
  listener_ = port_ == 0 ? lab::listen_anywhere(here_) : lab::listen_at(here_, port_);
  ASSERT_GE(listener_, 0) << "port " << port_ << " is taken";
  port_ = tcp::local_port(listener_);
}

void FakeUpstream::shut() {
  if (listener_ >= 0) ::close(listener_);
  listener_ = -1;
}

void FakeUpstream::reopen() {
  listen();
}

void FakeUpstream::close(std::size_t connection) {
  int& socket = connections_[connection].socket;
  if (socket >= 0) ::close(socket);
  socket = -1;
}

void FakeUpstream::send(std::size_t connection, std::span<const std::byte> bytes) {
  append(connections_[connection].out, bytes);
  poll();
}

void FakeUpstream::poll() {
  if (listener_ >= 0) {
    sockaddr_in peer{};
    socklen_t bytes = sizeof peer;
    const int socket =
        ::accept4(listener_, reinterpret_cast<sockaddr*>(&peer), &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0) {
      const int on = 1;  // otherwise a reply waits for the acknowledgement of the previous one
      ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      connections_.push_back({.socket = socket, .peer_port = ntohs(peer.sin_port), .in = {}, .out = {}});
    }
  }
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (connection.socket < 0) continue;
    if (!connection.out.empty()) {
      const auto sent = ::send(connection.socket, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
      if (sent > 0) connection.out.erase(connection.out.begin(), connection.out.begin() + sent);
    }
    if (!reads) continue;
    std::byte buffer[65536];
    const auto got = ::recv(connection.socket, buffer, sizeof buffer, 0);
    if (got == 0) close(i);
    if (got <= 0) continue;
    append(connection.in, {buffer, static_cast<std::size_t>(got)});
    parse(i);
  }
}

void FakeUpstream::parse(std::size_t number) {
  for (;;) {
    Bytes& in = connections_[number].in;
    if (in.size() < 4) return;
    const std::size_t bytes = word_at(in, 0) & 0x7fffffff;
    if (in.size() < 4 + bytes) return;
    calls.push_back({number, Bytes(in.begin() + 4, in.begin() + 4 + static_cast<std::ptrdiff_t>(bytes))});
    in.erase(in.begin(), in.begin() + 4 + static_cast<std::ptrdiff_t>(bytes));
    if (!answer || word_at(calls.back().message, 1) != 0) continue;
    const Bytes reply = answer(calls.back());
    if (!reply.empty()) append(connections_[number].out, record(reply));
  }
}

}  // namespace sluice::tcp_upstream_test
