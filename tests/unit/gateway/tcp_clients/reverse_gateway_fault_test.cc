// SPDX-License-Identifier: Apache-2.0
//
// Invalid messages, clients that stop or end in the middle of a call, and a server that does not answer.
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

TEST(ReverseGatewayFault, records_that_are_no_calls_end_their_client_and_no_other) {
  ReverseGatewayLab lab({.clients = 6});
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& good = lab.side.add_peer();
  const Bytes bad[] = {record(words({1, 2, 3})),                            // too short
                       record(words({1, 7, 2, 100003, 3, 0, 0, 0, 0, 0})),  // neither call nor reply
                       record(words({1, 0, 2, 100003, 3, 0, 1})),           // truncated in the credential
                       words({0xFFFFFFFF}), words({0x7FFFFFFF})};
  for (const Bytes& bytes : bad) {
    TcpPeer& client = lab.side.add_peer();
    client.send(bytes);
    ASSERT_TRUE(lab.until([&] { return client.ended(); }));
    EXPECT_EQ(lab.call(good, with_xid(nfs3(0), 3)), success(3));
  }
  EXPECT_EQ(lab.side.count(Counter::bad_records), 5u);
}

/// The gateway is the end of the transport, which has no TLS (RFC 9289, section 4.1).
TEST(ReverseGatewayFault, a_client_that_asks_for_tls_is_answered_here) {
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  for (const std::uint32_t procedure : {0u, 1u})
    EXPECT_EQ(lab.call(client, words({9, 0, 2, 100003, 3, procedure, 7, 0, 0, 0})), words({9, 1, 1, 1, 1}));
  EXPECT_TRUE(lab.forward.upstream.calls.empty());
  EXPECT_TRUE(lab.side.connections.empty());
  EXPECT_EQ(lab.side.count(Counter::bad_calls), 2u);
}

TEST(ReverseGatewayFault, V1_165_calls_of_another_RPC_version_are_answered_here) {
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  EXPECT_EQ(lab.call(client, words({9, 0, 3, 100003, 3, 0, 0, 0, 0, 0})), words({9, 1, 1, 0, 2, 2}));
  Bytes long_credential = words({10, 0, 2, 100003, 3, 0, 1, 404});
  long_credential.resize(long_credential.size() + 404 + 8);
  EXPECT_EQ(lab.call(client, long_credential), words({10, 1, 1, 1, 1}));  // AUTH_ERROR, AUTH_BADCRED
  EXPECT_TRUE(lab.forward.upstream.calls.empty());
  EXPECT_EQ(lab.side.count(Counter::bad_calls), 2u);
}

TEST(ReverseGatewayFault, a_call_that_is_too_long_ends_its_client) {
  ReverseGatewayLab lab;
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& client = lab.side.add_peer();
  Bytes call = nfs3(0);
  call.resize(3u << 20);
  client.send_record(with_xid(call, 5));
  ASSERT_TRUE(lab.until([&] { return client.ended(); }));
  EXPECT_EQ(client.received(), 0u);
  EXPECT_EQ(lab.call(lab.side.add_peer(), with_xid(nfs3(0), 6)), success(6));
  EXPECT_EQ(lab.side.count(Counter::long_records), 1u);
}

TEST(ReverseGatewayFault, a_call_is_too_long_beyond_what_is_configured) {
  constexpr std::uint32_t kBytes = 4u << 20;
  ReverseGatewayLab lab({.max_io_bytes = kBytes}, {.max_io_bytes = kBytes});
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& client = lab.side.add_peer();
  Bytes call = nfs3(0);
  call.resize(3u << 20);  // has no eligible argument, so it is one long call
  ASSERT_EQ(lab.call(client, with_xid(call, 5)), success(5));
  EXPECT_EQ(without_xid(lab.forward.upstream.calls.back().message), without_xid(call));
  call.resize(tcp::record_bytes(kBytes) + 4);
  client.send_record(with_xid(call, 6));
  ASSERT_TRUE(lab.until([&] { return client.ended(); }));
  EXPECT_EQ(lab.side.count(Counter::long_records), 1u);
}

TEST(ReverseGatewayFault, a_call_with_an_outstanding_XID_is_dropped) {
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  client.send_record(with_xid(nfs3(0), 5));
  client.send_record(with_xid(nfs3(0), 5));
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::duplicate_calls) == 1; }));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 1; }));
  lab.forward.upstream.send(lab.forward.upstream.calls[0].connection,
                            record(success(lab.forward.upstream.calls[0].xid())));
  EXPECT_EQ(lab.answer(client), success(5));
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  EXPECT_EQ(lab.call(client, with_xid(nfs3(0), 5)), success(5));
}

TEST(ReverseGatewayFault, calls_that_ask_for_more_than_a_reply_can_be_get_what_the_server_has) {
  ReverseGatewayLab lab;
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), read3_result(70'000, 1)); };
  TcpPeer& client = lab.side.add_peer();
  EXPECT_EQ(lab.call(client, with_xid(read3(0xFFFFFFFF), 5)), success(5, read3_result(70'000, 1)));
  EXPECT_EQ(lab.call(client, with_xid(read3(0x7FFFFFFF), 6)), success(6, read3_result(70'000, 1)));
}

TEST(ReverseGatewayFault, a_call_waits_for_a_slow_server) {
  EXPECT_EQ(tcp_clients::ReverseGatewayConfig{}.server_side.call_timeout_ns, 0u);
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  all_credits(lab, client);
  constexpr std::size_t kProcedure = 5;
  lab.forward.upstream.answer = [](const auto& call) {
    return word_at(call.message, kProcedure) == ulb::kNfs3Null ? success(call.xid()) : Bytes{};
  };
  client.send_record(with_xid(nfs3(ulb::kNfs3GetAttr, opaque(pattern(32, 5))), 5));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 1; }));
  const auto slow = lab.forward.upstream.calls[0];
  for (int i = 0; i < 8; ++i) {
    lab.forward.pass(rdma_server::kSilenceNs + 1'000'000'000);
    lab.turns();
  }
  EXPECT_GE(lab.side.count(Counter::probes), 1u);
  EXPECT_EQ(lab.side.count(Counter::server_resets), 0u);
  EXPECT_EQ(client.received(), 0u);
  lab.forward.upstream.send(slow.connection, record(success(slow.xid(), words({0}))));
  EXPECT_EQ(lab.answer(client), success(5, words({0})));
}

TEST(ReverseGatewayFault, a_call_that_may_not_wait_for_ever_costs_its_client_the_connection) {
  ReverseGatewayLab lab({.call_timeout_ns = 5'000'000'000});
  TcpPeer& client = lab.side.add_peer();
  client.send_record(with_xid(nfs3(0), 5));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 1; }));
  lab.forward.pass(6'000'000'000);
  ASSERT_TRUE(lab.until([&] { return client.ended(); }));
  EXPECT_EQ(client.received(), 0u);
  EXPECT_EQ(lab.side.count(Counter::timeouts), 1u);
  EXPECT_EQ(lab.side.count(Counter::clients_reset), 1u);
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  EXPECT_EQ(lab.call(lab.side.add_peer(), with_xid(nfs3(0), 6)), success(6));
}

TEST(ReverseGatewayFault, a_server_that_cannot_be_reached_is_tried_again) {
  ReverseGatewayLab lab;
  lab.side.may_dial = false;
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& client = lab.side.add_peer();
  client.send_record(with_xid(nfs3(0), 5));
  lab.turns();
  EXPECT_GE(lab.side.count(Counter::dials_failed), 1u);
  lab.side.may_dial = true;
  EXPECT_EQ(lab.answer(client), success(5));
}

TEST(ReverseGatewayFault, strangers_are_refused) {
  ReverseGatewayLab closed({.allowed = {{PeerAddress::from_ipv4(192, 0, 2, 0), 120}}});
  TcpPeer& stranger = closed.side.add_peer();
  ASSERT_TRUE(closed.until([&] { return stranger.ended(); }));
  EXPECT_EQ(closed.side.count(Counter::clients_refused), 1u);
}

TEST(ReverseGatewayFault, only_clients_with_privileged_ports_are_served_where_that_is_required) {
  ReverseGatewayLab lab({.privileged_clients = true});
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& user = lab.side.add_peer();
  ASSERT_TRUE(lab.until([&] { return user.ended(); }));
  EXPECT_EQ(lab.side.count(Counter::clients_unprivileged), 1u);
  EXPECT_EQ(lab.side.count(Counter::clients_refused), 0u);
  EXPECT_EQ(lab.side.count(Counter::clients_accepted), 0u);
  EXPECT_EQ(lab.call(lab.side.add_privileged_peer(), with_xid(nfs3(0), 6)), success(6));
}

TEST(ReverseGatewayFault, a_client_that_takes_no_bytes_is_ended_and_its_memory_serves_others) {
  ReverseGatewayLab lab({.record_buffers = 8});
  lab.forward.upstream.answer = [](const auto& call) {
    return success(call.xid(), read3_result(1 << 20, 1));
  };
  TcpPeer& greedy = lab.side.add_peer();
  greedy.reads = false;
  for (std::uint32_t i = 0; i < 60; ++i) greedy.send_record(with_xid(read3(1 << 20), 100 + i));
  lab.turns(2000);
  TcpPeer& other = lab.side.add_peer();
  EXPECT_EQ(lab.call(other, with_xid(read3(1 << 20), 5)), success(5, read3_result(1 << 20, 1)));
  lab.forward.pass(tcp_clients::kStuckNs + 1'000'000'000);
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::clients_stuck) == 1; }));
  EXPECT_EQ(lab.call(other, with_xid(read3(1 << 20), 6)), success(6, read3_result(1 << 20, 1)));
}

TEST(ReverseGatewayFault, a_long_call_waits_for_one_of_few_records_and_is_counted) {
  constexpr std::uint32_t kBytes = 4u << 20;
  ReverseGatewayLab lab({.record_buffers = 2, .max_io_bytes = kBytes}, {.max_io_bytes = kBytes});
  TcpPeer& client = lab.side.add_peer();
  all_credits(lab, client);
  for (std::uint32_t i = 0; i < 3; ++i) client.send_record(with_xid(write3(kBytes, i), 100 + i));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 2; }));
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::waits_memory) > 0; }));
  EXPECT_EQ(lab.forward.upstream.calls.size(), 2u);
  const Bytes results = words({0, 0, 0, kBytes, 2, 7, 8});
  for (const auto& call : std::vector(lab.forward.upstream.calls))
    lab.forward.upstream.send(call.connection, record(success(call.xid(), results)));
  lab.forward.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
  for (std::uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(without_xid(lab.answer(client)), without_xid(success(0, results)));
}

/// Client libraries may use fragments as short as 2048 bytes, even for the longest WRITE.
TEST(ReverseGatewayFault, a_call_of_many_fragments_is_one_call) {
  constexpr std::uint32_t kFragment = 512, kXid = 5;
  ReverseGatewayLab lab;
  const Bytes results = words({0, 0, 0, 1 << 20, 2, 7, 8});
  lab.forward.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
  TcpPeer& client = lab.side.add_peer();
  const Bytes call = with_xid(write3(1 << 20, 1), kXid);
  for (std::size_t at = 0; at < call.size(); at += kFragment) {
    const auto piece = std::span(call).subspan(at, std::min<std::size_t>(kFragment, call.size() - at));
    client.send(tcp_upstream_test::fragment(piece, at + piece.size() == call.size()));
  }
  EXPECT_EQ(lab.answer(client), success(kXid, results));
  EXPECT_EQ(without_xid(lab.forward.upstream.calls.back().message), without_xid(call));
}

TEST(ReverseGatewayFault, a_client_that_has_sent_its_last_call_gets_its_reply) {
  ReverseGatewayLab lab;
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& client = lab.side.add_peer();
  client.send_record(with_xid(nfs3(0), 5));
  client.shut_sending();
  EXPECT_EQ(lab.answer(client), success(5));
  EXPECT_TRUE(lab.until([&] { return client.ended(); }));
  EXPECT_EQ(lab.side.area->outstanding.load(), 0u);
}

TEST(ReverseGatewayFault, a_client_that_sends_nothing_more_is_ended_if_its_call_is_not_answered) {
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  client.send_record(with_xid(nfs3(0), 5));
  client.shut_sending();
  ASSERT_TRUE(lab.until([&] { return !lab.forward.upstream.calls.empty(); }));
  lab.turns();
  EXPECT_FALSE(client.ended());
  lab.forward.pass(tcp_clients::kHalfClosedNs + 1'000'000'000);
  EXPECT_TRUE(lab.until([&] { return client.ended(); }));
}

/// The client may have connected again and repeated the call, which must not be sent after a newer one.
TEST(ReverseGatewayFault, a_call_of_a_client_that_sends_nothing_more_is_not_sent_again) {
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  client.send_record(with_xid(nfs3(0), 5));
  client.shut_sending();
  ASSERT_TRUE(lab.until([&] { return !lab.forward.upstream.calls.empty(); }));
  lab.turns();
  lab.side.connections.at(0)->close(rpcrdma::CloseReason::TransportError);
  EXPECT_TRUE(lab.until([&] { return client.ended(); }));
  lab.turns();
  EXPECT_EQ(lab.side.connections.size(), 1u);
}

TEST(ReverseGatewayFault, a_client_that_stops_in_the_middle_of_a_long_call_is_ended) {
  ReverseGatewayLab lab;
  TcpPeer& client = lab.side.add_peer();
  const Bytes call = record(write3(300'000, 1));
  client.send(std::span(call).first(200'000));
  lab.turns();
  EXPECT_FALSE(client.ended());
  lab.forward.pass(tcp_clients::kStuckNs + 1'000'000'000);
  ASSERT_TRUE(lab.until([&] { return client.ended(); }));
  EXPECT_EQ(lab.side.count(Counter::clients_stuck), 1u);
}

TEST(ReverseGatewayFault, answers_that_nobody_asked_for_are_counted) {
  ReverseGatewayLab lab;
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  TcpPeer& client = lab.side.add_peer();
  client.send_record(success(55, {}));
  EXPECT_EQ(lab.call(client, with_xid(nfs3(0), 5)), success(5));
  EXPECT_EQ(lab.side.count(Counter::bad_records), 1u);
}

}  // namespace
}  // namespace sluice::tcp_clients_test
