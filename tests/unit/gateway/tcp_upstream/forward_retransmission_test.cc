// SPDX-License-Identifier: Apache-2.0
//
// Upstreams that lose a call or its reply, and answer others. Each call has its own retransmission timer (RFC
// 5531, section 9; RFC 7530, section 3.1.1).
#include <map>

#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

Bytes empty_results(const FakeUpstream::Call& call) {
  return success(call.xid(), words({0, 0, 0}));
}

struct Retransmission : testing::Test {
  ForwardLab lab{{.shared_connections = 1}};
  LabClient& client = warmed_client(lab);

  /// Advances the clock; the gateway examines its connections every second.
  void wait(std::uint64_t seconds) {
    for (std::uint64_t i = 0; i < seconds; ++i) {
      lab.pass(kSecond);
      lab.turns(4);
    }
  }
  /// Makes the upstream answer NULL only, so that it is alive.
  void answer_null() {
    lab.upstream.answer = [](const auto& call) { return is_null(call) ? success(call.xid()) : Bytes{}; };
  }
  std::size_t times_seen(const Bytes& message) const {
    return static_cast<std::size_t>(
        std::count_if(lab.upstream.calls.begin(), lab.upstream.calls.end(),
                      [&](const FakeUpstream::Call& call) { return call.message == message; }));
  }
};

TEST_F(Retransmission, a_dropped_call_is_sent_again_on_its_shared_connection_with_its_xid) {
  answer_null();
  client.submit({.payload = plain(5), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  const FakeUpstream::Call first = lab.upstream.calls[0];
  wait(gateway::kRetransmitNs / kSecond - 2);
  EXPECT_EQ(times_seen(first.message), 1u) << "not yet";
  wait(4);
  EXPECT_EQ(times_seen(first.message), 2u);
  wait(gateway::kRetransmitNs / kSecond);
  EXPECT_EQ(times_seen(first.message), 2u) << "the timeout has doubled";
  wait(gateway::kRetransmitNs / kSecond + 2);
  EXPECT_EQ(times_seen(first.message), 3u);
  EXPECT_EQ(lab.count(Counter::retransmissions), 2u);
  EXPECT_EQ(lab.upstream.calls.back().connection, first.connection);
  lab.upstream.send(first.connection, record(echo(first)));
  ASSERT_TRUE(lab.until([&] { return all_finished(client); }));
  EXPECT_EQ(client.finished[0]->status, CallStatus::Ok);
}

TEST_F(Retransmission, an_upstream_that_answers_nothing_gets_no_call_twice_on_a_connection) {
  client.submit({.payload = plain(5), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  wait(1000);
  EXPECT_EQ(lab.count(Counter::retransmissions), 0u);
  EXPECT_GT(lab.count(Counter::silent_resets), 0u) << "the liveness timer has replaced the connection";
}

TEST_F(Retransmission, nfs_version_4_retransmits_on_a_new_connection_only) {
  answer_null();
  client.submit({.payload = empty_compound(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  const FakeUpstream::Call first = lab.upstream.calls[0];
  wait(gateway::kUnansweredNs / kSecond - 2);
  EXPECT_EQ(times_seen(first.message), 1u) << "it is more likely to be slow";
  wait(4);
  ASSERT_EQ(times_seen(first.message), 2u);
  EXPECT_FALSE(lab.upstream.open(first.connection));
  EXPECT_NE(lab.upstream.calls.back().connection, first.connection);
}

TEST_F(Retransmission, a_call_dropped_after_a_lost_connection_is_sent_again_soon) {
  answer_null();
  client.submit({.payload = empty_compound(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  const FakeUpstream::Call first = lab.upstream.calls[0];
  lab.upstream.close(first.connection);
  wait(2);
  ASSERT_EQ(times_seen(first.message), 2u);
  wait(gateway::kRetransmitNs / kSecond + 2);
  EXPECT_EQ(times_seen(first.message), 3u);
}

/// A server with a duplicate request cache, which loses some of the messages that it receives or sends.
class LossyServer {
 public:
  /// Bit i of `lost` makes the server lose message i. Calls and replies are counted together.
  explicit LossyServer(std::uint32_t lost) : lost_(lost) {}

  Bytes answer(const FakeUpstream::Call& call) {
    if (is_null(call)) return success(call.xid());
    if (loses_next()) return {};
    ++executed_[call.xid()].arrivals;
    if (executed_[call.xid()].arrivals == 1) ++executions;
    if (loses_next()) return {};
    return empty_results(call);
  }

  std::uint32_t executions = 0;

 private:
  struct Known {
    std::uint32_t arrivals = 0;
  };
  bool loses_next() { return number_ < 32 && (lost_ >> number_++ & 1) != 0; }

  const std::uint32_t lost_;
  std::uint32_t number_ = 0;
  std::map<std::uint32_t, Known> executed_;
};

struct AnySubset : testing::TestWithParam<std::uint32_t> {};

TEST_P(AnySubset, of_messages_may_be_lost_and_each_call_is_answered_after_one_execution) {
  constexpr std::uint32_t kCalls = 3;
  constexpr std::uint64_t kBoundSeconds = 8 * gateway::kUnansweredNs / kSecond;
  ForwardLab lab({.shared_connections = 1});
  LabClient& client = warmed_client(lab);
  LossyServer server(GetParam());
  lab.upstream.answer = [&](const FakeUpstream::Call& call) { return server.answer(call); };
  for (std::uint32_t i = 0; i < kCalls; ++i)
    client.submit({.payload = i % 2 == 0 ? plain(i) : empty_compound(), .max_reply_bytes = 64});
  for (std::uint64_t second = 0; second < kBoundSeconds && !all_finished(client); ++second) {
    lab.pass(kSecond);
    lab.turns(4);
  }
  ASSERT_TRUE(all_finished(client));
  for (const auto& outcome : client.finished) EXPECT_EQ(outcome->status, CallStatus::Ok);
  EXPECT_EQ(server.executions, kCalls);
  EXPECT_TRUE(lab.ends.empty()) << "no client was disconnected";
}

INSTANTIATE_TEST_SUITE_P(OfMessages, AnySubset, testing::Range(0u, 64u));

}  // namespace
}  // namespace sluice::tcp_upstream_test
