// SPDX-License-Identifier: Apache-2.0
//
// Isolation of connection management, over softroce's wire and in virtual time. A client that behaves
// connects again and again. Beside it, a hostile host sends more management datagrams than the server
// processes. No connection of the client is refused and none of its messages is lost. Each connection takes
// at most as many more turns as the hostile host's share of the queue delays it.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "controlplane/cm/agent.h"
#include "pmd/softroce/datagram_queue.h"
#include "pmd/softroce/device.h"
#include "tests/driver/frame_builder.h"
#include "tests/driver/softroce_pair.h"

namespace sluice::isolation {
namespace {

using namespace rdma::conformance;
using namespace rdma::softroce;
using rdma::Datagram;

constexpr std::uint16_t kPort = 20049;
constexpr std::uint64_t kTurnNs = 1'000'000;
/// Datagrams that the control plane processes in one turn.
constexpr std::size_t kTakenPerTurn = 2;
/// Datagrams that the hostile host sends in one turn.
constexpr int kSentPerTurn = 4;
constexpr int kConnections = 100;
constexpr PeerAddress kHostileHost = PeerAddress::from_ipv4(192, 0, 2, 77);
constexpr MacAddress kHostileLink{2, 0, 0, 0, 0, 66};

/// One end of connection management: an agent whose datagrams a softroce device carries.
class End final : public cm::Agent::Host {
 public:
  End(SoftRoce& device, const cm::AgentConfig& config) : agent(*this, config), device_(device) {}

  /// Processes at most `limit` datagrams that have arrived.
  void turn(std::size_t limit, std::uint64_t at_ns) {
    now_ns = at_ns;
    rdma::WorkCompletion none[1];
    device_.poll(none);
    std::vector<Datagram> arrived(limit);
    arrived.resize(device_.receive_datagrams(arrived));
    for (const Datagram& datagram : arrived)
      agent.on_mad({datagram.local, datagram.remote, datagram.remote_link},
                   std::span(datagram.data).first(datagram.bytes), now_ns);
    agent.advance(now_ns);
    for (; !asked.empty(); asked.pop_back())
      agent.accept(asked.back(), {.qpn = ++queue_pair_, .private_data = {}}, now_ns);
    for (; !replied.empty(); replied.pop_back()) agent.ready(replied.back(), now_ns);
    while (ends_each && !up.empty()) end_last();
  }
  void end_last() {
    const cm::Id id = up.back();
    up.pop_back();
    agent.disconnect(id, now_ns);
  }

  void send_mad(const cm::Endpoint& to, std::span<const std::byte, cm::kMadBytes> mad) override {
    Datagram datagram{.local = to.local, .remote = to.remote, .remote_link = to.link, .bytes = cm::kMadBytes};
    std::copy(mad.begin(), mad.end(), datagram.data.begin());
    EXPECT_TRUE(device_.send_datagram(datagram));
  }
  void on_request(cm::Id id, const cm::PeerParameters&) override { asked.push_back(id); }
  void on_refused(const cm::Endpoint& from, const cm::Refused&) override {
    ++(from.remote == kHostileHost ? hostile_refused : refused);
  }
  void on_reply(cm::Id id, const cm::PeerParameters&) override {
    replied.push_back(id);
    up.push_back(id);
  }
  void on_established(cm::Id id) override { up.push_back(id); }
  void on_rejected(cm::Id, cm::RejectReason, std::span<const std::byte>) override { ++refused; }
  void on_disconnected(cm::Id id) override {
    std::erase(up, id);
    ++ended;
  }

  cm::Agent agent;
  bool ends_each = false;  ///< each established connection is disconnected
  std::vector<cm::Id> asked;
  std::vector<cm::Id> replied;
  std::vector<cm::Id> up;
  std::uint64_t now_ns = 0;
  std::uint32_t refused = 0;
  std::uint32_t hostile_refused = 0;
  std::uint32_t ended = 0;

 private:
  SoftRoce& device_;
  std::uint32_t queue_pair_ = 0x1000;
};

/// The server with `places` connections, the client that behaves, and the hostile host.
class ConnectingSite {
 public:
  explicit ConnectingSite(std::uint32_t places)
      : pair_({}),
        random_(1),
        server(pair_.right(), cm::with_limits({.seed = 5}, places, kPerClient)),
        client(pair_.left(), {.seed = 6}) {
    server.agent.listen(kPort);
    server.ends_each = true;
    pair_.wire().watch = [this](bool to_right, std::span<const std::byte> frame) {
      if (!to_right) look(frame);
    };
  }

  void turn() {
    now_ns_ += kTurnNs;
    pair_.carry();
    server.turn(kTakenPerTurn, now_ns_);
    pair_.carry();
    client.turn(DatagramQueue::kCapacity, now_ns_);
  }
  /// Connects, and returns the number of turns until the server has ended the connection again.
  template <typename Beside>
  std::uint32_t connect(Beside&& beside) {
    constexpr std::uint32_t kGiveUp = 1000;
    const std::uint32_t ended = client.ended;
    const cm::Endpoint to{pair_.left().addresses()[0], pair_.right().addresses()[0], pair_.link_of_right()};
    EXPECT_TRUE(client.agent.connect(to, kPort, 4096, {.qpn = ++queue_pair_, .private_data = {}}, now_ns_));
    std::uint32_t turns = 0;
    for (; client.ended == ended && client.refused == 0 && turns < kGiveUp; ++turns) {
      beside();
      turn();
    }
    return turns;
  }

  // --- Used by attacks
  std::uint32_t random() { return static_cast<std::uint32_t>(random_()); }
  void send(std::span<const std::byte> bytes) {
    Route route;
    route.source_mac = kHostileLink;
    route.destination_mac = pair_.link_of_right();
    route.source = kHostileHost;
    route.destination = pair_.right().addresses()[0];
    Packet packet = make_packet(Opcode::DatagramSendOnly, kManagementQueuePair, random(), bytes);
    packet.deth = {.queue_key = kManagementQueueKey, .source_qp = kManagementQueuePair};
    pair_.wire().inject(true, build_frame(route, packet, bytes));
  }
  void send(const cm::Message& message) { send(cm::encode(message)); }
  void send_request() {
    const std::uint32_t number = ++hostile_number_;
    cm::ConnectRequest request{.local_id = number,
                               .service_id = cm::service_id(kPort),
                               .qpn = number,
                               .local_response_timeout = 20,
                               .path_mtu = 5};
    request.private_data.set(cm::encode_ip_addressing({1, kHostileHost, pair_.right().addresses()[0]}));
    send({number, request});
  }
  /// Confirms the replies that have arrived.
  void confirm() {
    for (const cm::Message& message : std::exchange(arrived_, {}))
      if (const auto* reply = std::get_if<cm::ConnectReply>(&message.body))
        send({message.transaction_id,
              cm::ReadyToUse{.local_id = reply->remote_id, .remote_id = reply->local_id}});
  }
  std::uint64_t disconnect_requests() const { return disconnect_requests_; }

 private:
  static constexpr std::uint32_t kPerClient = 16;

  void look(std::span<const std::byte> bytes) {
    const Frame frame = parse(bytes);
    if (frame.kind != FrameKind::Roce || frame.destination != kHostileHost) return;
    const auto packet = decode(frame.transport);
    if (!packet) return;
    const cm::DecodeResult message = cm::decode(packet->payload);
    if (message.status != cm::Decode::Ok) return;
    disconnect_requests_ += std::holds_alternative<cm::DisconnectRequest>(message.message.body);
    arrived_.push_back(message.message);
  }

  SoftRocePair pair_;
  std::mt19937 random_;
  std::vector<cm::Message> arrived_;  ///< at the hostile host
  std::uint32_t hostile_number_ = 0;
  std::uint32_t queue_pair_ = 0x100;
  std::uint64_t disconnect_requests_ = 0;
  std::uint64_t now_ns_ = 1'000'000'000;

 public:
  End server;
  End client;
};

struct Attack {
  const char* name;
  void (*step)(ConnectingSite& site);  ///< sends one datagram or a few
  bool connects = false;               ///< the server ends connections of the hostile host
};

void PrintTo(const Attack& attack, std::ostream* to) {
  *to << attack.name;
}

constexpr Attack kAttacks[] = {
    {"disconnect_requests_are_not_answered",
     [](ConnectingSite& site) {
       site.send_request();
       site.confirm();
     },
     true},
    {"replies_are_not_confirmed", [](ConnectingSite& site) { site.send_request(); }},
    {"datagrams_of_random_bytes",
     [](ConnectingSite& site) {
       std::array<std::byte, cm::kMadBytes> bytes;
       for (std::byte& byte : bytes) byte = static_cast<std::byte>(site.random());
       site.send(bytes);
     }},
    {"ends_of_unknown_connections",
     [](ConnectingSite& site) {
       site.send({site.random(), cm::DisconnectRequest{.local_id = site.random(),
                                                       .remote_id = site.random(),
                                                       .remote_qpn = site.random() & 0xffffff}});
     }},
};

class IsolationOfConnecting : public testing::TestWithParam<std::tuple<Attack, std::uint32_t>> {};

TEST_P(IsolationOfConnecting, a_client_connects_beside_a_flood_of_management_datagrams) {
  const auto& [attack, places] = GetParam();
  ConnectingSite alone(places);
  const std::uint32_t turns_alone = alone.connect([] {});
  ASSERT_EQ(alone.client.ended, 1u);

  ConnectingSite site(places);
  // The server processes three messages of the client: request, ready-to-use and disconnect reply. Each waits
  // behind at most a quarter of the queue.
  constexpr std::uint32_t kSpareTurns = 3 * DatagramQueue::kCapacity / 4 / kTakenPerTurn;
  const auto flood = [&site, step = attack.step] {
    for (int i = 0; i < kSentPerTurn; ++i) step(site);
  };
  std::uint32_t worst = 0;
  for (int i = 0; i < kConnections; ++i) {
    const std::uint32_t turns = site.connect(flood);
    worst = std::max(worst, turns - std::min(turns, turns_alone));
    ASSERT_EQ(site.client.ended, static_cast<std::uint32_t>(i + 1)) << "in " << turns << " turns";
  }
  EXPECT_LE(worst, kSpareTurns);
  EXPECT_EQ(site.client.refused, 0u);
  EXPECT_EQ(site.server.refused, 0u);
  EXPECT_EQ(site.client.agent.statistics().retransmissions, 0u) << "no message of the client was lost";
  EXPECT_EQ(site.disconnect_requests() > 0, attack.connects);
  RecordProperty("most_turns_more_than_alone", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(, IsolationOfConnecting,
                         testing::Combine(testing::ValuesIn(kAttacks), testing::Values(32u, 256u)),
                         [](const auto& parameter) {
                           return std::string(std::get<0>(parameter.param).name) + "_at_" +
                                  std::to_string(std::get<1>(parameter.param)) + "_places";
                         });

/// A host that answers no disconnect request holds places for as long as the requests are retransmitted.
TEST(IsolationOfConnectingAgain,
     a_client_connects_although_the_ended_connections_of_another_wait_for_answers) {
  constexpr std::uint32_t kPlaces = 32;
  ConnectingSite site(kPlaces);
  for (std::uint32_t i = 0; i < 4 * kPlaces; ++i)
    for (int turn = 0; turn < 4; ++turn) {
      if (turn == 0) site.send_request();
      site.turn();
      site.confirm();
    }
  EXPECT_GT(site.disconnect_requests(), kPlaces);
  for (int i = 0; i < kConnections; ++i) {
    site.connect([] {});
    ASSERT_EQ(site.client.ended, static_cast<std::uint32_t>(i + 1));
  }
  EXPECT_EQ(site.client.refused, 0u);
  EXPECT_EQ(site.client.agent.statistics().retransmissions, 0u);
  EXPECT_LE(site.server.agent.connections(), 2 * kPlaces);
}

}  // namespace
}  // namespace sluice::isolation
