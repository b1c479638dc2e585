// SPDX-License-Identifier: Apache-2.0
//
// A reload changes the settings of an upstream that is served. Calls in progress are answered, and the
// clients stay connected.
#include "tests/conformance/raw_call.h"
#include "tests/unit/gateway/tcp_upstream/echoed_calls.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

struct ForwardSettings : testing::Test {
  explicit ForwardSettings(ForwardOptions options = {.shared_connections = 1, .most_connections = 3})
      : lab(std::move(options)), settings(slot().offered()) {}

  gateway::UpstreamSlot& slot() { return lab.slots->slot(0); }
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
  gateway::UpstreamSettings settings;
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

/// Returns accept_stat of a reply, or ~0 if there is none.
std::uint32_t accept_stat(const Outcome& outcome) {
  constexpr std::size_t kAt = kResultsAt - 4;
  return outcome.message.size() >= kResultsAt ? word_at(outcome.message, kAt / 4) : ~0u;
}
constexpr std::uint32_t kProgUnavail = 1;

TEST_F(ForwardSettings, programs_come_and_go_and_calls_in_progress_are_answered) {
  constexpr std::uint32_t kNewProgram = 0x20000999;
  LabClient& client = lab.add_client();
  lab.upstream.answer = echo;
  const auto of = [&](std::uint32_t program) {
    return accept_stat(
        lab.call(client, {.payload = call_of(program, 1, 7, words({1})), .max_reply_bytes = 64}));
  };
  EXPECT_EQ(of(kUnknownProgram), 0u);
  EXPECT_EQ(of(kNewProgram), kProgUnavail);
  lab.upstream.answer = nullptr;
  const std::size_t asked = client.submit({.payload = plain(7), .max_reply_bytes = 64});
  const std::size_t before = lab.upstream.calls.size();
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() > before; }));
  const FakeUpstream::Call held = lab.upstream.calls.back();
  const gateway::UpstreamSettings first = settings;
  for (std::uint32_t i = 0; i < 4 * gateway::kMaxPrograms; ++i) {
    const service::Route program{kNewProgram + i, 1};
    settings.set_programs({&program, 1});
    apply();
    lab.upstream.answer = echo;
    EXPECT_EQ(of(kNewProgram + i), 0u) << i;
    EXPECT_EQ(of(kUnknownProgram), kProgUnavail) << i;
  }
  lab.upstream.send(held.connection, record(echo(held)));
  ASSERT_TRUE(lab.until([&] { return client.finished[asked].has_value(); }));
  EXPECT_EQ(word_at(client.finished[asked]->message, 6), 7u) << "by the program that it was made for";
  settings = first;
  apply();
  EXPECT_EQ(of(kUnknownProgram), 0u);
  EXPECT_TRUE(lab.ends.empty());
}

TEST_F(ForwardSettings, a_program_moves_to_another_port) {
  constexpr std::uint16_t kOwnPort = 20050;
  lab.device->connection_manager()->listen(kOwnPort);
  LabClient& there = lab.add_client(kOwnPort);
  LabClient& here = lab.add_client();
  lab.upstream.answer = echo;
  const auto of = [&](LabClient& client) {
    return accept_stat(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}));
  };
  EXPECT_EQ(of(here), 0u);
  EXPECT_EQ(of(there), kProgUnavail);
  settings.listen_port = kOwnPort;
  apply();
  EXPECT_EQ(of(here), kProgUnavail);
  EXPECT_EQ(of(there), 0u);
}

TEST_F(ForwardSettings, a_slot_without_a_name_serves_nobody) {
  LabClient& client = lab.add_client();
  const std::size_t connection = connection_of(client);
  const gateway::UpstreamSettings before = settings;
  settings = {};
  slot().offer(settings);
  ASSERT_TRUE(lab.until([&] { return slot().settled(); }));
  EXPECT_EQ(accept_stat(lab.call(client, {.payload = plain(), .max_reply_bytes = 64})), kProgUnavail);
  EXPECT_FALSE(lab.upstream.open(connection));
  settings = before;
  apply();
  connection_of(client);
}

struct SettingsOfOneHost : ForwardSettings {
  SettingsOfOneHost() : ForwardSettings({.shared_connections = 1, .most_connections = 3, .one_host = true}) {}
};

/// The calls are identical, but are for different servers.
TEST_F(SettingsOfOneHost, a_reply_of_the_former_upstream_answers_no_call_to_its_successor) {
  lab.upstream.answer = echo;
  for (const std::uint32_t word : {7u, 8u}) {
    const auto peer = lab.add_raw_peer();
    Bytes call = unknown_call(words({1}));
    xdr::store_u32(call.data(), 7);
    peer->send(conformance::RawCall{.xid = 7}.with(call));
    if (word == 8) lab.upstream.answer = [](const auto& asked) { return success(asked.xid(), words({8})); };
    ASSERT_TRUE(lab.until([&] { return peer->inbox.size() == 1; }));
    EXPECT_EQ(word_at(peer->inbox[0].bytes, (28 + kResultsAt) / 4), word == 7 ? 1u : 8u);
    const std::size_t before = lab.ends.size();
    peer->owned_qp->to_error();
    ASSERT_TRUE(lab.until([&] { return lab.ends.size() == before + 1; }));
    std::erase(lab.raw_peers, peer.get());
    peer->owned_qp.reset();
    settings.name = kNewcomer;
    slot().offer(settings);
    ASSERT_TRUE(lab.until([&] { return slot().settled(); }));
  }
  EXPECT_EQ(lab.count(Counter::replayed), 0u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
