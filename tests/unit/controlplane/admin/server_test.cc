// SPDX-License-Identifier: Apache-2.0
//
// Requests and responses of the admin socket, whole, in pieces, malformed, too long, and with descriptors.
#include <fcntl.h>

#include <cstring>
#include <filesystem>

#include "tests/unit/controlplane/admin/server_lab.h"

namespace sluice {
namespace {

using admin::Access;
using namespace admin_test;

TEST_F(AdminSocket, a_method_may_answer_later_and_others_are_answered_meanwhile) {
  const int fd = connect();
  say(fd, std::string(kSlow) + kEcho);
  poll(10);
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_TRUE(works()) << "nobody waits for it";
  char byte;
  EXPECT_EQ(::recv(fd, &byte, 1, 0), -1) << "its own next request waits";
  slow[0].result("late");
  std::string got = line(fd);
  EXPECT_NE(got.find("\"id\":7"), std::string::npos);
  EXPECT_NE(got.find("\"late\""), std::string::npos);
  if (got.find("\"id\":8") == std::string::npos) got = line(fd);
  EXPECT_NE(got.find("\"id\":8"), std::string::npos) << got;
  slow[0].result("again");
  EXPECT_TRUE(works());
  EXPECT_EQ(::recv(fd, &byte, 1, 0), -1) << "one response to one request";
  ::close(fd);
}

TEST_F(AdminSocket, a_late_answer_to_a_client_that_is_gone_is_dropped) {
  for (int i = 0; i < 100; ++i) {
    const int fd = connect();
    say(fd, kSlow);
    poll(10);
    ASSERT_EQ(slow.size(), 1u) << i << " clients have gone";
    ::close(fd);
    poll(10);
    slow[0].result("nobody hears it");
    slow.clear();
  }
  EXPECT_TRUE(works());
}

TEST_F(AdminSocket, a_client_that_has_said_all_gets_its_late_answer) {
  const int fd = connect();
  say(fd, kSlow);
  ::shutdown(fd, SHUT_WR);
  poll(10);
  poll(1);
  ASSERT_EQ(slow.size(), 1u);
  slow[0].problem("It failed.");
  EXPECT_NE(line(fd).find("It failed."), std::string::npos);
  ::close(fd);
}

TEST_F(AdminSocket, what_could_be_late_may_answer_at_once_or_fail) {
  const int fd = connect();
  say(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"slow\",\"params\":{\"at_once\":true}}\n");
  EXPECT_NE(line(fd).find("at once"), std::string::npos);
  say(fd, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"slow\",\"params\":{\"n\":0}}\n");
  EXPECT_NE(line(fd).find("Not zero."), std::string::npos);
  say(fd, "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"slow\",\"params\":{\"n\":\"x\"}}\n");
  EXPECT_NE(line(fd).find("-32602"), std::string::npos);
  say(fd, "{\"jsonrpc\":\"2.0\",\"method\":\"slow\",\"params\":{\"at_once\":true}}\n");
  say(fd, kEcho);
  EXPECT_NE(line(fd).find("\"id\":8"), std::string::npos) << "a notification has no answer";
  ::close(fd);
}

TEST_F(AdminSocket, malformed_requests_get_an_error_each_and_the_connection_goes_on) {
  const int fd = connect();
  for (const char* text :
       {"", "{", "[1,2]", "\"x\"", "{\"jsonrpc\":2}", "{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"echo\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\",\"params\":[1]}", "\x80\xff\xfe",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"typed\",\"params\":{\"n\":\"x\"}}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"typed\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\u0000\"}"}) {
    say(fd, std::string(text) + '\n');
    const std::string answer = line(fd);
    EXPECT_NE(answer.find("\"error\""), std::string::npos) << text << ": " << answer;
  }
  // Nested deeper than a recursive parser can handle.
  say(fd, std::string(30000, '[') + '\n');
  EXPECT_NE(line(fd).find("\"error\""), std::string::npos);
  say(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n");
  EXPECT_NE(line(fd).find("\"result\""), std::string::npos);
  ::close(fd);
}

TEST_F(AdminSocket, requests_may_come_in_pieces_and_several_at_once) {
  const int fd = connect();
  say(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"meth");
  for (int i = 0; i < 5; ++i) poll(10);
  say(fd, "od\":\"echo\"}\n");
  for (int i = 0; i < 5; ++i) poll(10);
  char buffer[512];
  const ssize_t bytes = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(std::count(buffer, buffer + bytes, '\n'), 2);
  ::close(fd);
}

TEST_F(AdminSocket, a_huge_request_is_refused_and_ends_its_connection_only) {
  const int fd = connect();
  const std::string garbage(4 * admin::kMaxRequestBytes, 'x');
  std::size_t sent = 0;
  for (int i = 0; i < 1000 && sent < garbage.size(); ++i) {
    const ssize_t bytes = ::send(fd, garbage.data() + sent, garbage.size() - sent, MSG_NOSIGNAL);
    if (bytes < 0 && errno != EAGAIN) break;
    sent += bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    poll(1);
  }
  EXPECT_NE(line(fd).find("at most"), std::string::npos);
  EXPECT_TRUE(works());
  ::close(fd);
}

TEST_F(AdminSocket, many_requests_at_once_are_not_one_that_is_too_long) {
  constexpr std::ptrdiff_t kMany = 2000;
  std::string requests;
  for (std::ptrdiff_t i = 0; i < kMany; ++i) requests += kEcho;
  ASSERT_GT(requests.size(), admin::kMaxRequestBytes + 8192);
  const int fd = connect();
  say(fd, requests);
  std::ptrdiff_t answers = 0;
  std::string buffer(65536, 0);
  ssize_t bytes = -1;
  for (int round = 0; round < 10 * kMany && answers < kMany && bytes != 0; ++round) {
    poll(0);
    bytes = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (bytes > 0) answers += std::count(buffer.begin(), buffer.begin() + bytes, '\n');
  }
  EXPECT_EQ(answers, kMany);
  ::close(fd);
}

/// Sends `text` with the descriptors of `passed`.
void say_with(int fd, const std::string& text, const std::vector<int>& passed) {
  iovec bytes{const_cast<char*>(text.data()), text.size()};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int) * 16)] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = CMSG_SPACE(sizeof(int) * passed.size());
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int) * passed.size());
  std::memcpy(CMSG_DATA(part), passed.data(), sizeof(int) * passed.size());
  ASSERT_EQ(::sendmsg(fd, &message, MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::ptrdiff_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

TEST_F(AdminSocket, a_descriptor_goes_with_its_request_and_none_is_left_over) {
  bool has = false;
  registry.add_with_descriptor({.name = "take", .needed = Access::Read},
                               [&](const Json&, const FileDescriptor& passed) {
                                 has = static_cast<bool>(passed);
                                 return passed && ::write(passed.get(), "x", 1) == 1;
                               });
  const std::string take = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"take\"}\n";
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_NONBLOCK), 0);
  const int fd = connect();
  const auto before = open_descriptors();
  say_with(fd, take, {pipe[1]});
  EXPECT_NE(line(fd).find("true"), std::string::npos);
  char got = 0;
  EXPECT_EQ(::read(pipe[0], &got, 1), 1);
  say(fd, take);
  EXPECT_NE(line(fd).find("false"), std::string::npos);
  EXPECT_FALSE(has) << "it was for the request before";
  // Too many descriptors, a descriptor for a method without one, and descriptors without a request.
  const std::string echo = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n";
  say_with(fd, echo, std::vector<int>(16, pipe[1]));
  EXPECT_NE(line(fd).find("result"), std::string::npos);
  EXPECT_EQ(open_descriptors(), before);
  for (int i = 0; i < 20; ++i) say_with(fd, "{", {pipe[1]});
  for (int i = 0; i < 20; ++i) poll(1);
  EXPECT_LE(open_descriptors(), before + 1);
  ::close(fd);
  for (int i = 0; i < 5; ++i) poll(1);
  EXPECT_LT(open_descriptors(), before);
  for (const int end : pipe) ::close(end);
}

TEST_F(AdminSocket, a_descriptor_stays_with_its_request_while_that_is_queued) {
  int passed = 0;
  registry.add_later_with_descriptor(
      {.name = "passed", .needed = Access::Read},
      [&passed](const Json&, const FileDescriptor& descriptor, const admin::Answer& answer) {
        passed += static_cast<bool>(descriptor);
        answer.result("received");
      });
  std::vector<int> clients;
  for (std::size_t i = 0; i < admin::kMaxWaitingOfProcess; ++i) {
    clients.push_back(connect());
    say(clients.back(), kSlow);
  }
  poll_often();
  const int fd = connect();
  const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  say_with(fd,
           R"({"jsonrpc":"2.0","id":3,"method":"passed"})"
           "\n",
           {file});
  poll_often();
  EXPECT_EQ(passed, 0);
  slow[0].result("late");
  EXPECT_NE(line(fd).find("received"), std::string::npos);
  EXPECT_EQ(passed, 1);
  ::close(file);
  ::close(fd);
  for (const int client : clients) ::close(client);
}

}  // namespace
}  // namespace sluice
