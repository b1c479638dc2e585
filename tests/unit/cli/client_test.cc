// SPDX-License-Identifier: Apache-2.0
#include "cli/sluicectl/client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace sluice::ctl {
namespace {

/// A suspended control plane: its socket listens and it never accepts.
class StoppedServer {
 public:
  StoppedServer() {
    address_.sun_family = AF_UNIX;
    std::strncpy(address_.sun_path, path.c_str(), sizeof address_.sun_path - 1);
    ::unlink(path.c_str());
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address_), sizeof address_), 0);
    EXPECT_EQ(::listen(listener_, 0), 0);
  }
  ~StoppedServer() {
    for (const int waiting : waiting_) ::close(waiting);
    ::close(listener_);
    ::unlink(path.c_str());
  }
  StoppedServer(const StoppedServer&) = delete;
  StoppedServer& operator=(const StoppedServer&) = delete;

  void fill_backlog() {
    for (;;) {
      waiting_.push_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (::connect(waiting_.back(), reinterpret_cast<sockaddr*>(&address_), sizeof address_) != 0) return;
    }
  }

  const std::string path = "/tmp/sluice-client-test-" + std::to_string(::getpid());

 private:
  sockaddr_un address_{};
  const int listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::vector<int> waiting_;
};

TEST(Client, a_server_that_does_not_accept_is_unreachable_after_the_timeout) {
  StoppedServer server;
  server.fill_backlog();
  EXPECT_THROW(Client(server.path, std::chrono::seconds(1)).ask("status"), Unreachable);
}

TEST(Client, a_server_that_does_not_answer_is_unreachable_after_the_timeout) {
  StoppedServer server;
  EXPECT_THROW(Client(server.path, std::chrono::seconds(1)).ask("status"), Unreachable);
}

TEST(Client, no_server_is_unreachable) {
  EXPECT_THROW(Client("/tmp/sluice-client-test-none").ask("status"), Unreachable);
}

}  // namespace
}  // namespace sluice::ctl
