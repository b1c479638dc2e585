// SPDX-License-Identifier: Apache-2.0
//
// Two agents with a simulated clock, over a link that loses, duplicates, delays and reorders messages. A test
// also injects messages that no agent sends.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "controlplane/cm/agent.h"

namespace sluice::cm::agent_lab {

inline constexpr std::uint64_t kMs = 1'000'000;
inline constexpr std::uint16_t kPort = 20049;
inline const PeerAddress kClient = PeerAddress::from_ipv4(192, 0, 2, 2);
inline const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

struct Flying {
  std::uint64_t arrives_ns;
  bool to_server;
  std::array<std::byte, kMadBytes> mad;
};

/// Events that an agent reported to its owner.
struct Reports {
  std::vector<std::pair<Id, PeerParameters>> requests, replies;
  std::vector<Id> established, disconnected;
  std::vector<Refused> refused;
  std::vector<std::tuple<Id, RejectReason, std::vector<std::byte>>> rejected;
};

class World;

class Side final : public Agent::Host {
 public:
  Side(World& world, bool server, const AgentConfig& config)
      : world_(world), server_(server), agent(*this, config) {}
  void send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) override;
  void on_request(Id id, const PeerParameters& peer) override { reports.requests.emplace_back(id, peer); }
  void on_refused(const Endpoint&, const Refused& refused) override { reports.refused.push_back(refused); }
  void on_reply(Id id, const PeerParameters& peer) override { reports.replies.emplace_back(id, peer); }
  void on_established(Id id) override { reports.established.push_back(id); }
  void on_rejected(Id id, RejectReason reason, std::span<const std::byte> data) override {
    reports.rejected.emplace_back(id, reason, std::vector<std::byte>(data.begin(), data.end()));
  }
  void on_disconnected(Id id) override { reports.disconnected.push_back(id); }

 private:
  World& world_;
  bool server_;

 public:
  Reports reports;
  std::array<std::byte, kMadBytes> last{};  ///< last message sent, even if it was lost
  Agent agent;
};

class World {
 public:
  explicit World(std::uint32_t faults_percent = 0, std::uint32_t seed = 1, AgentConfig config = {.seed = 99})
      : random(seed), faults(faults_percent) {
    client = std::make_unique<Side>(*this, false, config);
    config.seed = config.seed * 2 + 1;
    server = std::make_unique<Side>(*this, true, config);
    server->agent.listen(kPort);
  }

  void carry(bool from_server, std::span<const std::byte, kMadBytes> mad) {
    ++sent;
    if (random() % 100 < faults) return;
    for (int copies = random() % 100 < faults ? 2 : 1; copies > 0; --copies) {
      Flying flying{now + kMs / 10, !from_server, {}};
      if (random() % 100 < faults) flying.arrives_ns += random() % 200 * kMs;
      std::copy(mad.begin(), mad.end(), flying.mad.begin());
      last = flying.mad;
      flying_.push_back(flying);
    }
  }

  /// Advances the time in steps of a millisecond.
  void run(std::uint64_t ms) {
    for (const std::uint64_t end = now + ms * kMs; now < end; now += kMs) {
      deliver();
      client->agent.advance(now);
      server->agent.advance(now);
    }
  }
  void deliver() {
    for (std::size_t i = 0; i < flying_.size();) {
      if (flying_[i].arrives_ns > now) {
        ++i;
        continue;
      }
      const Flying flying = flying_[i];
      flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(i));
      Side& to = flying.to_server ? *server : *client;
      to.agent.on_mad(
          {flying.to_server ? kServer : kClient, flying.to_server ? kClient : kServer, {1, 2, 3, 4, 5, 6}},
          flying.mad, now);
    }
  }
  /// Delivers a message as if the peer had sent it.
  void inject(Side& to, const Message& message) {
    const auto mad = encode(message);
    const bool to_server = &to == server.get();
    to.agent.on_mad({to_server ? kServer : kClient, to_server ? kClient : kServer, {}}, mad, now);
  }

  Id connect(std::uint32_t qpn = 0x111, std::uint16_t port = kPort) {
    const auto id =
        client->agent.connect({kClient, kServer, {}}, port, 4096,
                              {.qpn = qpn, .receive_psn = 0xAAAAAA, .private_data = {std::byte{7}}}, now);
    EXPECT_TRUE(id);
    return *id;
  }
  void accept(std::size_t number = 0) {
    ASSERT_GT(server->reports.requests.size(), number);
    EXPECT_TRUE(server->agent.accept(server->reports.requests[number].first,
                                     {.qpn = 0x222, .receive_psn = 0xBBBBBB, .private_data = {std::byte{8}}},
                                     now));
  }
  /// Establishes a connection; returns the identifiers of both sides.
  std::pair<Id, Id> establish() {
    const Id id = connect();
    run(5);
    accept(server->reports.requests.size() - 1);
    run(5);
    EXPECT_TRUE(client->agent.ready(id, now));
    run(5);
    const Id theirs = server->reports.requests.back().first;
    EXPECT_EQ(client->agent.state(id), State::Established);
    EXPECT_EQ(server->agent.state(theirs), State::Established);
    return {id, theirs};
  }

  std::mt19937 random;
  std::uint32_t faults;
  std::uint64_t now = kMs;
  std::uint64_t sent = 0;
  std::array<std::byte, kMadBytes> last{};
  std::deque<Flying> flying_;
  std::unique_ptr<Side> client;
  std::unique_ptr<Side> server;
};

inline void Side::send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) {
  EXPECT_EQ(to.remote, server_ ? kClient : kServer);
  std::copy(mad.begin(), mad.end(), last.begin());
  world_.carry(server_, mad);
}

}  // namespace sluice::cm::agent_lab
