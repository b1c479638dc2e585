// SPDX-License-Identifier: Apache-2.0
//
// A reload changes the settings of an upstream that is served. Calls in progress are answered, and the
// clients stay connected.
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

struct ForwardSettings : testing::Test {
  explicit ForwardSettings(ForwardOptions options = {.shared_connections = 1, .most_connections = 3})
      : lab(std::move(options)), settings(slot().offered()) {}

  tcp_upstream::UpstreamSlot& slot() { return *lab.upstreams->place(0); }
  void apply() {
    slot().offer(settings);
    EXPECT_FALSE(slot().settled());
    lab.turn();
    EXPECT_TRUE(slot().settled());
  }
  /// Returns the upstream's connection over which a call of the client arrived.
  std::size_t connection_of(LabClient& client) {
    lab.upstream.answer = echo;
    EXPECT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
    return lab.upstream.calls.back().connection;
  }
  /// Passes the time of a round over the connections.
  void pass_round() {
    for (int i = 0; i < 20; ++i) {
      lab.pass(tcp_upstream::kCreditIntervalNs / 8);
      lab.turns(4);
    }
  }

  ForwardLab lab;
  tcp_upstream::UpstreamSettings settings;
};

TEST_F(ForwardSettings, further_connections_are_used_and_surplus_ones_are_closed_after_their_calls) {
  LabClient& first = lab.add_client();
  LabClient& second = lab.add_client();
  const std::size_t only = connection_of(first);
  EXPECT_EQ(connection_of(second), only);
  settings.connections = 2;
  apply();
  EXPECT_EQ(connection_of(first), only);
  const std::size_t other = connection_of(second);
  EXPECT_NE(other, only);

  lab.upstream.answer = nullptr;
  const std::size_t asked = second.submit({.payload = plain(7), .max_reply_bytes = 64});
  const std::size_t before = lab.upstream.calls.size();
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() > before; }));
  ASSERT_EQ(lab.upstream.calls.back().connection, other);
  settings.connections = 1;
  apply();
  pass_round();
  EXPECT_TRUE(lab.upstream.open(other)) << "a call is outstanding on it";
  lab.upstream.send(other, record(echo(lab.upstream.calls.back())));
  ASSERT_TRUE(lab.until([&] { return second.finished[asked].has_value(); }));
  EXPECT_EQ(word_at(second.finished[asked]->message, 6), 7u);
  pass_round();
  EXPECT_FALSE(lab.upstream.open(other));
  EXPECT_EQ(connection_of(second), only);
  EXPECT_TRUE(lab.ends.empty()) << "no client is disconnected";
}

TEST_F(ForwardSettings, connections_stay_within_what_was_allocated) {
  std::vector<LabClient*> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(&lab.add_client());
  settings.connections = 64;
  apply();
  for (LabClient* const client : clients) connection_of(*client);
  EXPECT_EQ(lab.upstream.connections(), 3u);
  settings.connections = 0;
  apply();
  pass_round();
  for (LabClient* const client : clients) connection_of(*client);
  EXPECT_EQ(lab.upstream.connections(), 3u) << "one is used, which was open";
}

TEST_F(ForwardSettings, a_time_limit_ends_calls_from_then_on) {
  LabClient& client = warmed_client(lab);
  client.submit({.payload = plain(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  lab.pass(6 * kSecond);
  pass_round();
  EXPECT_TRUE(lab.ends.empty());
  settings.call_timeout_ns = 5 * kSecond;
  apply();
  pass_round();
  EXPECT_EQ(lab.ends.size(), 1u);
  EXPECT_EQ(lab.count(Counter::timeouts), 1u);
}

TEST_F(ForwardSettings, what_is_withheld_changes) {
  constexpr std::uint32_t kGetAttrNumber = 9, kLocations = 1u << 24, kSupported = 1;
  LabClient& client = lab.add_client();
  const auto asked = [&] {
    lab.upstream.answer = [](const auto& call) {
      return success(call.xid(), words({0, 0, 1, kGetAttrNumber, 0, 1, kSupported, 8, 1, kLocations | 9}));
    };
    const Outcome outcome =
        lab.call(client, {.payload = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound,
                                             words({0, 1, 1, kGetAttrNumber, 1, kLocations | kSupported})),
                          .max_reply_bytes = 2000});
    const Bytes& message = lab.upstream.calls.back().message;
    return std::pair(word_at(message, message.size() / 4 - 1),
                     word_at(outcome.message, outcome.message.size() / 4 - 1));
  };
  EXPECT_EQ(asked(), std::pair(kSupported, 9u));
  settings.withheld = {.pnfs = true, .referrals = false};
  apply();
  EXPECT_EQ(asked(), std::pair(kLocations | kSupported, kLocations | 9));
  settings.withheld = {};
  apply();
  EXPECT_EQ(asked(), std::pair(kSupported, 9u));
}

TEST_F(ForwardSettings, connections_are_made_from_privileged_ports_from_then_on) {
  if (!tcp_upstream::privilege_problem({.privileged_port = true}).empty())
    GTEST_SKIP() << "The process may not bind ports below 1024.";
  LabClient& client = lab.add_client();
  const std::size_t before = connection_of(client);
  EXPECT_GE(lab.upstream.peer_port(before), 1024u);
  settings.privileged_port = true;
  apply();
  EXPECT_EQ(connection_of(client), before) << "it stays";
  lab.upstream.close(before);
  lab.turns();
  EXPECT_LT(lab.upstream.peer_port(connection_of(client)), 1024u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
