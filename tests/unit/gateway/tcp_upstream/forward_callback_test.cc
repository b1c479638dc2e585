// SPDX-License-Identifier: Apache-2.0
//
// Calls of the upstream to its client: over TCP to the gateway, over RDMA in the reverse direction (RFC
// 8167), and the answers back.
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

struct Callbacks : testing::TestWithParam<std::uint32_t> {
  static ForwardOptions options() { return {.version = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Forward, Callbacks, testing::Values(1u, 2u),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

Bytes call_back(std::uint32_t xid, std::uint32_t procedure = 0, const Bytes& arguments = {}) {
  Bytes call = conformance::rpc_call(xid, conformance::kTestProgram, 1, procedure);
  append(call, arguments);
  return call;
}

/// A client that has called the upstream, and the upstream's connection to it.
struct Known {
  explicit Known(ForwardLab& lab) : client(lab.add_client()) {
    lab.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
    lab.call(client, {.payload = empty_compound(), .max_reply_bytes = 64});
    connection = lab.upstream.calls.back().connection;
    lab.upstream.calls.clear();
  }
  LabClient& client;
  std::size_t connection = 0;
};

TEST_P(Callbacks, V1_200_a_call_back_is_answered_by_the_client_with_the_upstreams_xid) {
  ForwardLab lab(options());
  Known known(lab);
  Known other(lab);
  lab.upstream.send(known.connection,
                    record(call_back(0xabcd, conformance::TestService::kName, opaque(pattern(100, 1)))));
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  EXPECT_EQ(lab.upstream.calls[0].connection, known.connection);
  EXPECT_EQ(lab.upstream.calls[0].message, success(0xabcd, words({100})));
  EXPECT_EQ(known.client.reverse.executed.size(), 1u);
  EXPECT_TRUE(other.client.reverse.executed.empty());
  EXPECT_EQ(lab.count(Counter::callbacks), 1u);
}

TEST_P(Callbacks, more_of_them_one_after_the_other_than_there_may_be_at_once) {
  ForwardLab lab(options());
  Known known(lab);
  for (std::uint32_t i = 0; i < tcp_upstream::kMaxReverseCalls + 10; ++i) {
    lab.upstream.calls.clear();
    lab.upstream.send(known.connection, record(call_back(5000 + i)));
    ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
    ASSERT_EQ(lab.upstream.calls[0].message, success(5000 + i)) << i;
  }
  EXPECT_EQ(lab.count(Counter::callbacks_refused), 0u);
}

TEST_P(Callbacks, many_at_once_while_calls_go_on) {
  ForwardLab lab(options());
  Known known(lab);
  std::vector<std::uint32_t> wanted;
  for (std::uint32_t i = 0; i < 40; ++i) {
    lab.upstream.send(known.connection, record(call_back(1000 + i)));
    const std::size_t index = known.client.submit({.payload = empty_compound(), .max_reply_bytes = 64});
    ASSERT_TRUE(lab.until([&] { return known.client.finished[index].has_value(); }));
  }
  const auto answers = [&] {
    std::vector<std::uint32_t> xids;
    for (const auto& call : lab.upstream.calls)
      if (word_at(call.message, 1) == 1) xids.push_back(call.xid());
    return xids;
  };
  ASSERT_TRUE(lab.until([&] { return answers().size() == 40; }));
  for (std::uint32_t i = 0; i < 40; ++i) wanted.push_back(1000 + i);
  EXPECT_EQ(answers(), wanted);
}

TEST_P(Callbacks, what_no_client_can_take_is_refused) {
  ForwardLab lab(options());
  Known known(lab);
  // Callbacks on a connection that clients share cannot be assigned to a client.
  lab.call(known.client, {.payload = call_of(0x20000123, 1, 0), .max_reply_bytes = 64});
  const std::size_t shared = lab.upstream.calls.back().connection;
  ASSERT_NE(shared, known.connection);
  lab.upstream.calls.clear();
  lab.upstream.send(shared, record(call_back(7)));
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  EXPECT_EQ(lab.upstream.calls[0].message, words({7, 1, 0, 0, 0, 1}));  // PROG_UNAVAIL
  // The call is longer than the client's Receives, and this direction has no chunks.
  lab.upstream.send(known.connection, record(call_back(8, 0, pattern(20'000, 1))));
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 2; }));
  EXPECT_EQ(lab.upstream.calls[1].message, words({8, 1, 0, 0, 0, 5}));  // SYSTEM_ERR
  EXPECT_EQ(lab.count(Counter::callbacks_refused), 2u);
  // The number of calls exceeds the limit of outstanding calls to one client.
  known.client.reverse.executed.clear();
  for (std::uint32_t i = 0; i < 64; ++i)
    lab.upstream.send(known.connection, record(call_back(100 + i, conformance::TestService::kLater)));
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() >= 2 + 64 - rpcrdma::kCallBacksAtOnce; }));
  for (std::size_t i = 2; i < lab.upstream.calls.size(); ++i)
    EXPECT_EQ(word_at(lab.upstream.calls[i].message, 5), 5u);
}

TEST(ForwardCallback, a_client_that_goes_away_answers_nothing_and_the_next_one_is_not_confused) {
  ForwardLab lab({.callers = 1});
  for (int round = 0; round < 10; ++round) {
    Known known(lab);
    lab.upstream.send(known.connection, record(call_back(5, conformance::TestService::kLater)));
    ASSERT_TRUE(lab.until([&] { return known.client.reverse.held() == 1; }));
    lab.disconnect(known.client);
    ASSERT_TRUE(lab.until([&] { return !lab.upstream.open(known.connection); }));
    EXPECT_TRUE(lab.upstream.calls.empty());
    lab.turns(50);
  }
}

TEST(ForwardCallback, a_connection_that_ends_takes_its_callers_with_it) {
  ForwardLab lab;
  Known known(lab);
  lab.upstream.send(known.connection, record(call_back(5, conformance::TestService::kLater)));
  ASSERT_TRUE(lab.until([&] { return known.client.reverse.held() == 1; }));
  lab.upstream.close(known.connection);
  lab.turns(100);
  known.client.reverse.complete_later();
  lab.turns(100);
  lab.call(known.client, {.payload = empty_compound(), .max_reply_bytes = 64});
  for (const auto& call : lab.upstream.calls)
    EXPECT_EQ(word_at(call.message, 1), 0u);  // only calls, no answer on the new connection
}

TEST(ForwardCallback, clients_beyond_those_that_may_be_called_refuse) {
  ForwardLab lab({.callers = 1});
  Known first(lab);
  Known second(lab);
  for (const Known* known : {&first, &second}) lab.upstream.send(known->connection, record(call_back(5)));
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 2; }));
  for (const auto& call : lab.upstream.calls)
    EXPECT_EQ(word_at(call.message, 5), call.connection == first.connection ? 0u : 5u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
