// SPDX-License-Identifier: Apache-2.0
//
// The method that reads slow calls, on rings that the test fills.
#include "controlplane/admin/methods.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/controlplane/lab.h"

namespace sluice::admin {
namespace {

class SlowCallsMethod : public testing::Test {
 protected:
  SlowCallsMethod() { add_slow_calls(registry_, segment_.layout(), config_); }

  void add(std::uint32_t reactor, std::uint64_t ended_ns, std::uint32_t xid, std::uint32_t replied = 1) {
    segment::SlowCallRing& ring = segment_.layout().slow_calls[reactor];
    segment::SlowCall slow{.number = ring.written.load(),
                           .ended_ns = ended_ns,
                           .peer = lab::client(7),
                           .replied = replied,
                           .call = {}};
    slow.call.xid = xid;
    slow.call.program = 100003;
    slow.call.version = 3;
    slow.call.procedure = 6;
    slow.call.total_ns = 1'500'000'000;
    slow.call.state_ns[5] = 1'400'000'000;
    ring.add(slow);
  }
  Json ask(const Json& from = Json::array()) {
    const Json request = {
        {"jsonrpc", "2.0"}, {"id", 1}, {"method", "slow_calls"}, {"params", {{"from", from}}}};
    return Json::parse(registry_.answer(request.dump(), Access::Read));
  }
  static std::vector<std::uint32_t> xids(const Json& answer) {
    std::vector<std::uint32_t> list;
    for (const Json& call : answer["result"]["calls"]) list.push_back(call["xid"].get<std::uint32_t>());
    return list;
  }

  lab::TestSegment segment_{"slow"};
  config::Config config_ = lab::configuration("[reactor]\ncount = 2\n");
  Registry registry_;
};

TEST_F(SlowCallsMethod, calls_of_all_reactors_come_in_the_order_of_their_ends) {
  add(0, 30, 1);
  add(1, 10, 2);
  add(1, 40, 3);
  const Json answer = ask();
  EXPECT_EQ(xids(answer), (std::vector<std::uint32_t>{2, 1, 3}));
  EXPECT_EQ(answer["result"]["next"], (Json{1, 2}));
  EXPECT_EQ(answer["result"]["missed"], 0);
  const Json& call = answer["result"]["calls"][1];
  EXPECT_EQ(call["peer"], "192.0.2.7");
  EXPECT_EQ(call["procedure"], "100003.3.6");
  EXPECT_EQ(call["total_us"], 1'500'000.0);
  EXPECT_EQ(call["states_us"], (Json{{"executing", 1'400'000.0}}));
  EXPECT_FALSE(call.contains("upstream_us"));
}

TEST_F(SlowCallsMethod, a_reader_goes_on_where_it_was) {
  add(0, 30, 1);
  const Json next = ask()["result"]["next"];
  EXPECT_TRUE(xids(ask(next)).empty());
  add(0, 40, 2);
  EXPECT_EQ(xids(ask(next)), std::vector<std::uint32_t>{2});
}

TEST_F(SlowCallsMethod, what_was_overwritten_is_missed_by_who_had_read_some_of_it) {
  for (std::uint32_t i = 0; i < segment::SlowCallRing::kRecords + 10; ++i) add(0, i, i);
  EXPECT_EQ(ask()["result"]["missed"], 0) << "who comes new misses nothing";
  const Json answer = ask({4, 0});
  EXPECT_EQ(answer["result"]["missed"], 6);
  EXPECT_EQ(answer["result"]["calls"].size(), kSlowCallsPerAnswer);
  EXPECT_EQ(xids(answer).front(), 10u);
  EXPECT_EQ(answer["result"]["next"], (Json{10 + kSlowCallsPerAnswer, 0}));
}

/// The reactor has wrapped around the ring after the reader loaded the count.
TEST_F(SlowCallsMethod, a_record_with_another_number_is_missed) {
  add(0, 1, 1);
  segment::SlowCall other = *segment_.layout().slow_calls[0].records[0].read();
  other.number = segment::SlowCallRing::kRecords;
  segment_.layout().slow_calls[0].records[0].write(other);
  const Json answer = ask();
  EXPECT_TRUE(xids(answer).empty());
  EXPECT_EQ(answer["result"]["missed"], 1);
}

TEST_F(SlowCallsMethod, a_number_that_the_ring_has_not_reached_is_of_another_file) {
  add(0, 1, 1);
  EXPECT_EQ(xids(ask({1'000'000, 5})), std::vector<std::uint32_t>{1});
}

TEST_F(SlowCallsMethod, a_call_whose_connection_was_lost_has_no_other_status) {
  add(0, 1, 1, 0);
  EXPECT_EQ(ask()["result"]["calls"][0]["status"], "connection_lost");
}

TEST_F(SlowCallsMethod, whatever_the_data_plane_writes_is_shown_within_bounds) {
  segment::SlowCall wild{.number = 0, .peer = {}, .client_class = 0xffffffff, .replied = 77, .call = {}};
  wild.call.status = static_cast<segment::CallStatus>(0xff);
  wild.call.state_ns.fill(~std::uint64_t{0});
  segment_.layout().slow_calls[0].add(wild);
  segment_.layout().slow_calls[1].written = ~std::uint64_t{0};
  const Json answer = ask();
  EXPECT_EQ(answer["result"]["calls"][0]["class"], "default") << answer;
  EXPECT_NE(ask(Json{"x"}).value("error", Json()), Json()) << "a word is no number";
}

}  // namespace
}  // namespace sluice::admin
