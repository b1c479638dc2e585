// SPDX-License-Identifier: Apache-2.0
//
// Connection management with a simulated clock, over a link that loses, duplicates, delays and reorders
// messages. Two agents exchange messages; a test also injects messages that no agent sends.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>

#include "controlplane/cm/agent.h"
#include "tests/golden/pcap.h"

namespace sluice::cm {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint16_t kPort = 20049;
const PeerAddress kClient = PeerAddress::from_ipv4(192, 0, 2, 2);
const PeerAddress kServer = PeerAddress::from_ipv4(192, 0, 2, 1);

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

void Side::send_mad(const Endpoint& to, std::span<const std::byte, kMadBytes> mad) {
  EXPECT_EQ(to.remote, server_ ? kClient : kServer);
  std::copy(mad.begin(), mad.end(), last.begin());
  world_.carry(server_, mad);
}

TEST(CmAgent, connects_and_tells_both_sides_what_they_need) {
  World w;
  const Id id = w.connect();
  w.run(5);
  ASSERT_EQ(w.server->reports.requests.size(), 1u);
  const PeerParameters& request = w.server->reports.requests[0].second;
  EXPECT_EQ(request.port, kPort);
  EXPECT_EQ(request.qpn, 0x111u);
  EXPECT_EQ(request.send_psn, 0xAAAAAAu);  // the PSN that the peer gave for our Sends
  EXPECT_EQ(request.path_mtu, 4096);
  EXPECT_EQ(request.endpoint.link, (LinkAddress{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(request.private_data.size(), 56u);
  EXPECT_EQ(request.private_data[0], std::byte{7});
  w.accept();
  w.run(5);
  ASSERT_EQ(w.client->reports.replies.size(), 1u);
  EXPECT_EQ(w.client->reports.replies[0].second.qpn, 0x222u);
  EXPECT_EQ(w.client->reports.replies[0].second.send_psn, 0xBBBBBBu);
  EXPECT_EQ(w.client->reports.replies[0].second.private_data[0], std::byte{8});
  EXPECT_TRUE(w.client->agent.ready(id, w.now));
  w.run(5);
  EXPECT_EQ(w.server->reports.established.size(), 1u);
  EXPECT_EQ(w.server->agent.state(w.server->reports.requests[0].first), State::Established);
}

TEST(CmAgent, disconnects_from_either_side_and_forgets) {
  for (const bool from_client : {true, false}) {
    World w;
    const auto [ours, theirs] = w.establish();
    if (from_client)
      EXPECT_TRUE(w.client->agent.disconnect(ours, w.now));
    else
      EXPECT_TRUE(w.server->agent.disconnect(theirs, w.now));
    w.run(5);
    EXPECT_EQ(w.client->reports.disconnected.size(), 1u);
    EXPECT_EQ(w.server->reports.disconnected.size(), 1u);
    EXPECT_EQ(w.client->agent.state(ours), State::TimeWait);
    EXPECT_EQ(w.server->agent.state(theirs), State::TimeWait);
    w.run(1100);
    EXPECT_EQ(w.client->agent.connections() + w.server->agent.connections(), 0u);
  }
}

TEST(CmAgent, refuses_what_cannot_be_with_its_reason) {
  World w;
  w.connect(0x111, 4711);
  w.run(5);
  ASSERT_EQ(w.client->reports.rejected.size(), 1u);
  EXPECT_EQ(std::get<1>(w.client->reports.rejected[0]), RejectReason::InvalidServiceId);

  ConnectRequest request{.local_id = 5, .service_id = service_id(kPort), .qpn = 9, .path_mtu = 5};
  request.private_data.set(encode_ip_addressing({1, kClient, kServer}));
  const auto reason_for = [&](const ConnectRequest& spoiled) {
    w.last = {};
    w.inject(*w.server, {77, spoiled});
    const auto answer = decode(w.last);
    const auto* reject = std::get_if<ConnectReject>(&answer.message.body);
    EXPECT_NE(reject, nullptr);
    EXPECT_EQ(answer.message.transaction_id, 77u);
    EXPECT_EQ(reject->remote_id, 5u);
    return reject->reason;
  };
  ConnectRequest spoiled = request;
  spoiled.transport_service = 1;
  EXPECT_EQ(reason_for(spoiled), RejectReason::InvalidTransportServiceType);
  spoiled = request;
  spoiled.path_mtu = 6;
  EXPECT_EQ(reason_for(spoiled), RejectReason::InvalidPathMtu);
  spoiled = request;
  spoiled.private_data.bytes[1] = std::byte{0x50};
  EXPECT_EQ(reason_for(spoiled), RejectReason::UnsupportedRequest);
  EXPECT_EQ(w.server->agent.connections(), 0u);
}

TEST(CmAgent, a_path_mtu_above_that_of_the_port_is_refused_with_the_one_that_is_accepted) {
  World w;
  w.server->agent.set_port({.max_path_mtu = 1024});
  const Id id = w.connect();
  w.deliver();
  w.now += kMs;
  w.deliver();
  const auto reject = std::get<ConnectReject>(decode(w.last).message.body);
  EXPECT_EQ(reject.reason, RejectReason::InvalidPathMtu);
  EXPECT_EQ(reject.info_bytes, 1);
  EXPECT_EQ(reject.info.bytes[0], std::byte{0x30}) << "1024 bytes, as a request has it";
  ASSERT_EQ(w.server->reports.refused.size(), 1u);
  EXPECT_EQ(w.server->reports.refused[0].why, Refusal::InvalidPathMtu);
  EXPECT_EQ(w.server->reports.refused[0].path_mtu, 4096);
  EXPECT_EQ(w.server->reports.refused[0].accepted_path_mtu, 1024);
  EXPECT_TRUE(w.server->reports.requests.empty());
  w.run(5);
  EXPECT_EQ(w.client->agent.state(id), std::nullopt);
  w.server->agent.set_port({.max_path_mtu = 4096});
  w.connect(0x112);
  w.run(5);
  EXPECT_EQ(w.server->reports.requests.size(), 1u);
}

TEST(CmAgent, requests_replies_and_timeouts_carry_the_guid_of_the_port) {
  constexpr std::uint64_t kClientGuid = 0x020000FFFE000002;
  constexpr std::uint64_t kServerGuid = 0x020000FFFE000001;
  World w;
  w.client->agent.set_port({.guid = kClientGuid});
  w.server->agent.set_port({.guid = kServerGuid});
  w.connect();
  EXPECT_EQ(std::get<ConnectRequest>(decode(w.last).message.body).ca_guid, kClientGuid);
  w.run(5);
  w.accept();
  EXPECT_EQ(std::get<ConnectReply>(decode(w.last).message.body).ca_guid, kServerGuid);
  w.faults = 100;  // the client never confirms
  for (int i = 0; i < 20'000 && w.server->reports.disconnected.empty(); ++i) w.run(1);
  ASSERT_EQ(w.server->reports.refused.size(), 1u);
  EXPECT_EQ(w.server->reports.refused[0].why, Refusal::NotConfirmed);
  const auto reject = std::get<ConnectReject>(decode(w.server->last).message.body);
  EXPECT_EQ(reject.reason, RejectReason::Timeout);
  EXPECT_EQ(reject.info_bytes, 8);
  const std::byte guid[] = {std::byte{2},    std::byte{0}, std::byte{0}, std::byte{0xFF},
                            std::byte{0xFE}, std::byte{0}, std::byte{0}, std::byte{1}};
  EXPECT_TRUE(std::equal(std::begin(guid), std::end(guid), reject.info.bytes.begin()));
}

TEST(CmAgent, the_consumers_reject_carries_its_private_data) {
  World w;
  w.connect();
  w.run(5);
  const std::byte why[] = {std::byte{1}, std::byte{2}};
  EXPECT_TRUE(
      w.server->agent.reject(w.server->reports.requests[0].first, RejectReason::Consumer, why, w.now));
  w.run(5);
  ASSERT_EQ(w.client->reports.rejected.size(), 1u);
  EXPECT_EQ(std::get<1>(w.client->reports.rejected[0]), RejectReason::Consumer);
  EXPECT_EQ(std::get<2>(w.client->reports.rejected[0])[1], std::byte{2});
  EXPECT_EQ(w.server->agent.connections() + w.client->agent.connections(), 0u);
}

TEST(CmAgent, a_request_that_comes_again_is_answered_as_its_state_asks) {
  World w;
  const Id id = w.connect();
  const auto request = w.last;
  const Endpoint from{kServer, kClient, {}};
  w.run(5);
  w.server->agent.on_mad(from, request, w.now);  // the consumer has not decided: MRA
  EXPECT_TRUE(std::holds_alternative<ReceiptAcknowledgment>(decode(w.last).message.body));
  w.accept();
  const auto reply = w.last;
  w.server->agent.on_mad(from, request, w.now);  // answered by the same reply
  EXPECT_EQ(w.last, reply);
  w.run(5);
  EXPECT_TRUE(w.client->agent.ready(id, w.now));
  const auto ready = w.last;
  w.client->agent.on_mad({kClient, kServer, {}}, reply,
                         w.now);  // a repeated reply is answered by ready-to-use
  EXPECT_EQ(w.last, ready);
  w.run(5);
  w.last = {};
  w.server->agent.on_mad(from, request, w.now);  // established: ignored
  EXPECT_EQ(w.last, (std::array<std::byte, kMadBytes>{}));
  EXPECT_EQ(w.server->reports.requests.size(), 1u);
  EXPECT_EQ(w.server->agent.statistics().duplicate_requests, 3u);
}

TEST(CmAgent, a_new_request_for_a_queue_pair_in_use_ends_the_old_connection) {
  World w;
  w.establish();
  ConnectRequest request{.local_id = 0x5555, .service_id = service_id(kPort), .qpn = 0x111, .path_mtu = 5};
  request.private_data.set(encode_ip_addressing({1, kClient, kServer}));
  w.inject(*w.server, {4711, request});
  EXPECT_EQ(w.server->reports.disconnected.size(), 1u);
  EXPECT_EQ(w.server->agent.statistics().stale, 1u);
  w.run(2000);
  EXPECT_EQ(w.server->agent.connections(), 0u);
  w.inject(*w.server, {4712, request});  // the table has room again
  EXPECT_EQ(w.server->reports.requests.size(), 2u);
}

TEST(CmAgent, a_lost_ready_to_use_is_made_up_for_by_hearing_the_peer) {
  World w;
  w.connect();
  w.run(5);
  w.accept();
  const Id theirs = w.server->reports.requests[0].first;
  EXPECT_EQ(w.server->agent.state(theirs), State::ReplySent);
  EXPECT_TRUE(w.server->agent.packet_arrived(theirs, w.now));
  EXPECT_EQ(w.server->agent.state(theirs), State::Established);
  EXPECT_EQ(w.server->reports.established.size(), 1u);
}

TEST(CmAgent, silence_ends_in_bounded_retries) {
  World w;
  w.faults = 100;
  const Id id = w.connect();
  w.run(60'000);
  ASSERT_EQ(w.client->reports.rejected.size(), 1u);
  EXPECT_EQ(std::get<1>(w.client->reports.rejected[0]), RejectReason::Timeout);
  EXPECT_LE(w.sent, 17u);
  EXPECT_EQ(w.client->agent.state(id), std::nullopt);
}

TEST(CmAgent, a_consumer_that_does_not_answer_costs_nothing_for_long) {
  World w;
  w.connect();
  w.run(11'000);
  EXPECT_EQ(w.server->agent.connections(), 0u);
  ASSERT_EQ(w.client->reports.rejected.size(), 1u);
}

TEST(CmAgent, half_open_connections_are_bounded) {
  World w(0, 1, {.seed = 5, .max_half_open = 10});
  for (std::uint32_t i = 0; i < 50; ++i) {
    ConnectRequest request{
        .local_id = 100 + i, .service_id = service_id(kPort), .qpn = 1000 + i, .path_mtu = 5};
    request.private_data.set(encode_ip_addressing({1, kClient, kServer}));
    w.inject(*w.server, {1000u + i, request});
  }
  EXPECT_EQ(w.server->agent.connections(), 10u);
  EXPECT_EQ(w.server->agent.statistics().refused_resources, 40u);
  EXPECT_EQ(std::get<ConnectReject>(decode(w.last).message.body).reason, RejectReason::NoResources);
  w.run(20'000);
  EXPECT_EQ(w.server->agent.connections(), 0u);
}

/// Sends a request with its own queue pair and its own identifier.
void request(World& w, std::uint32_t number) {
  ConnectRequest request{.local_id = 100 + number,
                         .service_id = service_id(kPort),
                         .qpn = 1000 + number,
                         .local_response_timeout = 20,
                         .path_mtu = 5};
  request.private_data.set(encode_ip_addressing({1, kClient, kServer}));
  w.inject(*w.server, {1000u + number, request});
}

TEST(CmAgent, requests_that_nobody_confirms_give_way_to_new_ones_the_oldest_first) {
  World w(0, 1, {.seed = 5, .max_half_open = 4});
  for (std::uint32_t i = 0; i < 4; ++i) {
    request(w, i);
    if (i != 2) w.accept(i);  // the consumer has not decided about one of them
    w.run(10);
  }
  w.run(250);
  request(w, 4);
  ASSERT_EQ(w.server->reports.requests.size(), 5u);
  ASSERT_EQ(w.server->reports.disconnected.size(), 1u);
  EXPECT_EQ(w.server->reports.disconnected[0], w.server->reports.requests[0].first);
  w.accept(4);
  // A request that has been confirmed keeps its connection, however many requests follow.
  w.inject(*w.server,
           {1001, ReadyToUse{.local_id = 101,
                             .remote_id = static_cast<std::uint32_t>(w.server->reports.requests[1].first)}});
  ASSERT_EQ(w.server->reports.established.size(), 1u);
  request(w, 5);
  EXPECT_EQ(w.server->reports.rejected.size(), 0u) << "there was a place";
  request(w, 6);
  ASSERT_EQ(w.server->reports.rejected.size(), 1u);
  EXPECT_EQ(std::get<0>(w.server->reports.rejected[0]), w.server->reports.requests[2].first);
  EXPECT_EQ(w.server->agent.state(w.server->reports.established[0]), State::Established);
  EXPECT_EQ(w.server->agent.statistics().refused_resources, 0u);
}

TEST(CmAgent, requests_that_may_still_be_confirmed_do_not_give_way) {
  World w(0, 1, {.seed = 5, .max_half_open = 2});
  for (std::uint32_t i = 0; i < 2; ++i) request(w, i);
  w.run(249);
  request(w, 2);
  EXPECT_EQ(w.server->reports.requests.size(), 2u);
  EXPECT_EQ(w.server->agent.statistics().refused_resources, 1u);
  w.run(2);
  request(w, 3);
  EXPECT_EQ(w.server->reports.requests.size(), 3u);
}

TEST(CmAgent, the_end_of_what_is_not_known_is_confirmed) {
  World w;
  w.inject(*w.server, {9, DisconnectRequest{.local_id = 3, .remote_id = 4}});
  const auto answer = decode(w.last);
  const auto* reply = std::get_if<DisconnectReply>(&answer.message.body);
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(reply->remote_id, 3u);
  EXPECT_EQ(reply->local_id, 4u);
  EXPECT_EQ(answer.message.transaction_id, 9u);
}

TEST(CmAgent, alternate_paths_are_refused_at_once_and_change_nothing) {
  World w;
  const auto [ours, theirs] = w.establish();
  for (const bool known : {true, false}) {
    const auto asked = LoadAlternatePath{.local_id = static_cast<std::uint32_t>(ours) + (known ? 0u : 1u),
                                         .remote_id = static_cast<std::uint32_t>(theirs),
                                         .remote_qpn = 0x22};
    const std::uint64_t sent = w.sent;
    w.inject(*w.server, {77, asked});
    ASSERT_EQ(w.sent, sent + 1);
    const DecodeResult answer = decode(w.last);
    ASSERT_EQ(answer.status, Decode::Ok);
    EXPECT_EQ(answer.message.transaction_id, 77u);
    const auto& refusal = std::get<AlternatePathResponse>(answer.message.body);
    EXPECT_EQ(refusal.local_id, asked.remote_id);
    EXPECT_EQ(refusal.remote_id, asked.local_id);
    EXPECT_EQ(refusal.status, known ? PathStatus::NotSupported : PathStatus::InvalidConnection);
  }
  EXPECT_EQ(w.server->agent.statistics().unexpected, 1u);
  EXPECT_EQ(w.server->agent.state(theirs), State::Established);
}

TEST(CmAgent, truncated_and_foreign_messages_end_nothing) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto end = encode({1, DisconnectRequest{.local_id = static_cast<std::uint32_t>(ours),
                                                .remote_id = static_cast<std::uint32_t>(theirs)}});
  w.server->agent.on_mad({kServer, kClient, {}}, std::span(end).first(100), w.now);
  EXPECT_EQ(w.server->agent.statistics().malformed, 1u);
  const auto reject = encode({1, ConnectReject{.remote_id = static_cast<std::uint32_t>(theirs)}});
  w.server->agent.on_mad({kServer, PeerAddress::from_ipv4(192, 0, 2, 66), {}}, reject, w.now);
  EXPECT_EQ(w.server->agent.statistics().unknown, 1u);
  EXPECT_EQ(w.server->agent.state(theirs), State::Established);
}

TEST(CmAgent, a_successor_goes_on_with_what_its_predecessor_left) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto snapshot = w.server->agent.snapshot(theirs);
  ASSERT_TRUE(snapshot);
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  w.server->agent.listen(kPort);
  EXPECT_TRUE(w.server->agent.restore(*snapshot));
  EXPECT_FALSE(w.server->agent.restore(*snapshot));
  EXPECT_TRUE(w.client->agent.disconnect(ours, w.now));
  w.run(5);
  EXPECT_EQ(w.server->reports.disconnected, std::vector<Id>{theirs});
  EXPECT_EQ(w.client->agent.state(ours), State::TimeWait);
}

/// Returns the snapshot of the server's side that the consumer stores, with the parameters of its queue pair.
Snapshot left_by(World& w, Id theirs, const OwnParameters& own) {
  Snapshot snapshot = w.server->agent.snapshot(theirs).value_or(Snapshot{});
  snapshot.local_qpn = own.qpn;
  snapshot.set_own(own);
  return snapshot;
}

TEST(CmAgent, a_successor_sends_the_reply_that_its_predecessor_may_have_sent) {
  const OwnParameters own{.qpn = 0x222,
                          .receive_psn = 0xBBBBBB,
                          .responder_resources = 3,
                          .initiator_depth = 4,
                          .rnr_retry = 5,
                          .private_data = {std::byte{8}, std::byte{9}}};
  for (const bool asked_again : {false, true}) {
    World w;
    const Id ours = w.connect();
    const auto request = w.last;
    w.run(5);
    const Id theirs = w.server->reports.requests[0].first;
    EXPECT_TRUE(w.server->agent.accept(theirs, own, w.now));
    const auto reply = w.last;
    const Snapshot snapshot = left_by(w, theirs, own);
    w.flying_.clear();  // the reply is lost
    w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
    w.server->agent.listen(kPort);
    EXPECT_TRUE(w.server->agent.restore(snapshot, {.confirmed = false, .private_data = own.private_data}));
    EXPECT_EQ(w.server->agent.state(theirs), State::ReplySent);
    w.last = {};
    if (asked_again)
      w.server->agent.on_mad({kServer, kClient, {}}, request, w.now);
    else
      w.server->agent.advance(w.now);
    EXPECT_EQ(w.last, reply) << asked_again;
    w.run(5);
    ASSERT_EQ(w.client->reports.replies.size(), 1u);
    EXPECT_TRUE(w.client->agent.ready(ours, w.now));
    w.run(5);
    EXPECT_EQ(w.server->agent.state(theirs), State::Established);
    EXPECT_EQ(w.server->reports.established, std::vector<Id>{theirs});
    EXPECT_TRUE(w.server->reports.requests.empty()) << "the request is known";
  }
}

TEST(CmAgent, a_successor_gives_up_a_peer_that_never_confirms) {
  World w;
  w.connect();
  w.run(5);
  const Id theirs = w.server->reports.requests[0].first;
  const OwnParameters own{.qpn = 0x222, .private_data = {}};
  EXPECT_TRUE(w.server->agent.accept(theirs, own, w.now));
  const Snapshot snapshot = left_by(w, theirs, own);
  w.faults = 100;
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  EXPECT_TRUE(w.server->agent.restore(snapshot, {.confirmed = false, .private_data = {}}));
  w.run(20'000);
  EXPECT_EQ(w.server->reports.disconnected, std::vector<Id>{theirs});
  EXPECT_EQ(w.server->agent.connections(), 0u);
}

TEST(CmAgent, without_the_parameters_of_a_reply_a_connection_counts_as_established) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto snapshot = w.server->agent.snapshot(theirs);
  ASSERT_TRUE(snapshot);
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  EXPECT_TRUE(w.server->agent.restore(*snapshot, {.confirmed = false, .private_data = {}}));
  EXPECT_EQ(w.server->agent.state(theirs), State::Established);
}

TEST(CmAgent, a_successor_of_the_active_side_answers_a_reply_that_comes_again) {
  World w;
  const Id ours = w.connect();
  w.run(5);
  w.accept();
  const auto reply = w.last;
  w.run(5);
  const auto snapshot = w.client->agent.snapshot(ours);
  ASSERT_TRUE(snapshot);
  EXPECT_TRUE(w.client->agent.ready(ours, w.now));
  const auto ready = w.last;
  w.flying_.clear();  // ready-to-use is lost
  w.client = std::make_unique<Side>(w, false, AgentConfig{.seed = 1234});
  EXPECT_TRUE(w.client->agent.restore(*snapshot, {.active = true, .private_data = {}}));
  w.client->agent.on_mad({kClient, kServer, {}}, reply, w.now);
  EXPECT_EQ(w.last, ready);
  w.run(5);
  EXPECT_EQ(w.server->agent.state(w.server->reports.requests[0].first), State::Established);
}

TEST(CmAgent, what_a_peer_has_asked_for_anew_is_not_taken_over) {
  World w;
  const auto [ours, theirs] = w.establish();
  const auto snapshot = w.server->agent.snapshot(theirs);
  ASSERT_TRUE(snapshot);
  w.server = std::make_unique<Side>(w, true, AgentConfig{.seed = 1234});
  w.server->agent.listen(kPort);
  ConnectRequest request{.local_id = 0x5555, .service_id = service_id(kPort), .qpn = 0x111, .path_mtu = 5};
  request.private_data.set(encode_ip_addressing({1, kClient, kServer}));
  w.inject(*w.server, {4711, request});
  EXPECT_EQ(w.server->reports.requests.size(), 1u);
  EXPECT_FALSE(w.server->agent.restore(*snapshot));
}

/// Both sides reach the same state over any link, in bounded time and with bounded traffic.
TEST(CmAgent, any_link_leads_to_an_agreement) {
  int connected = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    World w(seed % 3 == 0 ? 40 : 15, seed, {.seed = seed, .max_disconnect_retries = 15});
    const Id id = w.connect();
    for (int step = 0; step < 200; ++step) {
      w.run(100);
      for (const auto& [request, peer] : w.server->reports.requests)
        if (w.server->agent.state(request) == State::RequestReceived)
          w.server->agent.accept(request, {.qpn = 0x222, .private_data = {}}, w.now);
      if (w.client->agent.state(id) == State::ReplyReceived) w.client->agent.ready(id, w.now);
    }
    ASSERT_LE(w.server->reports.requests.size(), 1u) << seed;
    if (w.client->agent.state(id) == State::Established) {
      ++connected;
      ASSERT_EQ(w.server->agent.state(w.server->reports.requests[0].first), State::Established) << seed;
      w.client->agent.disconnect(id, w.now);
    }
    w.run(30'000);
    ASSERT_EQ(w.client->agent.connections(), 0u) << seed;
    ASSERT_EQ(w.server->agent.connections(), 0u) << seed;
    ASSERT_LT(w.sent, 100u) << seed;
  }
  EXPECT_GT(connected, 280);
}

TEST(CmAgent, garbage_and_bit_flips_do_no_harm) {
  World w;
  w.establish();
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    auto mad = w.last;
    for (int i = 0; i < 3; ++i) mad[random() % mad.size()] ^= std::byte(1u << random() % 8);
    if (round % 4 == 0) mad[16] = std::byte{0}, mad[17] = std::byte(0x10 + random() % 8);
    w.server->agent.on_mad({kServer, kClient, {}}, mad, w.now);
    w.client->agent.on_mad({kClient, kServer, {}}, mad, w.now);
    if (round % 100 == 0) w.run(10);
  }
  w.run(60'000);
  EXPECT_LE(w.server->agent.connections(), 1u);
  EXPECT_LE(w.client->agent.connections(), 1u);
}

}  // namespace
}  // namespace sluice::cm
