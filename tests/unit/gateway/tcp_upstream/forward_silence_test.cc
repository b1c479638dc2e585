// SPDX-License-Identifier: Apache-2.0
//
// Silent upstreams with hard mounts. No client gets an answer that no server has sent; a call waits, is sent
// again, or has its client's connection closed, so that the client retransmits it.
#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

/// One client with one call at an upstream that does not answer it.
struct LivenessTimer : testing::Test {
  explicit LivenessTimer(std::uint64_t call_timeout_ns = 0)
      : lab({.shared_connections = 1, .call_timeout_ns = call_timeout_ns}), client(lab.add_client()) {
    client.submit({.payload = plain(5), .max_reply_bytes = 64});
    EXPECT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  }
  /// Advances the clock; the gateway examines its connections every second.
  void wait(std::uint64_t seconds) {
    for (std::uint64_t i = 0; i < seconds; ++i) {
      lab.pass(kSecond);
      lab.turns(4);
    }
  }
  bool answered() { return client.finished[0].has_value(); }
  std::size_t nulls() const {
    return static_cast<std::size_t>(
        std::count_if(lab.upstream.calls.begin(), lab.upstream.calls.end(), is_null));
  }

  const std::uint64_t begun_ns = ForwardLab::clock();  ///< before the call is sent
  ForwardLab lab;
  LabClient& client;
};

TEST_F(LivenessTimer, no_call_ends_because_time_has_passed) {
  lab.upstream.answer = [](const auto& call) { return is_null(call) ? success(call.xid()) : Bytes{}; };
  wait(1000);
  EXPECT_FALSE(answered());
  EXPECT_TRUE(lab.ends.empty());
  EXPECT_EQ(lab.count(Counter::timeouts), 0u);
  lab.upstream.send(0, record(echo(lab.upstream.calls[0])));
  ASSERT_TRUE(lab.until([&] { return answered(); }));
  EXPECT_EQ(word_at(client.finished[0]->message, 6), 5u);
}

TEST_F(LivenessTimer, an_upstream_that_gives_a_sign_of_life_is_left_in_peace) {
  lab.upstream.answer = [](const auto& call) { return is_null(call) ? success(call.xid()) : Bytes{}; };
  wait(tcp_upstream::kSilenceNs / kSecond - 2);
  EXPECT_EQ(nulls(), 0u) << "not yet";
  wait(4);
  ASSERT_EQ(nulls(), 1u);
  EXPECT_EQ(lab.upstream.calls.back().message.size(), rpc::kMinCallBytes);
  EXPECT_EQ(word_at(lab.upstream.calls.back().message, 3), 0x20000123u) << "of the program that it serves";
  EXPECT_NE(lab.upstream.calls.back().xid(), lab.upstream.calls.front().xid());
  wait(600);
  EXPECT_GT(nulls(), 600 * kSecond / tcp_upstream::kSilenceNs / 2) << "again and again";
  EXPECT_EQ(lab.count(Counter::probes), nulls());
  EXPECT_EQ(lab.count(Counter::silent_resets), 0u);
  EXPECT_EQ(lab.count(Counter::unmatched_replies), 0u);
  EXPECT_EQ(lab.upstream.connections(), 1u);
}

TEST_F(LivenessTimer, a_connection_on_which_nothing_comes_back_is_made_again) {
  const auto first = lab.upstream.calls[0];
  wait((tcp_upstream::kSilenceNs + tcp_upstream::kFirstProbeAnswerNs) / kSecond - 3);
  EXPECT_EQ(lab.upstream.connections(), 1u);
  wait(6);
  ASSERT_EQ(lab.upstream.connections(), 2u);
  EXPECT_EQ(lab.count(Counter::silent_resets), 1u);
  EXPECT_FALSE(lab.upstream.open(first.connection));
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.back().message == first.message; }))
      << "with its XID";
  EXPECT_EQ(lab.upstream.peer_port(1), lab.upstream.peer_port(0)) << "by which the upstream knows it";
  lab.upstream.send(1, record(echo(lab.upstream.calls.back())));
  ASSERT_TRUE(lab.until([&] { return answered(); }));
  EXPECT_EQ(word_at(client.finished[0]->message, 6), 5u);
}

TEST_F(LivenessTimer, an_upstream_that_needs_longer_is_given_longer_each_time) {
  std::vector<std::uint64_t> ends;
  for (std::uint64_t second = 0; ends.size() < 3 && second < 1000; ++second) {
    wait(1);
    if (lab.count(Counter::silent_resets) > ends.size()) ends.push_back(second);
  }
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_GT(ends[2] - ends[1], ends[1] - ends[0] + tcp_upstream::kFirstProbeAnswerNs / kSecond);
}

TEST_F(LivenessTimer, an_upstream_that_waits_for_nobody_is_not_asked) {
  lab.upstream.send(0, record(echo(lab.upstream.calls[0])));
  ASSERT_TRUE(lab.until([&] { return answered(); }));
  wait(100);
  EXPECT_EQ(lab.count(Counter::probes), 0u);
  EXPECT_EQ(lab.upstream.connections(), 1u);
}

constexpr std::uint64_t kLimitNs = 100 * kSecond;

struct Limited : LivenessTimer {
  Limited() : LivenessTimer(kLimitNs) {}
};

TEST_F(Limited, a_call_that_has_waited_for_the_configured_time_ends_its_clients_connection) {
  lab.upstream.answer = [](const auto& call) { return is_null(call) ? success(call.xid()) : Bytes{}; };
  LabClient& other = lab.add_client();
  for (int seconds = 0; seconds < 110 && lab.ends.empty(); ++seconds) wait(1);
  ASSERT_EQ(lab.ends.size(), 1u);
  EXPECT_GE(ForwardLab::clock() - begun_ns, kLimitNs);
  EXPECT_EQ(lab.ends[0], rpcrdma::CloseReason::Unanswerable);
  EXPECT_FALSE(answered()) << "nobody has said SYSTEM_ERR";
  EXPECT_EQ(lab.count(Counter::timeouts), 1u);
  // Other clients are not affected.
  lab.upstream.answer = echo;
  EXPECT_EQ(lab.call(other, {.payload = plain(7), .max_reply_bytes = 64}).status, CallStatus::Ok);
}

TEST(XidTable, gives_out_every_xid_before_one_comes_again) {
  tcp_upstream::XidTable table(4, 0xffffff00);
  std::vector<tcp_upstream::ForwardedCall> calls(4);
  for (tcp_upstream::ForwardedCall& call : calls) {
    call.xid = table.next();
    table.add(call);
  }
  // Four calls are never answered. The table skips each of them when it reaches its slot, and gives out all
  // other XIDs.
  std::uint32_t last = calls[3].xid;
  for (int i = 0; i < 10'000; ++i) {
    const std::uint32_t next = table.next();
    const std::uint32_t step = next - last;
    ASSERT_TRUE(step == 1 || step == 5) << i;
    ASSERT_EQ(table.find(next), nullptr);
    last = next;
  }
  for (tcp_upstream::ForwardedCall& call : calls) EXPECT_EQ(table.find(call.xid), &call);
  EXPECT_EQ(table.find(calls[0].xid + 8), nullptr) << "the same slot";
  table.remove(calls[0]);
  EXPECT_EQ(table.find(calls[0].xid), nullptr);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
