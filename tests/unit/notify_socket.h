// SPDX-License-Identifier: Apache-2.0
//
// systemd's notification socket, which NOTIFY_SOCKET names, for tests of service state notifications. At most
// one exists at a time.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace sluice {

/// A fixture that creates the socket in the abstract namespace.
class NotifySocket : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = "@sluice-notify-" + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    address.sun_path[0] = '\0';
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    ASSERT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("NOTIFY_SOCKET");
    ::close(socket_);
  }
  bool has_message() const {
    pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) > 0;
  }
  /// Returns the message that has arrived, or "nothing".
  std::string message() const { return has_message() ? next_message() : "nothing"; }
  /// Waits for a message and returns it.
  std::string next_message() const {
    char text[256];
    const ssize_t bytes = ::recv(socket_, text, sizeof text, 0);
    return bytes < 0 ? "" : std::string(text, static_cast<std::size_t>(bytes));
  }

 private:
  int socket_ = -1;
};

}  // namespace sluice
