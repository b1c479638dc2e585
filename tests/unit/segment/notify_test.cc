// SPDX-License-Identifier: Apache-2.0
#include "dataplane/segment/notify.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace sluice::notify {
namespace {

/// systemd's side of the socket that NOTIFY_SOCKET names, an abstract one.
class Notified : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = "@sluice-notify-" + std::to_string(::getpid());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, name.data(), name.size());
    address.sun_path[0] = '\0';
    socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    ASSERT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), bytes), 0);
    ::setenv("NOTIFY_SOCKET", name.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("NOTIFY_SOCKET");
    ::close(socket_);
  }
  std::string message() {
    char text[256];
    const ssize_t bytes = ::recv(socket_, text, sizeof text, 0);
    return bytes < 0 ? "nothing" : std::string(text, static_cast<std::size_t>(bytes));
  }

 private:
  int socket_ = -1;
};

TEST_F(Notified, the_start_and_the_end_are_told) {
  ready();
  EXPECT_EQ(message(), "READY=1");
  stopping();
  EXPECT_EQ(message(), "STOPPING=1");
}

TEST_F(Notified, life_is_told_now_and_then_and_not_each_time) {
  alive();
  EXPECT_EQ(message(), "WATCHDOG=1");
  // Far less than the interval of a half second, even on a slow machine, for most of the calls.
  int again = 0;
  for (int call = 0; call < 100; ++call) {
    alive();
    again += message() == "WATCHDOG=1" ? 1 : 0;
  }
  EXPECT_LT(again, 50);
  ::usleep(510'000);
  alive();
  EXPECT_EQ(message(), "WATCHDOG=1");
}

}  // namespace
}  // namespace sluice::notify
