// SPDX-License-Identifier: Apache-2.0
//
// Peers that do not answer or confirm, that connect again, and that send what was not asked for.
#include "tests/unit/controlplane/cm/agent_lab.h"

namespace sluice::cm::agent_lab {
namespace {

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
}  // namespace sluice::cm::agent_lab
