// SPDX-License-Identifier: Apache-2.0
//
// An admin socket with synchronous and asynchronous methods, and its clients.
#pragma once

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "controlplane/admin/server.h"
#include "dataplane/segment/segment.h"

namespace sluice::admin_test {

/// Unlimited time, in nanoseconds, to read a response.
inline constexpr std::uint64_t kForEver = ~std::uint64_t{0};

inline constexpr const char* kSlow = R"({"jsonrpc":"2.0","id":7,"method":"slow","params":{"n":1}})"
                                     "\n";
inline constexpr const char* kEcho = R"({"jsonrpc":"2.0","id":8,"method":"echo"})"
                                     "\n";

class AdminSocket : public ::testing::Test {
 protected:
  AdminSocket() {
    registry.add({.name = "echo", .needed = admin::Access::Read}, [](const Json& params) { return params; });
    registry.add({.name = "big", .needed = admin::Access::Read},
                 [](const Json&) { return std::string(1 << 20, 'x'); });
    registry.add(
        {.name = "typed", .needed = admin::Access::Read, .parameters = {admin::whole32("n", "a number")}},
        [](const Json& params) { return params.at("n").get<std::uint32_t>(); });
    registry.add_later({.name = "slow",
                        .needed = admin::Access::Read,
                        .parameters = {admin::flag("at_once", "whether it answers at once").or_else(false),
                                       admin::whole("n", "a number").or_else(0)}},
                       [this](const Json& params, const admin::Answer& answer) {
                         if (params.at("at_once").get<bool>()) return answer.result("at once");
                         if (params.at("n") == 0) throw admin::MethodError("Not zero.");
                         slow.push_back(answer);
                       });
    server.show();
  }
  ~AdminSocket() override { ::unlink((path + ".lock").c_str()); }

  int connect() { return connect_to(server, path); }
  /// Returns a socket that is connected by another process, of the user `user` if that is not 0.
  int connect_from_another_process(std::uint32_t user = 0) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool is_user = user == 0 || ::setuid(user) == 0;
      ::_exit(is_user && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : 1);
    }
    int status = 1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    poll(10);
    return fd;
  }
  /// Returns the name of the group of this process and of its child processes.
  static std::string own_group() {
    const group* const own = ::getgrgid(::getegid());
    return own != nullptr ? own->gr_name : "";
  }
  /// Runs an iteration of the server, which waits at most `timeout_ms`.
  static void poll(admin::Server& polled, int timeout_ms) {
    PollSet set;
    const std::uint64_t now = segment::monotonic_ns();
    set.wake_at(now + static_cast<std::uint64_t>(timeout_ms) * 1'000'000);
    polled.prepare(set);
    set.wait(now);
    polled.poll(set, segment::monotonic_ns());
  }
  void poll(int timeout_ms) { poll(server, timeout_ms); }
  void poll_often() {
    for (int i = 0; i < 50; ++i) poll(1);
  }
  static bool has_nothing_to_read(int fd) {
    char byte;
    return ::recv(fd, &byte, 1, MSG_PEEK) == -1;
  }
  static int connect_to(admin::Server& to, const std::string& at) {
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(at.begin(), at.end(), address.sun_path);
    EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    poll(to, 10);
    return fd;
  }
  /// Receives until the end of a line or of the connection.
  std::string line(int fd) {
    std::string got;
    char buffer[65536];
    for (int i = 0; i < 1000 && got.find('\n') == std::string::npos; ++i) {
      poll(1);
      const ssize_t bytes = ::recv(fd, buffer, sizeof buffer, 0);
      if (bytes == 0) break;
      if (bytes > 0) got.append(buffer, static_cast<std::size_t>(bytes));
    }
    return got;
  }
  static void say(int fd, const std::string& text) {
    ASSERT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  bool works() {
    const int fd = connect();
    say(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n");
    const bool ok = line(fd).find("\"result\"") != std::string::npos;
    ::close(fd);
    return ok;
  }

  const std::string path = "/tmp/sluice-admin-bad-" + std::to_string(::getpid());
  admin::Registry registry;
  admin::Server server{registry, path, "", own_group(), {}, kForEver};
  std::vector<admin::Answer> slow;  ///< answers not sent yet
};

}  // namespace sluice::admin_test
