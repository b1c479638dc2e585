// SPDX-License-Identifier: Apache-2.0
//
// A port of the test at which connection attempts time out.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace sluice::tcp_upstream_test {

/// A port at which connections are neither established nor refused: that of a listener whose queue is full.
class Void {
 public:
  Void(const char* host, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    EXPECT_EQ(::inet_pton(AF_INET, host, &address.sin_addr), 1);
    for (int& socket : sockets_) socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const auto* const at = reinterpret_cast<const sockaddr*>(&address);
    EXPECT_EQ(::bind(sockets_[0], at, sizeof address), 0);
    EXPECT_EQ(::listen(sockets_[0], 0), 0);
    for (std::size_t i = 1; i < sockets_.size(); ++i)
      static_cast<void>(::connect(sockets_[i], at, sizeof address));
  }
  ~Void() {
    for (const int socket : sockets_) ::close(socket);
  }
  Void(const Void&) = delete;
  Void& operator=(const Void&) = delete;

 private:
  std::array<int, 4> sockets_{};
};

}  // namespace sluice::tcp_upstream_test
