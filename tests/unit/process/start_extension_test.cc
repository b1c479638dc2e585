// SPDX-License-Identifier: Apache-2.0
#include "dataplane/process/start_extension.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

namespace sluice::process {
namespace {

/// Creates the socket of systemd that NOTIFY_SOCKET names, an abstract one.
class ExtendedStart : public testing::Test {
 protected:
  void SetUp() override {
    const std::string name = "@sluice-start-extension-" + std::to_string(::getpid());
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
  /// Waits for the next message.
  std::string message() {
    char text[256];
    const ssize_t bytes = ::recv(socket_, text, sizeof text, 0);
    return bytes < 0 ? "" : std::string(text, static_cast<std::size_t>(bytes));
  }
  bool has_message() {
    pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
    return ::poll(&poll, 1, 0) > 0;
  }

 private:
  int socket_ = -1;
};

TEST_F(ExtendedStart, the_timeout_is_extended_again_and_again_until_the_start_is_over) {
  {
    const StartExtension extension(std::chrono::milliseconds(1));
    for (int i = 0; i < 3; ++i) EXPECT_EQ(message(), "EXTEND_TIMEOUT_USEC=60000000");
  }
  while (has_message()) message();
  ::usleep(20'000);
  EXPECT_FALSE(has_message());
}

TEST_F(ExtendedStart, the_end_of_a_start_does_not_wait_for_the_next_extension) {
  // A destructor that waits for the next extension runs into the timeout of the test program.
  const StartExtension extension(std::chrono::hours(24));
  EXPECT_EQ(message(), "EXTEND_TIMEOUT_USEC=60000000");
}

}  // namespace
}  // namespace sluice::process
