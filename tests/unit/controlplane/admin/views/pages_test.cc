// SPDX-License-Identifier: Apache-2.0
//
// Listings in pages: each connection is listed once, and an iteration of the loop reads a bounded number of
// connections.
#include "controlplane/admin/views/connections.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controlplane/admin/methods.h"
#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

constexpr std::uint32_t kMany = 300;

class Pages : public ::testing::Test {
 protected:
  Pages() {
    config_.block.reactors = 2;
    config_.block.max_connections = segment::kMaxConnections;
    for (std::uint32_t number = 0; number < kMany; ++number) segment_.publish(number, lab::client(10), 0, 7);
    add_segment_views(registry_, segment_.layout(), config_, {pace_, work_});
  }
  void open_on_reactor_1(std::uint32_t number) {
    segment::ReactorArea& area = segment_.layout().reactors[1];
    area.use[number].open = segment::ConnectionUse::kOfClient;
    area.connections[number].write({.state = segment::ConnectionState::Open, .incarnation = 1, .peer = {}});
  }
  void close(std::uint32_t number) {
    segment_.publish(number, lab::client(10), 0, 0, segment::ConnectionState::Unused);
  }
  /// Calls a method in a new iteration.
  Json ask(const std::string& method, const Json& parameters = Json::object()) {
    pace_.begin_iteration();
    const Json request = {{"jsonrpc", "2.0"}, {"id", 7}, {"method", method}, {"params", parameters}};
    const std::string at_once = registry_.answer(request.dump(), Access::Read, {}, [this] {
      return [this](const std::string& line) { late_ = line; };
    });
    return at_once.empty() ? Json() : Json::parse(at_once);
  }
  void expect_bounded(const Pace& pace) {
    EXPECT_LE(pace.looked(), kLookedPerIteration);
    EXPECT_LE(pace.described(), kDescribedPerIteration);
  }
  /// Runs the work until the answer is complete. Returns the number of iterations.
  int run() {
    int iterations = 0;
    for (; work_.pending(); ++iterations) {
      work_.run();
      expect_bounded(work_.pace());
    }
    return iterations;
  }

  lab::TestSegment segment_{"pages"};
  config::Config config_ = lab::configuration();
  Pace pace_;
  PacedWork work_;
  Registry registry_;
  std::string late_;
};

TEST_F(Pages, a_connection_that_stays_open_is_listed_once_while_others_come_and_go) {
  std::map<std::uint64_t, int> listed;
  Json from = 0u;
  int pages = 0;
  for (; !from.is_null(); ++pages) {
    const Json page = ask("connections_read", {{"from", from}})["result"];
    expect_bounded(pace_);
    EXPECT_LE(page["connections"].size(), kMaxPageRows);
    for (const Json& row : page["connections"])
      ++listed[position_of(row["reactor"].get<std::uint32_t>(), row["connection"].get<std::uint32_t>())];
    from = page["next"];
    close(5);          // was listed
    close(kMany - 2);  // was not listed yet
    segment_.publish(3 * kMany, lab::client(11), 0, 1);
  }
  EXPECT_GT(pages, 2);
  EXPECT_EQ(listed.size(), kMany) << "all but one of before, and the new one";
  for (const auto& [position, times] : listed) EXPECT_EQ(times, 1) << position;
  EXPECT_EQ(listed.count(kMany - 2), 0u);
}

TEST_F(Pages, a_page_goes_on_at_the_next_reactor) {
  open_on_reactor_1(segment::kMaxConnections - 1);
  Json page;
  Json from = position_of(0, kMany - 1);
  int rows = 0;
  for (; !from.is_null(); from = page["next"]) {
    page = ask("connections_read", {{"from", from}})["result"];
    for (const Json& row : page["connections"]) {
      EXPECT_EQ(row["reactor"], rows++);
      EXPECT_EQ(row["connection"], rows == 1 ? kMany - 1 : segment::kMaxConnections - 1);
    }
  }
  EXPECT_EQ(rows, 2);
}

TEST_F(Pages, a_filter_that_excludes_all_is_bounded_by_what_is_looked_at) {
  const Json page = ask("connections_read", {{"peer", "192.0.2.99"}})["result"];
  EXPECT_TRUE(page["connections"].empty());
  EXPECT_EQ(page["next"], position_of(0, kLookedPerIteration));
  EXPECT_EQ(pace_.looked(), kLookedPerIteration);
}

TEST_F(Pages, requests_of_one_iteration_share_its_work) {
  EXPECT_EQ(ask("connections_read")["result"]["connections"].size(), kMaxPageRows);
  const Page rest = connections(segment_.layout(), config_, {}, 0, kMaxPageRows, pace_);
  EXPECT_EQ(rest.rows.size(), 0u);
  EXPECT_EQ(rest.next, 0u) << "it goes on where it has not begun";
}

TEST_F(Pages, any_position_is_valid_and_a_page_may_be_small) {
  for (const std::uint64_t from : {position_of(2, 0), position_of(1, ~0u), ~std::uint64_t{0}}) {
    const Json page = ask("connections_read", {{"from", from}})["result"];
    EXPECT_TRUE(page["connections"].empty()) << from;
    EXPECT_TRUE(page["next"].is_null()) << from;
  }
  const Json page = ask("connections_read", {{"from", 2}, {"count", 3}})["result"];
  ASSERT_EQ(page["connections"].size(), 3u);
  EXPECT_EQ(page["connections"][0]["connection"], 2);
  EXPECT_EQ(page["next"], 5);
  EXPECT_TRUE(ask("connections_read", {{"count", kMaxPageRows + 1}}).contains("error"));
}

TEST_F(Pages, the_whole_list_is_made_in_several_iterations) {
  EXPECT_TRUE(ask("connections").is_null());
  EXPECT_EQ(pace_.looked(), 0u) << "nothing is done at once";
  EXPECT_GT(run(), 2);
  const Json answer = Json::parse(late_);
  EXPECT_EQ(answer["id"], 7);
  ASSERT_EQ(answer["result"].size(), kMany);
  EXPECT_EQ(answer["result"][kMany - 1]["connection"], kMany - 1);
  ask("properties");
  run();
  EXPECT_EQ(Json::parse(late_)["result"], Json::array()) << "all are of version 1";
}

TEST_F(Pages, a_list_that_is_too_long_names_the_method_with_pages) {
  for (std::uint32_t number = 0; number + kMany <= kMaxListedAtOnce; ++number) open_on_reactor_1(number);
  ask("connections");
  run();
  EXPECT_NE(Json::parse(late_)["error"]["message"].get<std::string>().find("'connections_read'"),
            std::string::npos)
      << late_;
}

TEST_F(Pages, jobs_are_limited_and_take_turns) {
  std::vector<int> steps;
  const Answer awaited(nullptr, [](const std::string&) {});
  for (int job = 0; job < static_cast<int>(kMaxPacedJobs); ++job)
    EXPECT_TRUE(work_.add(awaited, [&steps, job](Pace& pace) {
      steps.push_back(job);
      for (std::uint32_t i = 0; i < kDescribedPerIteration; ++i) pace.describe();
      return steps.size() > kMaxPacedJobs;
    }));
  EXPECT_TRUE(ask("connections").is_null());
  EXPECT_NE(late_.find("overloaded"), std::string::npos) << late_;
  EXPECT_EQ(run(), 2 * static_cast<int>(kMaxPacedJobs));
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], i % kMaxPacedJobs);
}

TEST_F(Pages, sums_of_credits_are_made_in_several_iterations) {
  open_on_reactor_1(9);
  const policy::CreditController keeper(segment_.layout(), config_.credit_settings());
  const Answer answer(1, [this](const std::string& line) { late_ = line; });
  answer_credits(work_, answer, {segment_.layout(), config_, keeper, lab::kSecondNs});
  EXPECT_EQ(run(), 2 * segment::kMaxConnections / kLookedPerIteration);
  const Json result = Json::parse(late_)["result"];
  EXPECT_EQ(result["reactors"][0]["granted"], 7 * kMany);
  EXPECT_EQ(result["reactors"][1]["connections"], 1);
  EXPECT_EQ(result["classes"][0]["connections"], kMany + 1);
}

}  // namespace
}  // namespace sluice::admin
