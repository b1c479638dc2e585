// SPDX-License-Identifier: Apache-2.0
//
// Connections that are established, refused and ended between two agents, over any link.
#include "tests/unit/controlplane/cm/agent_lab.h"

namespace sluice::cm::agent_lab {
namespace {

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

}  // namespace
}  // namespace sluice::cm::agent_lab
