// SPDX-License-Identifier: Apache-2.0
//
// Quotas of clients and of outstanding requests: no process or user can occupy all slots of the admin socket.
#include <cstring>

#include "tests/unit/controlplane/admin/server_lab.h"
#include "tests/unit/log/captured_log.h"

namespace sluice {
namespace {

using admin::Access;
using namespace admin_test;

TEST_F(AdminSocket, one_client_too_many_takes_the_place_of_the_one_that_was_silent_longest) {
  std::vector<int> clients;
  for (std::size_t i = 0; i < admin::kMaxClients; ++i) clients.push_back(connect());
  const std::string request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n";
  say(clients[0], request);
  EXPECT_NE(line(clients[0]).find("\"result\""), std::string::npos);
  EXPECT_TRUE(works());
  EXPECT_TRUE(line(clients[1]).empty()) << "closed";
  say(clients[0], request);
  EXPECT_NE(line(clients[0]).find("\"result\""), std::string::npos)
      << "its last request was later than the others'";
  for (const int fd : clients) ::close(fd);
}

TEST_F(AdminSocket, one_client_too_many_is_told_so_where_all_wait_for_answers) {
  std::vector<int> clients;
  for (std::size_t i = 0; i < admin::kMaxClients; ++i) {
    clients.push_back(connect());
    say(clients.back(), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"big\"}\n");
  }
  for (int i = 0; i < 50; ++i) poll(1);
  const int one_more = connect();
  EXPECT_NE(line(one_more).find("Try again later"), std::string::npos);
  ::close(one_more);
  for (const int fd : clients) ::close(fd);
  for (int i = 0; i < 5; ++i) poll(1);
  EXPECT_TRUE(works());
}

TEST_F(AdminSocket, requests_of_a_process_beyond_its_share_are_queued_and_those_of_others_are_not) {
  std::vector<int> clients;
  for (std::size_t i = 0; i < admin::kMaxWaitingClients; ++i) {
    clients.push_back(connect());
    say(clients.back(), kSlow);
  }
  poll_often();
  EXPECT_EQ(slow.size(), admin::kMaxWaitingOfProcess);
  EXPECT_EQ(server.queued(), admin::kMaxWaitingClients - admin::kMaxWaitingOfProcess);
  EXPECT_TRUE(works());
  const int other = connect_from_another_process();
  say(other, kSlow);
  poll(10);
  ASSERT_EQ(slow.size(), admin::kMaxWaitingOfProcess + 1);
  for (std::size_t answered = 0; answered < slow.size(); ++answered) {
    const admin::Answer answer = slow[answered];
    answer.result("late");
    poll_often();
  }
  EXPECT_EQ(slow.size(), clients.size() + 1) << "each queued request has its turn";
  clients.push_back(other);
  for (const int fd : clients) {
    EXPECT_NE(line(fd).find("late"), std::string::npos);
    ::close(fd);
  }
}

TEST_F(AdminSocket, processes_of_a_user_have_half_of_the_places) {
  if (::geteuid() != 0) GTEST_SKIP() << "Only root may start a process of another user.";
  constexpr std::uint32_t kUser = 64'001;
  std::vector<int> clients;
  const auto ask = [&](std::uint32_t user) {
    clients.push_back(connect_from_another_process(user));
    say(clients.back(), kSlow);
    poll_often();
  };
  for (std::size_t i = 0; i <= admin::kMaxWaitingOfUser; ++i) ask(kUser);
  EXPECT_EQ(slow.size(), admin::kMaxWaitingOfUser);
  ask(kUser + 1);
  EXPECT_EQ(slow.size(), admin::kMaxWaitingOfUser + 1);
  for (const int fd : clients) ::close(fd);
}

TEST_F(AdminSocket, a_place_goes_to_the_user_and_the_process_that_have_the_fewest) {
  std::vector<int> clients;
  const auto ask = [&](int fd) {
    clients.push_back(fd);
    say(fd, kSlow);
    poll_often();
  };
  for (std::size_t i = 0; i < admin::kMaxWaitingOfProcess + 1; ++i) ask(connect());
  for (std::size_t i = 0; i < admin::kMaxWaitingOfUser - admin::kMaxWaitingOfProcess; ++i)
    ask(connect_from_another_process());
  ASSERT_EQ(slow.size(), admin::kMaxWaitingOfUser);
  ask(connect_from_another_process());
  const int late_comer = clients.back();
  ASSERT_EQ(slow.size(), admin::kMaxWaitingOfUser) << "the user has its share";
  slow[0].result("late");
  poll_often();
  ASSERT_EQ(slow.size(), admin::kMaxWaitingOfUser + 1);
  slow.back().result("first");
  EXPECT_NE(line(late_comer).find("first"), std::string::npos) << "its process had none waiting";
  for (const int fd : clients) ::close(fd);
}

TEST_F(AdminSocket, a_process_that_has_all_connections_loses_one_to_another_process) {
  CapturedLog log;
  std::vector<int> clients;
  for (std::size_t i = 0; i < admin::kMaxClients; ++i) {
    clients.push_back(connect());
    say(clients.back(), kSlow);
  }
  poll_often();
  const int same = connect();
  EXPECT_NE(line(same).find("Try again later"), std::string::npos);
  const int other = connect_from_another_process();
  say(other, kEcho);
  EXPECT_NE(line(other).find("\"id\":8"), std::string::npos);
  EXPECT_EQ(server.cut_off(), 1u);
  EXPECT_NE(log.take().find("another process needed one"), std::string::npos);
  char byte;
  EXPECT_EQ(::recv(clients.back(), &byte, 1, 0), 0) << "the newest, whose request was queued";
  clients.push_back(same);
  clients.push_back(other);
  for (const int fd : clients) ::close(fd);
}

TEST_F(AdminSocket, who_does_not_read_gives_its_place_to_another) {
  std::uint64_t cut_off = 0;
  CapturedLog log;
  const auto crowd = [this, &cut_off](std::uint64_t max_unread_ns) {
    admin::Server crowded(registry, path + ".crowded", "", "", {}, max_unread_ns);
    crowded.show();
    std::vector<int> clients;
    for (std::size_t i = 0; i < admin::kMaxClients; ++i) {
      clients.push_back(connect_to(crowded, path + ".crowded"));
      say(clients.back(), R"({"jsonrpc":"2.0","id":9,"method":"big"})"
                          "\n");
      for (int turn = 0; turn < 5; ++turn) poll(crowded, 1);
    }
    clients.push_back(connect_to(crowded, path + ".crowded"));
    cut_off = crowded.cut_off();
    ::send(clients.back(), kEcho, std::strlen(kEcho), MSG_NOSIGNAL);  // fails where it was refused
    std::string got(4096, 0);
    for (int turn = 0; turn < 5; ++turn) poll(crowded, 1);
    got.resize(
        static_cast<std::size_t>(std::max<ssize_t>(::recv(clients.back(), got.data(), got.size(), 0), 0)));
    for (const int fd : clients) ::close(fd);
    return got;
  };
  EXPECT_NE(crowd(0).find("\"id\":8"), std::string::npos) << "their time is over";
  EXPECT_EQ(cut_off, 1u);
  EXPECT_NE(log.take().find("It did not read its response"), std::string::npos);
  EXPECT_NE(crowd(kForEver).find("Try again later"), std::string::npos) << "it is not";
  EXPECT_EQ(cut_off, 0u);
  EXPECT_EQ(log.text(), "");
  ::unlink((path + ".crowded.lock").c_str());
}

TEST_F(AdminSocket, a_client_that_is_cut_off_is_logged_and_counted) {
  registry.add({.name = "huge", .needed = Access::Read},
               [](const Json&) { return std::string(admin::kMaxUnsentBytes + (1 << 20), 'x'); });
  CapturedLog log;
  const int fd = connect();
  say(fd, R"({"jsonrpc":"2.0","id":1,"method":"huge"})"
          "\n");
  poll(10);
  EXPECT_EQ(server.cut_off(), 1u);
  const std::string line = log.text();
  EXPECT_NE(line.find("(process " + std::to_string(::getpid()) + ", user "), std::string::npos) << line;
  EXPECT_NE(line.find("was disconnected"), std::string::npos) << line;
  EXPECT_NE(line.find("Read long lists in pages"), std::string::npos) << line;
  ::close(fd);
  EXPECT_TRUE(works());
  EXPECT_EQ(server.cut_off(), 1u);
}

}  // namespace
}  // namespace sluice
