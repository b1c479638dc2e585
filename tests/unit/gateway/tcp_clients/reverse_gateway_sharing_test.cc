// SPDX-License-Identifier: Apache-2.0
//
// Resources that clients of the reverse gateway share: slots at reactors, and connections to the server.
#include <algorithm>
#include <string>

#include "dataplane/base/setup_error.h"
#include "dataplane/tcp/sockets.h"
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

/// Ends a client's time slice of its connection.
void pass_turn(ReverseGatewayLab& lab) {
  lab.forward.pass(rdma_server::kTurnNs + 100'000'000);
  lab.turns();
}

TEST(ReverseGatewaySharing, a_client_waits_where_there_is_no_room_and_is_not_refused) {
  ReverseGatewayLab lab({.clients = 1});
  lab.forward.upstream.answer = answer_null;
  TcpPeer& first = lab.side.add_peer();
  EXPECT_EQ(lab.call(first, null_call(5)), success(5));
  TcpPeer& second = lab.side.add_peer();
  second.send_record(null_call(6));
  lab.turns();
  EXPECT_FALSE(second.ended());
  EXPECT_EQ(second.received(), 0u);
  EXPECT_EQ(lab.side.count(Counter::waits_client), 1u);
  first.shut();
  EXPECT_EQ(lab.answer(second), success(6));
  EXPECT_EQ(lab.side.count(Counter::clients_refused), 0u);
}

TEST(ReverseGatewaySharing, a_client_goes_to_the_reactor_that_has_room) {
  ReverseGatewayLab lab({.clients = 2});
  ReverseGatewaySide other(lab.forward.fabric, {.clients = 3}, &tcp_upstream_test::ForwardLab::clock,
                           lab.side.listener);
  lab.forward.beside = [&] {
    lab.forward.accept_clients();
    lab.side.poll(tcp_upstream_test::ForwardLab::clock());
    other.poll(tcp_upstream_test::ForwardLab::clock());
  };
  lab.forward.upstream.answer = answer_null;
  std::vector<TcpPeer*> peers;
  for (std::uint32_t i = 0; i < 5; ++i) {
    peers.push_back(&lab.side.add_peer());
    EXPECT_EQ(lab.call(*peers.back(), null_call(5)), success(5));
  }
  TcpPeer& waits = lab.side.add_peer();
  waits.send_record(null_call(7));
  lab.turns();
  EXPECT_FALSE(waits.ended());
  EXPECT_EQ(lab.side.count(Counter::clients_accepted), 2u);
  EXPECT_EQ(other.count(Counter::clients_accepted), 3u);
  peers[3]->shut();
  EXPECT_EQ(lab.answer(waits), success(7));
  lab.forward.beside = nullptr;
}

TEST(ReverseGatewaySharing, clients_without_calls_have_no_connection_to_the_server) {
  ReverseGatewayLab lab({.clients = 20, .connections = 2});
  lab.forward.upstream.answer = answer_null;
  std::vector<TcpPeer*> peers;
  for (int i = 0; i < 20; ++i) peers.push_back(&lab.side.add_peer());
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::clients_accepted) == 20; }));
  lab.turns();
  EXPECT_TRUE(lab.side.connections.empty());
  for (TcpPeer* peer : peers) {
    pass_turn(lab);
    EXPECT_EQ(lab.call(*peer, null_call(5)), success(5));
  }
  EXPECT_EQ(lab.side.count(Counter::connections_taken), 18u);
  EXPECT_EQ(lab.side.count(Counter::disconnects), 0u);
}

TEST(ReverseGatewaySharing, a_connection_is_kept_until_another_client_waits_for_one) {
  ReverseGatewayLab lab({.connections = 2});
  lab.forward.upstream.answer = answer_null;
  TcpPeer& first = lab.side.add_peer();
  TcpPeer& second = lab.side.add_peer();
  EXPECT_EQ(lab.call(first, null_call(5)), success(5));
  EXPECT_EQ(lab.call(second, null_call(5)), success(5));
  EXPECT_EQ(lab.call(first, null_call(6)), success(6));
  lab.forward.pass(3'600'000'000'000);
  lab.turns();
  EXPECT_EQ(lab.side.area->connected.load(), 2u);
  // The client that has been idle longest loses its connection.
  EXPECT_EQ(lab.call(lab.side.add_peer(), null_call(5)), success(5));
  EXPECT_EQ(lab.side.connections.size(), 3u);
  EXPECT_EQ(lab.side.connections[2], lab.side.connections[1]);
  EXPECT_EQ(lab.call(first, null_call(7)), success(7));
  EXPECT_EQ(lab.side.connections.size(), 3u);
}

/// Three clients with `calls_at_once` outstanding calls each share one connection. Returns how often the
/// connection changed clients, and the number of time slices that elapsed.
std::pair<std::uint64_t, std::uint64_t> take_turns(int calls_at_once) {
  ReverseGatewayLab lab({.connections = 1});
  lab.forward.upstream.answer = answer_null;
  std::vector<TcpPeer*> peers;
  std::vector<std::uint32_t> answered(3);
  for (int i = 0; i < 3; ++i) peers.push_back(&lab.side.add_peer());
  const std::uint64_t begun_ns = tcp_upstream_test::ForwardLab::clock();
  std::uint32_t xid = 100;
  for (TcpPeer* peer : peers)
    for (int i = 0; i < calls_at_once; ++i) peer->send_record(null_call(++xid));
  EXPECT_TRUE(lab.until([&] {
    lab.forward.pass(20'000'000);
    for (std::size_t i = 0; i < peers.size(); ++i)
      while (peers[i]->take_record()) {
        ++answered[i];
        peers[i]->send_record(null_call(++xid));
      }
    return std::min({answered[0], answered[1], answered[2]}) >= 50;
  }));
  EXPECT_EQ(lab.side.count(Counter::calls_lost), 0u);
  return {lab.side.count(Counter::connections_taken),
          (tcp_upstream_test::ForwardLab::clock() - begun_ns) / rdma_server::kTurnNs};
}

TEST(ReverseGatewaySharing, clients_that_always_have_a_call_take_turns) {
  for (const int calls_at_once : {1, 4}) {
    SCOPED_TRACE(calls_at_once);
    const auto [taken, turns] = take_turns(calls_at_once);
    EXPECT_GE(taken, 2u);
    EXPECT_LE(taken, turns);
  }
}

TEST(ReverseGatewaySharing, a_client_whose_calls_do_not_end_holds_up_no_other) {
  ReverseGatewayLab lab({.connections = 2});
  lab.forward.upstream.answer = answer_null;
  TcpPeer& stuck = lab.side.add_peer();
  stuck.send_record(stuck_call(5));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 1; }));
  TcpPeer& busy = lab.side.add_peer();
  TcpPeer& third = lab.side.add_peer();
  std::uint32_t xid = 100;
  for (int i = 0; i < 4; ++i) busy.send_record(null_call(++xid));
  third.send_record(null_call(5));
  EXPECT_TRUE(lab.until([&] {
    lab.forward.pass(2'000'000);
    while (busy.take_record()) busy.send_record(null_call(++xid));
    return third.received() > 0;
  }));
  EXPECT_EQ(stuck.received(), 0u);
}

TEST(ReverseGatewaySharing, a_client_that_is_being_called_back_keeps_its_connection) {
  ReverseGatewayLab lab({.connections = 1});
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  TcpPeer& client = lab.side.add_peer();
  lab.call(client, with_xid(call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 0})), 1));
  lab.forward.upstream.send(lab.forward.upstream.calls.back().connection,
                            record(conformance::rpc_call(78, 0x40000000, 1, 1)));
  const Bytes seen = lab.answer(client);
  TcpPeer& other = lab.side.add_peer();
  other.send_record(null_call(5));
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::waits_connection) == 1; }));
  for (int i = 0; i < 3; ++i) pass_turn(lab);
  EXPECT_EQ(lab.side.count(Counter::connections_taken), 0u);
  client.send_record(success(word_at(seen, 0)));
  EXPECT_EQ(lab.answer(other).size(), success(5, words({0, 0, 0})).size());
  EXPECT_EQ(lab.side.count(Counter::callbacks_refused), 0u);
}

TEST(ReverseGatewaySharing, a_client_that_goes_while_it_waits_leaves_the_queue) {
  ReverseGatewayLab lab({.connections = 1});
  lab.forward.upstream.answer = answer_null;
  TcpPeer& first = lab.side.add_peer();
  first.send_record(stuck_call(5));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 1; }));
  TcpPeer& gone = lab.side.add_peer();
  gone.send_record(null_call(5));
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::waits_connection) >= 1; }));
  gone.shut();
  lab.turns();
  lab.forward.pass(tcp_clients::kUnsentNs + 100'000'000);
  ASSERT_TRUE(lab.until([&] { return lab.side.count(Counter::clients_ended) == 1; }));
  TcpPeer& third = lab.side.add_peer();
  third.send_record(null_call(6));
  const auto stuck = lab.forward.upstream.calls[0];
  lab.forward.upstream.send(stuck.connection, record(success(stuck.xid())));
  EXPECT_EQ(lab.answer(first), success(5));
  pass_turn(lab);
  EXPECT_EQ(lab.answer(third), success(6));
  EXPECT_EQ(lab.side.connections.size(), 2u);
}

TEST(ReverseGatewaySharing, long_replies_to_calls_that_nobody_can_read_take_no_memory_from_others) {
  constexpr std::uint32_t kAtOnce = 4;  // long messages per connection to the server
  ReverseGatewayLab lab({.record_buffers = 2});
  constexpr std::uint32_t kUnknown = 0x20000123;
  const Bytes results = pattern(300'000, 7);
  lab.forward.upstream.answer = answer_null;
  std::vector<TcpPeer*> peers;
  for (int i = 0; i < 2; ++i) {
    peers.push_back(&lab.side.add_peer());
    EXPECT_EQ(lab.call(*peers.back(), null_call(1)), success(1));
  }
  lab.forward.upstream.calls.clear();
  lab.forward.upstream.answer = nullptr;
  for (TcpPeer* peer : peers)
    for (std::uint32_t i = 0; i < kAtOnce; ++i)
      peer->send_record(with_xid(call_of(kUnknown, 1, 5, pattern(300, i)), 100 + i));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 2 * kAtOnce; }));
  EXPECT_EQ(lab.side.count(Counter::waits_memory), 0u);
  for (const auto& call : lab.forward.upstream.calls)
    lab.forward.upstream.send(call.connection, record(success(call.xid(), results)));
  for (TcpPeer* peer : peers)
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const Bytes reply = lab.answer(*peer);
      EXPECT_EQ(Bytes(reply.begin() + 4, reply.end()), [&] {
        const Bytes whole = success(0, results);
        return Bytes(whole.begin() + 4, whole.end());
      }());
    }
  EXPECT_EQ(lab.side.count(Counter::calls_lost), 0u);
}

TEST(ReverseGatewayListener, a_port_that_is_taken_is_a_defect_of_the_configuration) {
  sockaddr_storage address{};
  const socklen_t bytes = tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), 0, address);
  const tcp_clients::Listener first(address, bytes);
  tcp::socket_address(PeerAddress::from_ipv4(127, 0, 0, 1), first.port(), address);
  try {
    const tcp_clients::Listener second(address, bytes);
    ADD_FAILURE() << "two listen at one port";
  } catch (const SetupError& error) {
    EXPECT_NE(std::string(error.what()).find("listen_port in [reverse]"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace sluice::tcp_clients_test
