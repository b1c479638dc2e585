// SPDX-License-Identifier: Apache-2.0
//
// Shares of connection management in virtual time: what one source that never answers leaves to a client that connects once a
// second, with the limits that the control plane gives the agent.
#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "controlplane/cm/agent.h"
#include "controlplane/cm/agent_limits.h"

namespace sluice::cm {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1000 * kMs;
constexpr std::uint16_t kPort = 20049;
constexpr std::uint32_t kPerClient = 16;
const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);
const PeerAddress kNewcomer = PeerAddress::from_ipv4(192, 0, 2, 2);
const PeerAddress kHostile = PeerAddress::from_ipv4(192, 0, 2, 3);

/// The server's consumer, which accepts each request at once, and the peers behind it.
class Gateway final : public Agent::Host {
 public:
  explicit Gateway(std::uint32_t connections)
      : agent(*this, with_limits({.seed = 5}, connections, kPerClient)) {
    agent.listen(kPort);
  }

  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override {
    const Message message = decode(mad).message;
    if (std::holds_alternative<DisconnectRequest>(message.body)) {
      ++disconnect_requests;
      if (to.remote == kHostile && !hostile_answers) return;
    }
    answers_.emplace_back(to.remote, message);
  }
  void on_request(Id id, const PeerParameters&) override { asked_.push_back(id); }
  void on_refused(const Endpoint& from, const Refused&) override {
    ++(from.remote == kNewcomer ? refused : other);
  }
  void on_reply(Id, const PeerParameters&) override {}
  void on_established(Id id) override { up.push_back(id); }
  void on_rejected(Id, RejectReason, std::span<const std::byte>) override {}
  void on_disconnected(Id) override {}

  /// Sends a request, and all that follows from it.
  void ask(const PeerAddress& from) {
    request(from);
    settle();
  }
  /// Sends a request, whose reply is not confirmed.
  void request(const PeerAddress& from) {
    ++number_;
    ConnectRequest request{.local_id = number_,
                           .service_id = service_id(kPort),
                           .qpn = number_,
                           .local_response_timeout = 20,
                           .path_mtu = 5};
    request.private_data.set(encode_ip_addressing({1, from, kServer}));
    deliver(from, {number_, request});
    for (; !asked_.empty(); asked_.pop_front())
      EXPECT_TRUE(agent.accept(asked_.front(), {.qpn = number_, .private_data = {}}, now));
  }
  /// Ends the last connection that came up.
  void end_last() {
    agent.disconnect(up.back(), now);
    up.pop_back();
    settle();
  }
  void pass_to(std::uint64_t then_ns) {
    for (now = then_ns; agent.advance(now);) settle();
    settle();
  }

  std::uint64_t now = kMs;
  bool hostile_answers = false;
  std::uint32_t refused = 0;  ///< requests of the newcomer
  std::uint32_t other = 0;
  std::uint32_t disconnect_requests = 0;
  std::vector<Id> up;

 private:
  void deliver(const PeerAddress& from, const Message& message) {
    agent.on_mad({kServer, from, {}}, encode(message), now);
  }
  void settle() {
    for (; !answers_.empty(); answers_.pop_front()) {
      const auto [peer, message] = answers_.front();
      if (const auto* reply = std::get_if<ConnectReply>(&message.body))
        deliver(peer, {message.transaction_id,
                       ReadyToUse{.local_id = reply->remote_id, .remote_id = reply->local_id}});
      else if (const auto* end = std::get_if<DisconnectRequest>(&message.body))
        deliver(peer, {message.transaction_id,
                       DisconnectReply{.local_id = end->remote_id, .remote_id = end->local_id}});
    }
  }

  std::uint32_t number_ = 0;
  std::deque<Id> asked_;
  std::deque<std::pair<PeerAddress, Message>> answers_;

 public:
  Agent agent;
};

struct Load {
  std::uint32_t connections;  ///< the configured limit
  std::uint32_t connected;    ///< by others, all of the time
  std::uint64_t per_second;   ///< requests of the hostile source
  bool answers;               ///< the hostile source answers DREQ
};

class AgentFairness : public ::testing::TestWithParam<Load> {};

TEST_P(AgentFairness, a_source_that_never_answers_keeps_no_newcomer_from_connecting) {
  const Load& load = GetParam();
  Gateway gateway(load.connections);
  gateway.hostile_answers = load.answers;
  for (std::uint32_t i = 0; i < load.connected; ++i)
    gateway.ask(PeerAddress::from_ipv4(10, 0, 0, static_cast<std::uint8_t>(i)));
  ASSERT_EQ(gateway.up.size(), load.connected);
  std::uint64_t next_newcomer_ns = kSecond;
  const std::uint64_t step_ns = kSecond / load.per_second;
  for (std::uint64_t at_ns = step_ns; at_ns <= 100 * kSecond; at_ns += step_ns) {
    gateway.pass_to(at_ns);
    const std::size_t before = gateway.up.size();
    gateway.ask(kHostile);
    if (gateway.up.size() > before) gateway.end_last();
    if (at_ns < next_newcomer_ns) continue;
    next_newcomer_ns += kSecond;
    gateway.ask(kNewcomer);
    if (gateway.up.size() > before) gateway.end_last();
  }
  EXPECT_EQ(gateway.refused, 0u) << "of 100 requests";
  EXPECT_EQ(gateway.up.size(), load.connected);
  EXPECT_LE(gateway.agent.connections(), 2 * load.connections);
}

INSTANTIATE_TEST_SUITE_P(Loads, AgentFairness,
                         ::testing::Values(Load{32, 0, 7, false}, Load{32, 16, 7, false},
                                           Load{32, 31, 7, false}, Load{32, 16, 45, false},
                                           Load{256, 200, 7, false}, Load{256, 200, 45, false},
                                           Load{32, 16, 48, true}, Load{32, 24, 45, true}));

TEST(AgentShares, a_disconnect_request_is_sent_four_times) {
  Gateway gateway(32);
  gateway.ask(kHostile);
  gateway.end_last();
  for (std::uint64_t at_ns = kMs; at_ns < 20 * kSecond; at_ns += 10 * kMs) gateway.pass_to(at_ns);
  EXPECT_EQ(gateway.disconnect_requests, 4u);
  EXPECT_EQ(gateway.agent.connections(), 0u);
}

TEST(AgentShares, ended_connections_of_one_source_have_a_share_of_the_table) {
  Gateway gateway(32);
  for (int i = 0; i < 40; ++i) {
    gateway.ask(kHostile);
    gateway.end_last();
  }
  EXPECT_EQ(gateway.agent.connections(), 16u) << "a quarter of the table";
  EXPECT_EQ(gateway.agent.statistics().evicted, 24u);
  EXPECT_EQ(gateway.other, 0u);
}

class AgentHalfOpen : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(AgentHalfOpen, one_client_opens_all_of_its_connections_at_once_and_others_have_places) {
  Gateway gateway(GetParam());
  for (std::uint32_t i = 0; i < kPerClient; ++i) gateway.request(kNewcomer);
  EXPECT_EQ(gateway.refused, 0u) << "as nconnect=16 does";
  for (std::uint8_t i = 0; i < 8; ++i) gateway.request(PeerAddress::from_ipv4(10, 0, 0, i));
  EXPECT_EQ(gateway.other, 0u);
  EXPECT_EQ(gateway.agent.connections(), kPerClient + 8);
}

INSTANTIATE_TEST_SUITE_P(Connections, AgentHalfOpen, ::testing::Values(32, 64, 256));

TEST(AgentShares, half_open_places_follow_a_reload) {
  Gateway gateway(32);
  gateway.agent.set_half_open_limits(with_limits({}, 32, 24));
  for (std::uint32_t i = 0; i < 24; ++i) gateway.request(kNewcomer);
  EXPECT_EQ(gateway.refused, 0u);
  gateway.request(kNewcomer);
  EXPECT_EQ(gateway.refused, 1u);
}

}  // namespace
}  // namespace sluice::cm
