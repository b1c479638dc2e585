// SPDX-License-Identifier: Apache-2.0
//
// The admin socket, and clients that misbehave.
#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <vector>

#include "controlplane/admin/paced_work.h"
#include "controlplane/admin/server.h"
#include "dataplane/base/setup_error.h"
#include "tests/unit/log/captured_log.h"

namespace sluice {
namespace {

using admin::Access;

/// Unlimited time, in nanoseconds, to read a response.
constexpr std::uint64_t kForEver = ~std::uint64_t{0};

class AdminSocket : public ::testing::Test {
 protected:
  AdminSocket() {
    registry.add({.name = "echo", .needed = Access::Read}, [](const Json& params) { return params; });
    registry.add({.name = "big", .needed = Access::Read},
                 [](const Json&) { return std::string(1 << 20, 'x'); });
    registry.add({.name = "typed", .needed = Access::Read, .parameters = {admin::whole32("n", "a number")}},
                 [](const Json& params) { return params.at("n").get<std::uint32_t>(); });
    registry.add_later({.name = "slow",
                        .needed = Access::Read,
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
    server.poll(10);
    return fd;
  }
  /// Returns the name of the group of this process and of its child processes.
  static std::string own_group() {
    const group* const own = ::getgrgid(::getegid());
    return own != nullptr ? own->gr_name : "";
  }
  void poll_often() {
    for (int i = 0; i < 50; ++i) server.poll(1);
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
    to.poll(10);
    return fd;
  }
  /// Receives until the end of a line or of the connection.
  std::string line(int fd) {
    std::string got;
    char buffer[65536];
    for (int i = 0; i < 1000 && got.find('\n') == std::string::npos; ++i) {
      server.poll(1);
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

constexpr const char* kSlow = R"({"jsonrpc":"2.0","id":7,"method":"slow","params":{"n":1}})"
                              "\n";
constexpr const char* kEcho = R"({"jsonrpc":"2.0","id":8,"method":"echo"})"
                              "\n";

TEST_F(AdminSocket, a_method_may_answer_later_and_others_are_answered_meanwhile) {
  const int fd = connect();
  say(fd, std::string(kSlow) + kEcho);
  server.poll(10);
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
    server.poll(10);
    ASSERT_EQ(slow.size(), 1u) << i << " clients have gone";
    ::close(fd);
    server.poll(10);
    slow[0].result("nobody hears it");
    slow.clear();
  }
  EXPECT_TRUE(works());
}

TEST_F(AdminSocket, a_client_that_has_said_all_gets_its_late_answer) {
  const int fd = connect();
  say(fd, kSlow);
  ::shutdown(fd, SHUT_WR);
  server.poll(10);
  server.poll(1);
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
  for (int i = 0; i < 20; ++i) server.poll(1);
  EXPECT_LE(open_descriptors(), before + 1);
  ::close(fd);
  for (int i = 0; i < 5; ++i) server.poll(1);
  EXPECT_LT(open_descriptors(), before);
  for (const int end : pipe) ::close(end);
}

TEST_F(AdminSocket, a_huge_request_is_refused_and_ends_its_connection_only) {
  const int fd = connect();
  const std::string garbage(4 * admin::kMaxRequestBytes, 'x');
  std::size_t sent = 0;
  for (int i = 0; i < 1000 && sent < garbage.size(); ++i) {
    const ssize_t bytes = ::send(fd, garbage.data() + sent, garbage.size() - sent, MSG_NOSIGNAL);
    if (bytes < 0 && errno != EAGAIN) break;
    sent += bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    server.poll(1);
  }
  EXPECT_NE(line(fd).find("at most"), std::string::npos);
  EXPECT_TRUE(works());
  ::close(fd);
}

TEST_F(AdminSocket, a_slow_reader_is_served_no_more_than_it_reads) {
  const int fd = connect();
  std::string requests;
  for (int i = 0; i < 64; ++i) requests += "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"big\"}\n";
  say(fd, requests);
  for (int i = 0; i < 200; ++i) server.poll(1);
  EXPECT_TRUE(works());
  // The client finally reads, and every answer arrives.
  std::size_t lines = 0;
  char buffer[65536];
  for (int i = 0; i < 100000 && lines < 64; ++i) {
    server.poll(0);
    const ssize_t bytes = ::recv(fd, buffer, sizeof buffer, 0);
    if (bytes == 0) break;
    for (ssize_t b = 0; b < bytes; ++b) lines += buffer[b] == '\n';
  }
  EXPECT_EQ(lines, 64u);
  ::close(fd);
}

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
  for (int i = 0; i < 50; ++i) server.poll(1);
  const int one_more = connect();
  EXPECT_NE(line(one_more).find("Try again later"), std::string::npos);
  ::close(one_more);
  for (const int fd : clients) ::close(fd);
  for (int i = 0; i < 5; ++i) server.poll(1);
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
  server.poll(10);
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

TEST_F(AdminSocket, clients_that_leave_before_their_answer_keep_no_jobs_from_others) {
  admin::PacedWork work;
  int steps = 0;
  registry.add_later({.name = "paced", .needed = Access::Read},
                     [&work, &steps](const Json&, const admin::Answer& answer) {
                       if (!work.add(answer, [&steps](admin::Pace& pace) {
                             ++steps;
                             for (std::uint32_t i = 0; i < admin::kDescribedPerIteration; ++i)
                               pace.describe();
                             return false;
                           }))
                         answer.problem(admin::kTooManyJobs);
                     });
  constexpr const char* kPaced = R"({"jsonrpc":"2.0","id":1,"method":"paced"})"
                                 "\n";
  for (std::size_t i = 0; i < admin::kMaxPacedJobs; ++i) {
    const int fd = connect();
    say(fd, kPaced);
    server.poll(10);
    ::close(fd);
    server.poll(10);
  }
  const int fd = connect();
  say(fd, kPaced);
  poll_often();
  EXPECT_TRUE(has_nothing_to_read(fd)) << "no error: its job is among the others";
  work.run();
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(work.pending());
  ::close(fd);
  server.poll(10);
  work.run();
  EXPECT_FALSE(work.pending()) << "nobody waits any more";
  EXPECT_EQ(steps, 1);
}

TEST_F(AdminSocket, a_job_whose_answer_nobody_receives_is_not_begun) {
  admin::PacedWork work;
  registry.add_later({.name = "paced", .needed = Access::Read},
                     [&work](const Json&, const admin::Answer& answer) {
                       EXPECT_TRUE(work.add(answer, [](admin::Pace&) { return true; }));
                     });
  const int fd = connect();
  for (std::size_t i = 0; i < 2 * admin::kMaxPacedJobs; ++i)
    say(fd, R"({"jsonrpc":"2.0","method":"paced"})"
            "\n");
  poll_often();
  EXPECT_FALSE(work.pending());
  ::close(fd);
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
      for (int turn = 0; turn < 5; ++turn) crowded.poll(1);
    }
    clients.push_back(connect_to(crowded, path + ".crowded"));
    cut_off = crowded.cut_off();
    ::send(clients.back(), kEcho, std::strlen(kEcho), MSG_NOSIGNAL);  // fails where it was refused
    std::string got(4096, 0);
    for (int turn = 0; turn < 5; ++turn) crowded.poll(1);
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

TEST_F(AdminSocket, one_that_asks_without_end_does_not_keep_others_waiting) {
  const int busy = connect();
  std::string requests;
  for (int i = 0; i < 1000; ++i) requests += "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n";
  say(busy, requests);
  const int other = connect();
  say(other, "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"echo\"}\n");
  std::string got;
  char buffer[4096];
  for (int turn = 0; turn < 3 && got.empty(); ++turn) {
    server.poll(1);
    const ssize_t bytes = ::recv(other, buffer, sizeof buffer, 0);
    if (bytes > 0) got.assign(buffer, static_cast<std::size_t>(bytes));
  }
  EXPECT_NE(got.find("\"id\":2"), std::string::npos);
  ::close(busy);
  ::close(other);
}

TEST_F(AdminSocket, requests_may_come_in_pieces_and_several_at_once) {
  const int fd = connect();
  say(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"echo\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"meth");
  for (int i = 0; i < 5; ++i) server.poll(10);
  say(fd, "od\":\"echo\"}\n");
  for (int i = 0; i < 5; ++i) server.poll(10);
  char buffer[512];
  const ssize_t bytes = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(std::count(buffer, buffer + bytes, '\n'), 2);
  ::close(fd);
}

TEST_F(AdminSocket, requests_beyond_the_work_of_an_iteration_wait_for_the_next_one_in_turn) {
  admin::Pace pace;
  server.limit_by(pace);
  std::vector<int> answered;
  registry.add({.name = "list", .needed = Access::Read, .parameters = {admin::whole32("n", "a number")}},
               [&](const Json& params) {
                 answered.push_back(params.at("n").get<int>());
                 for (std::uint32_t i = 0; i < admin::kDescribedPerIteration; ++i) pace.describe();
                 return "done";
               });
  std::vector<int> clients;
  for (int n = 0; n < 3; ++n) clients.push_back(connect());  // which polls
  for (int n = 0; n < 3; ++n) {
    const std::string request =
        R"({"jsonrpc":"2.0","id":1,"method":"list","params":{"n":)" + std::to_string(n) + "}}\n";
    say(clients[static_cast<std::size_t>(n)], request + request);
  }
  for (std::size_t poll = 1; poll <= 6; ++poll) {
    server.poll(0);
    EXPECT_EQ(answered.size(), poll) << "one list uses up the work of a poll";
    if (poll != 3) continue;
    EXPECT_EQ(std::set<int>(answered.begin(), answered.end()).size(), 3u) << "each has one";
  }
  EXPECT_TRUE(works());
  for (const int fd : clients) ::close(fd);
}

TEST_F(AdminSocket, a_poll_answers_a_bounded_number_of_requests) {
  int answered = 0;
  registry.add({.name = "count", .needed = Access::Read}, [&](const Json&) { return ++answered; });
  std::vector<int> clients;
  constexpr int kEach = 100;
  for (int i = 0; i < 8; ++i) clients.push_back(connect());  // which polls
  for (const int fd : clients) {
    std::string requests;
    for (int n = 0; n < kEach; ++n)
      requests += R"({"jsonrpc":"2.0","id":1,"method":"count"})"
                  "\n";
    say(fd, requests);
  }
  for (int before = 0; answered < 8 * kEach; before = answered) {
    server.poll(0);
    ASSERT_GT(answered, before);
    EXPECT_LE(answered - before, admin::kRequestsPerPoll);
  }
  for (const int fd : clients) ::close(fd);
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
  for (int poll = 0; poll < 10 * kMany && answers < kMany && bytes != 0; ++poll) {
    server.poll(0);
    bytes = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (bytes > 0) answers += std::count(buffer.begin(), buffer.begin() + bytes, '\n');
  }
  EXPECT_EQ(answers, kMany);
  ::close(fd);
}

TEST_F(AdminSocket, a_client_that_is_cut_off_is_logged_and_counted) {
  registry.add({.name = "huge", .needed = Access::Read},
               [](const Json&) { return std::string(admin::kMaxUnsentBytes + (1 << 20), 'x'); });
  CapturedLog log;
  const int fd = connect();
  say(fd, R"({"jsonrpc":"2.0","id":1,"method":"huge"})"
          "\n");
  server.poll(10);
  EXPECT_EQ(server.cut_off(), 1u);
  const std::string line = log.text();
  EXPECT_NE(line.find("(process " + std::to_string(::getpid()) + ", user "), std::string::npos) << line;
  EXPECT_NE(line.find("was disconnected"), std::string::npos) << line;
  EXPECT_NE(line.find("Read long lists in pages"), std::string::npos) << line;
  ::close(fd);
  EXPECT_TRUE(works());
  EXPECT_EQ(server.cut_off(), 1u);
}

class AdminPath : public ::testing::Test {
 protected:
  AdminPath() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~AdminPath() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<admin::Server> serve(const admin::Owner& owner = {}) {
    return std::make_unique<admin::Server>(registry_, path(), "", "", owner);
  }
  std::string refusal(const admin::Owner& owner = {}) {
    try {
      serve(owner);
    } catch (const SetupError& error) {
      return error.what();
    }
    return {};
  }
  std::string path() const { return folder_ + "/admin.sock"; }
  bool exists() const { return std::filesystem::exists(path()); }
  std::uint64_t inode() const {
    struct stat status {};
    return ::stat(path().c_str(), &status) == 0 ? status.st_ino : 0;
  }

  const admin::Registry registry_;
  std::string folder_ = "/tmp/sluice-admin-path-XXXXXX";
};

TEST_F(AdminPath, is_taken_when_the_server_is_shown_and_free_after_it) {
  const auto server = serve();
  EXPECT_FALSE(exists());
  server->show();
  EXPECT_TRUE(exists());
}

TEST_F(AdminPath, of_another_segments_control_plane_is_left_alone) {
  const auto first = serve({.segment = "one", .epoch = 7});
  first->show();
  const std::uint64_t before = inode();
  // Neither the first of its segment, nor the successor of a suspended one.
  for (const admin::Owner& other :
       {admin::Owner{"two", 1, 0}, admin::Owner{"two", 7, 0}, admin::Owner{"two", 2, 1},
        admin::Owner{"one", 8, 0}, admin::Owner{"one", 7, 0}, admin::Owner{"one", 9, 8}}) {
    const std::string said = refusal(other);
    EXPECT_NE(said.find("Another control plane serves the admin socket " + path()), std::string::npos)
        << said;
    EXPECT_NE(said.find("Stop it first"), std::string::npos) << said;
  }
  EXPECT_EQ(inode(), before);
}

TEST_F(AdminPath, passes_to_the_successor_of_one_that_is_stopped_which_then_leaves_it_alone) {
  auto stopped = serve({.segment = "one", .epoch = 7});
  stopped->show();
  const std::uint64_t before = inode();
  const auto successor = serve({.segment = "one", .epoch = 8, .predecessor = 7});
  EXPECT_EQ(inode(), before);  // the start may still be refused
  successor->show();
  const std::uint64_t after = inode();
  EXPECT_NE(after, before);
  stopped.reset();
  EXPECT_EQ(inode(), after);
}

TEST_F(AdminPath, a_server_that_was_never_shown_leaves_nothing_but_the_lock) {
  serve();
  const auto all = std::filesystem::directory_iterator(folder_);
  EXPECT_EQ(std::distance(begin(all), end(all)), 1);
}

TEST_F(AdminPath, what_a_killed_one_left_is_replaced) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto killed = serve({.segment = "other"});
    killed->show();
    const auto unused =
        serve({.segment = "other", .epoch = 2, .predecessor = 1});  // killed before it is shown
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(exists());
  const auto server = serve();
  server->show();
  EXPECT_TRUE(exists());
}

TEST_F(AdminPath, that_leads_to_something_else_is_refused_with_a_sentence) {
  std::filesystem::create_directory(path());
  EXPECT_NE(refusal().find("is not a socket. Remove it"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(path()));
  std::filesystem::remove(path());
  std::filesystem::create_directory(path() + ".lock");
  EXPECT_NE(refusal().find("Cannot open " + path() + ".lock"), std::string::npos);
}

TEST(AdminAccess, credentials_decide_what_a_process_may_do) {
  const std::string path = "/tmp/sluice-admin-access-" + std::to_string(::getpid());
  const admin::Registry registry;
  // Groups that every Debian system has.
  admin::Server server(registry, path, "adm", "daemon");
  constexpr std::uint32_t kAdm = 4;
  constexpr std::uint32_t kDaemon = 1;
  constexpr std::uint32_t kStranger = 54321;
  EXPECT_EQ(server.access_of(0, {}), Access::Change);
  EXPECT_EQ(server.access_of(::geteuid(), {}), Access::Change);
  EXPECT_EQ(server.access_of(kStranger, {kAdm}), Access::Change);
  EXPECT_EQ(server.access_of(kStranger, {7, kDaemon}), Access::Read);
  EXPECT_EQ(server.access_of(kStranger, {0, 7}), Access::None);
  EXPECT_THROW(admin::Server(registry, path + "x", "no-such-group-here", ""), SetupError);
  ::unlink((path + ".lock").c_str());
}

}  // namespace
}  // namespace sluice
