// SPDX-License-Identifier: Apache-2.0
//
// A TCP port of the loopback interface, for an upstream that polls.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>

namespace sluice::bench {

class Listener {
 public:
  Listener() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    if (::bind(socket_, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || ::listen(socket_, 8) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
      throw std::runtime_error("no loopback socket");
    port_ = ntohs(address.sin_port);
  }
  ~Listener() { ::close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int socket() const { return socket_; }
  std::uint16_t port() const { return port_; }
  /// Returns a non-blocking connection; negative if none is pending.
  int accept() const {
    const int socket = ::accept4(socket_, nullptr, nullptr, SOCK_NONBLOCK);
    const int on = 1;
    if (socket >= 0) ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return socket;
  }

 private:
  int socket_;
  std::uint16_t port_ = 0;
};

}  // namespace sluice::bench
