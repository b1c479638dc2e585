// SPDX-License-Identifier: Apache-2.0
//
// Client slots of the reverse gateway: no host can occupy all of them, and no connection in use is evicted.
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint32_t kPlaces = 4;
constexpr std::uint8_t kHost = 1, kOther = 2, kThird = 3;

struct ReverseGatewayPlaces : testing::Test {
  ReverseGatewayPlaces() { lab.forward.upstream.answer = answer_null; }

  /// Connects one host `count` times.
  void fill(std::uint8_t host = kHost, std::uint32_t count = kPlaces) {
    const std::uint64_t before = lab.side.count(Counter::clients_accepted);
    for (std::uint32_t i = 0; i < count; ++i) peers.push_back(&lab.side.add_peer(host));
    ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::clients_accepted) == before + count; }));
    lab.turns();
  }
  void pass(std::uint64_t ns) {
    lab.forward.pass(ns);
    lab.turns();
  }
  std::uint32_t ended() const {
    return static_cast<std::uint32_t>(
        std::count_if(peers.begin(), peers.end(), [](const TcpPeer* peer) { return peer->ended(); }));
  }

  ReverseGatewayLab lab{{.clients = kPlaces}};
  std::vector<TcpPeer*> peers;
};

TEST_F(ReverseGatewayPlaces, silent_connections_make_room_for_a_newcomer) {
  fill();
  pass(tcp_clients::kLeastStayNs);
  EXPECT_EQ(ended(), 0u);  // no client waits
  EXPECT_EQ(lab.call(lab.side.add_peer(kOther), null_call(5)), success(5));
  EXPECT_EQ(ended(), 1u);
  EXPECT_EQ(lab.side.count(Counter::clients_evicted), 1u);
}

TEST_F(ReverseGatewayPlaces, a_connection_stays_for_a_while_before_another_has_its_place) {
  fill();
  TcpPeer& newcomer = lab.side.add_peer(kOther);
  newcomer.send_record(null_call(5));
  pass(tcp_clients::kLeastStayNs / 2);
  EXPECT_EQ(ended(), 0u);
  pass(tcp_clients::kLeastStayNs);
  EXPECT_EQ(lab.answer(newcomer), success(5));
}

TEST_F(ReverseGatewayPlaces, the_host_that_holds_most_loses_its_longest_idle_connection_first) {
  fill(kOther, 1);
  fill(kHost, 3);
  pass(tcp_clients::kLeastStayNs);
  EXPECT_EQ(lab.call(*peers[1], null_call(4)), success(4));
  pass(2 * tcp_clients::kLeastStayNs);
  EXPECT_EQ(lab.call(lab.side.add_peer(kThird), null_call(5)), success(5));
  EXPECT_FALSE(peers[0]->ended());
  EXPECT_FALSE(peers[1]->ended());
  EXPECT_EQ(ended(), 1u);
}

TEST_F(ReverseGatewayPlaces, a_host_that_holds_as_many_as_others_takes_no_place_of_theirs) {
  fill(kHost, 2);
  fill(kOther, 2);
  peers[0]->send_record(stuck_call(5));
  peers[1]->send_record(stuck_call(6));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 2; }));
  pass(tcp_clients::kLeastStayNs);
  TcpPeer& third = lab.side.add_peer(kHost);
  ASSERT_TRUE(lab.until([&] { return third.ended(); }));
  EXPECT_EQ(ended(), 0u);
  EXPECT_EQ(lab.side.count(Counter::clients_over_share), 1u);
}

/// The connections in use have a call in progress, part of a record, and a call of the server.
TEST_F(ReverseGatewayPlaces, a_connection_in_use_is_not_evicted) {
  fill(kHost, 1);
  fill(kOther, 1);
  fill(kThird, 1);
  fill(kThird + 1, 1);
  const Bytes call = record(null_call(7));
  peers[0]->send_record(stuck_call(5));
  peers[1]->send(std::span(call).first(6));
  peers[2]->send_record(stuck_call(8));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 2; }));
  pass(tcp_clients::kLeastStayNs);
  TcpPeer& newcomer = lab.side.add_peer(kThird + 2);
  newcomer.send_record(null_call(5));
  EXPECT_EQ(lab.answer(newcomer), success(5));
  EXPECT_TRUE(peers[3]->ended());
  TcpPeer& waits = lab.side.add_peer(kThird + 3);
  pass(tcp_clients::kLeastStayNs / 2);
  EXPECT_EQ(ended(), 1u);
  EXPECT_FALSE(waits.ended());
  peers[1]->send(std::span(call).subspan(6));
  EXPECT_EQ(lab.answer(*peers[1]), success(7));
}

TEST_F(ReverseGatewayPlaces,
       a_host_whose_connections_are_all_in_use_gives_one_up_once_its_calls_are_answered) {
  fill();
  for (std::uint32_t i = 0; i < kPlaces; ++i) peers[i]->send_record(stuck_call(10 + i));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == kPlaces; }));
  pass(tcp_clients::kLeastStayNs);
  TcpPeer& newcomer = lab.side.add_peer(kOther);
  newcomer.send_record(null_call(5));
  pass(tcp_clients::kDrainNs / 2);
  EXPECT_EQ(ended(), 0u);
  for (const auto& call : lab.forward.upstream.calls)
    if (call.xid() != 0) lab.forward.upstream.send(call.connection, record(success(call.xid())));
  EXPECT_EQ(lab.answer(newcomer), success(5));
  EXPECT_EQ(ended(), 1u);
  for (std::uint32_t i = 0; i < kPlaces; ++i) EXPECT_EQ(lab.answer(*peers[i]), success(10 + i));
  EXPECT_EQ(lab.side.count(Counter::calls_lost), 0u);
}

TEST_F(ReverseGatewayPlaces, a_record_has_to_arrive_within_its_time) {
  TcpPeer& slow = lab.side.add_peer();
  const Bytes call = record(null_call(7));
  slow.send(std::span(call).first(6));
  lab.turns();
  pass(tcp_clients::kStuckNs + kSecondNs);  // the remainder does not arrive
  ASSERT_TRUE(lab.until([&] { return slow.ended(); }));
  TcpPeer& trickle = lab.side.add_peer();
  const Bytes longer = record(stuck_call(8));
  std::size_t sent = 0;
  for (std::uint64_t ns = 0; ns <= tcp_clients::kRecordNs && !trickle.ended();
       ns += tcp_clients::kStuckNs / 2) {
    trickle.send(std::span(longer).subspan(sent++, 1));
    pass(tcp_clients::kStuckNs / 2);
  }
  EXPECT_TRUE(lab.until([&] { return trickle.ended(); }));
  EXPECT_EQ(lab.side.count(Counter::clients_stuck), 2u);
}

TEST_F(ReverseGatewayPlaces, many_records_one_after_the_other_are_no_slow_record) {
  TcpPeer& client = lab.side.add_peer();
  std::uint32_t xid = 100;
  Bytes half = record(null_call(xid));
  client.send(std::span(half).first(10));
  for (std::uint64_t ns = 0; ns <= 2 * tcp_clients::kRecordNs; ns += tcp_clients::kStuckNs / 2) {
    client.send(std::span(half).subspan(10));
    half = record(null_call(xid + 1));
    client.send(std::span(half).first(10));
    pass(tcp_clients::kStuckNs / 2);
    EXPECT_EQ(lab.answer(client), success(xid++));
  }
  EXPECT_FALSE(client.ended());
}

TEST_F(ReverseGatewayPlaces, nobody_is_evicted_while_another_reactor_has_room) {
  ReverseGatewaySide other(lab.forward.fabric, {.clients = kPlaces}, &tcp_upstream_test::ForwardLab::clock,
                           lab.side.listener);
  lab.forward.beside = [&] {
    lab.forward.accept_clients();
    lab.side.poll(tcp_upstream_test::ForwardLab::clock());
    other.poll(tcp_upstream_test::ForwardLab::clock());
  };
  const auto accepted = [&] {
    return lab.side.count(Counter::clients_accepted) + other.count(Counter::clients_accepted);
  };
  for (std::uint32_t i = 1; i <= 2 * kPlaces; ++i) {
    peers.push_back(&lab.side.add_peer());
    ASSERT_TRUE(lab.until([&] { return accepted() == i; }));
    pass(tcp_clients::kLeastStayNs);
  }
  EXPECT_EQ(ended(), 0u);
  EXPECT_EQ(lab.call(lab.side.add_peer(kOther), null_call(5)), success(5));
  EXPECT_EQ(ended(), 1u);
}

}  // namespace
}  // namespace sluice::tcp_clients_test
