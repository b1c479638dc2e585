// SPDX-License-Identifier: Apache-2.0
//
// Clients that make more requests than an iteration serves, or whose responses are long.
#include <set>

#include "controlplane/admin/paced_work.h"
#include "tests/unit/controlplane/admin/server_lab.h"

namespace sluice {
namespace {

using admin::Access;
using namespace admin_test;

TEST_F(AdminSocket, a_slow_reader_is_served_no_more_than_it_reads) {
  const int fd = connect();
  std::string requests;
  for (int i = 0; i < 64; ++i) requests += "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"big\"}\n";
  say(fd, requests);
  for (int i = 0; i < 200; ++i) poll(1);
  EXPECT_TRUE(works());
  // The client finally reads, and every answer arrives.
  std::size_t lines = 0;
  char buffer[65536];
  for (int i = 0; i < 100000 && lines < 64; ++i) {
    poll(0);
    const ssize_t bytes = ::recv(fd, buffer, sizeof buffer, 0);
    if (bytes == 0) break;
    for (ssize_t b = 0; b < bytes; ++b) lines += buffer[b] == '\n';
  }
  EXPECT_EQ(lines, 64u);
  ::close(fd);
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
    poll(1);
    const ssize_t bytes = ::recv(other, buffer, sizeof buffer, 0);
    if (bytes > 0) got.assign(buffer, static_cast<std::size_t>(bytes));
  }
  EXPECT_NE(got.find("\"id\":2"), std::string::npos);
  ::close(busy);
  ::close(other);
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
  for (std::size_t round = 1; round <= 6; ++round) {
    poll(0);
    EXPECT_EQ(answered.size(), round) << "one list uses up the work of a poll";
    if (round != 3) continue;
    EXPECT_EQ(std::set<int>(answered.begin(), answered.end()).size(), 3u) << "each has one";
  }
  EXPECT_TRUE(works());
  for (const int fd : clients) ::close(fd);
}

TEST_F(AdminSocket, the_loop_does_not_wait_while_a_request_is_unanswered) {
  const auto wake_ns = [this] {
    PollSet set;
    server.prepare(set);
    return set.wake_ns();
  };
  const int fd = connect();
  EXPECT_EQ(wake_ns(), PollSet::kNever);
  std::string requests;
  for (int i = 0; i < admin::kRequestsPerTurn + 1; ++i) requests += kEcho;
  say(fd, requests);
  poll(10);
  EXPECT_EQ(wake_ns(), 0u) << "one is left";
  poll(0);
  EXPECT_EQ(wake_ns(), PollSet::kNever);
  ::close(fd);
}

TEST_F(AdminSocket, the_loop_does_not_wait_while_a_queued_request_may_run) {
  std::vector<int> clients;
  for (std::size_t i = 0; i <= admin::kMaxWaitingOfProcess; ++i) {
    clients.push_back(connect());
    say(clients.back(), kSlow);
  }
  poll_often();
  ASSERT_EQ(server.queued(), 1u);
  PollSet full;
  server.prepare(full);
  EXPECT_EQ(full.wake_ns(), PollSet::kNever);
  slow[0].result("late");
  PollSet free;
  server.prepare(free);
  EXPECT_EQ(free.wake_ns(), 0u);
  for (const int client : clients) ::close(client);
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
    poll(0);
    ASSERT_GT(answered, before);
    EXPECT_LE(answered - before, admin::kRequestsPerPoll);
  }
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
    poll(10);
    ::close(fd);
    poll(10);
  }
  const int fd = connect();
  say(fd, kPaced);
  poll_often();
  EXPECT_TRUE(has_nothing_to_read(fd)) << "no error: its job is among the others";
  work.run();
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(work.pending());
  ::close(fd);
  poll(10);
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

}  // namespace
}  // namespace sluice
