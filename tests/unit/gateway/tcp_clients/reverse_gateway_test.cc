// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway between its clients and an upstream, with RPC-over-RDMA of both versions in between.
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

struct ReverseGateway : testing::TestWithParam<std::uint32_t> {
  /// Version of RPC-over-RDMA for both sides.
  static SideOptions options() { return {.version = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(ReverseGateway, ReverseGateway, testing::Values(1u, 2u),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

struct Message {
  const char* what;
  Bytes call;
  Bytes results;
};

std::vector<Message> messages() {
  std::vector<Message> all;
  all.push_back({"null", nfs3(ulb::kNfs3Null), {}});
  for (const std::uint32_t bytes :
       {1u, 900u, 3800u, 3900u, 4000u, 4096u, 5001u, 12'000u, 16'500u, 70'003u, 1u << 20}) {
    all.push_back({"write", write3(bytes, bytes), words({0, 0, 0, bytes, 2, 7, 8})});
    all.push_back({"read", read3(bytes), read3_result(bytes, bytes)});
  }
  all.push_back({"short read", read3(100'000), read3_result(999, 4)});
  all.push_back({"empty read", read3(100'000), read3_result(0, 4)});
  all.push_back({"failed read", read3(100'000), words({70, 0})});
  all.push_back({"symlink",
                 nfs3(ulb::kNfs3SymLink, joined({opaque(pattern(32, 1)), opaque(pattern(9, 2)),
                                                 words({0, 0, 0, 0, 0, 0}), opaque(pattern(1000, 3))})),
                 words({0, 0, 0, 0, 0})});
  all.push_back({"readlink", nfs3(ulb::kNfs3ReadLink, opaque(pattern(32, 1))),
                 joined({words({0, 0}), opaque(pattern(1000, 9))})});
  // The longest link of Linux; the protocol has no limit.
  all.push_back({"long readlink", nfs3(ulb::kNfs3ReadLink, opaque(pattern(32, 1))),
                 joined({words({0, 1}), pattern(84, 2), opaque(pattern(4095, 9))})});
  all.push_back({"readdir",
                 nfs3(ulb::kNfs3ReadDir, joined({opaque(pattern(32, 1)), words({0, 0, 0, 0, 60'000})})),
                 joined({words({0, 0, 1, 2}), pattern(50'000, 3)})});
  const auto write4 = [](std::uint32_t bytes, std::uint32_t seed) {
    return joined({words({kWrite, 1, 2, 3, 4, 0, 0, 2}), opaque(pattern(bytes, seed))});
  };
  const auto read4 = [](std::uint32_t bytes) { return words({kRead, 1, 2, 3, 4, 0, 0, bytes}); };
  const auto read4_result = [](std::uint32_t bytes, std::uint32_t seed) {
    return joined({words({kRead, 0, 1}), opaque(pattern(bytes, seed))});
  };
  all.push_back({"two writes",
                 compound(3, joined({write4(20'001, 1), words({kGetAttr, 1, 0x18}), write4(7003, 2)})),
                 compound_result(1, words({kWrite, 70}))});
  all.push_back(
      {"two reads and a link",
       compound(4, joined({read4(20'001), words({kReadLink}), words({kGetAttr, 1, 0x18}), read4(6002)})),
       compound_result(3, joined({read4_result(20'001, 1), words({kReadLink, 0}), opaque(pattern(700, 2)),
                                  read4_result(6002, 3)}))});
  all.push_back({"write and read", compound(2, joined({write4(9001, 1), read4(50'000)})),
                 compound_result(2, joined({words({kWrite, 0, 9001, 2, 7, 8}), read4_result(50'000, 3)}))});
  all.push_back({"another program", call_of(0x20000123, 1, 5, pattern(3000, 1)), pattern(900, 2)});
  all.push_back({"another program, long", call_of(0x20000123, 1, 5, pattern(30'000, 1)), pattern(60'000, 2)});
  return all;
}

void exchange_all(ReverseGatewayLab& lab) {
  TcpPeer& client = lab.side.add_peer();
  std::uint32_t xid = 0x70000000;
  for (const Message& message : messages()) {
    SCOPED_TRACE(std::string(message.what) + " of " + std::to_string(message.call.size()) + " and " +
                 std::to_string(message.results.size()));
    lab.forward.upstream.answer = [&](const auto& call) { return success(call.xid(), message.results); };
    const Bytes reply = lab.call(client, with_xid(message.call, ++xid));
    ASSERT_FALSE(lab.forward.upstream.calls.empty());
    EXPECT_EQ(without_xid(lab.forward.upstream.calls.back().message), without_xid(message.call));
    ASSERT_EQ(reply, success(xid, message.results));
    lab.forward.upstream.calls.clear();
  }
}

TEST_P(ReverseGateway, V1_074_V1_103_X_13_calls_and_replies_arrive_as_they_were_sent) {
  ReverseGatewayLab lab(options());
  exchange_all(lab);
  EXPECT_EQ(lab.side.connections.at(0)->version(), GetParam());
  EXPECT_GT(lab.side.count(Counter::reduced_calls), 5u);
  EXPECT_GT(lab.side.count(Counter::placed_replies), 5u);
  EXPECT_EQ(lab.side.count(Counter::failures), 0u);
}

TEST_P(ReverseGateway, four_mebibytes_are_one_write_and_one_read) {
  constexpr std::uint32_t kBytes = 4u << 20;
  ReverseGatewayLab lab({.version = GetParam(), .max_io_bytes = kBytes},
                        {.record_buffers = kRecordBuffers, .max_io_bytes = kBytes});
  TcpPeer& client = lab.side.add_peer();
  const Bytes written = words({0, 0, 0, kBytes, 2, 7, 8});
  lab.forward.upstream.answer = [&](const auto& call) { return success(call.xid(), written); };
  const Bytes write = with_xid(write3(kBytes, 6), 1);
  ASSERT_EQ(lab.call(client, write), success(1, written));
  ASSERT_EQ(lab.forward.upstream.calls.size(), 1u);
  EXPECT_EQ(without_xid(lab.forward.upstream.calls[0].message), without_xid(write));

  const Bytes read = read3_result(kBytes, 7);
  lab.forward.upstream.answer = [&](const auto& call) { return success(call.xid(), read); };
  ASSERT_EQ(lab.call(client, with_xid(read3(kBytes), 2)), success(2, read));
  EXPECT_EQ(lab.forward.upstream.calls.size(), 2u);
  EXPECT_EQ(lab.side.count(Counter::reduced_calls), 1u);
  EXPECT_EQ(lab.side.count(Counter::placed_replies), 1u);
}

TEST(ReverseGatewayUring, is_served_without_what_only_newer_kernels_have) {
  ReverseGatewayLab lab({.uring = UringFeatures()});
  exchange_all(lab);
}

TEST_P(ReverseGateway, many_calls_of_many_clients_find_their_ways_back) {
  ReverseGatewayLab lab(options());
  std::vector<TcpPeer*> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(&lab.side.add_peer());
  lab.forward.upstream.answer = [](const auto& call) {
    // The test encodes the seed in the offset that follows the handle.
    const std::uint32_t seed = word_at(call.message, (40 + 36) / 4);
    return success(call.xid(), read3_result(seed % 30'000, seed));
  };
  constexpr std::uint32_t kCalls = 40;  // five times as many as a client may have outstanding
  for (std::uint32_t i = 0; i < kCalls; ++i)
    for (std::uint32_t c = 0; c < clients.size(); ++c) {
      const std::uint32_t seed = (i * 4 + c) * 977;
      clients[c]->send_record(with_xid(
          nfs3(ulb::kNfs3Read, joined({opaque(pattern(32, 5)), words({seed, 0, 30'000})})), 5000 + i));
    }
  for (std::uint32_t c = 0; c < clients.size(); ++c) {
    std::map<std::uint32_t, Bytes> answers;
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      const Bytes reply = lab.answer(*clients[c]);
      ASSERT_GE(reply.size(), 24u);
      answers[word_at(reply, 0)] = reply;
    }
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      const std::uint32_t seed = (i * 4 + c) * 977;
      ASSERT_EQ(answers[5000 + i].size(), success(5000 + i, read3_result(seed % 30'000, seed)).size());
      ASSERT_EQ(answers[5000 + i], success(5000 + i, read3_result(seed % 30'000, seed))) << i;
    }
  }
  EXPECT_GT(lab.side.count(Counter::waits_call), 0u);
}

TEST_P(ReverseGateway, as_many_calls_with_attributes_as_others_are_outstanding) {
  for (const Bytes& call : {compound(0, {}), compound(1, words({kGetAttr, 1, 0x18}))}) {
    ReverseGatewayLab lab(options());
    TcpPeer& client = lab.side.add_peer();
    all_credits(lab, client);
    const std::uint32_t calls = SideOptions{}.calls;
    for (std::uint32_t i = 0; i < calls; ++i) client.send_record(with_xid(call, 100 + i));
    lab.turns(2000);
    EXPECT_EQ(lab.forward.upstream.calls.size(), calls - 1) << "one credit is kept for a probe";
  }
}

TEST_P(ReverseGateway, V1_200_the_servers_calls_reach_their_client_and_its_answers_the_server) {
  ReverseGatewayLab lab(options());
  TcpPeer& client = lab.side.add_peer();
  TcpPeer& other = lab.side.add_peer();
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  lab.call(other, with_xid(compound(0, {}), 1));
  lab.call(client, with_xid(compound(0, {}), 1));
  const std::size_t connection = lab.forward.upstream.calls.back().connection;
  lab.forward.upstream.calls.clear();
  const Bytes asked = conformance::rpc_call(77, 0x40000000, 1, 1);
  lab.forward.upstream.send(connection, record(joined({asked, pattern(600, 1)})));
  const Bytes seen = lab.answer(client);
  EXPECT_EQ(without_xid(seen), without_xid(joined({asked, pattern(600, 1)})));
  client.send_record(success(word_at(seen, 0), pattern(300, 2)));
  ASSERT_TRUE(lab.until([&] { return !lab.forward.upstream.calls.empty(); }));
  EXPECT_EQ(lab.forward.upstream.calls[0].message, success(77, pattern(300, 2)));
  EXPECT_EQ(other.received(), 0u);
  EXPECT_EQ(lab.side.count(Counter::callbacks), 1u);
}

TEST_P(ReverseGateway, the_servers_calls_find_a_client_whose_connection_was_anothers_a_moment_ago) {
  ReverseGatewayLab lab(options());
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  TcpPeer& first = lab.side.add_peer();
  lab.call(first, with_xid(compound(0, {}), 1));
  rpcrdma::Connection* const connection = lab.side.connections.at(0);
  connection->close(rpcrdma::CloseReason::PeerClosed);
  ASSERT_TRUE(lab.until([&] { return connection->state() == rpcrdma::Connection::State::Closed; }));
  TcpPeer& second = lab.side.add_peer();
  lab.call(second, with_xid(compound(0, {}), 1));
  ASSERT_EQ(lab.side.connections.at(1), connection);
  const std::size_t upstream = lab.forward.upstream.calls.back().connection;
  lab.turns();
  lab.forward.upstream.send(upstream, record(conformance::rpc_call(77, 0x40000000, 1, 1)));
  EXPECT_EQ(without_xid(lab.answer(second)), without_xid(conformance::rpc_call(77, 0x40000000, 1, 1)));
}

TEST_P(ReverseGateway, the_servers_calls_wait_for_their_clients_answer_as_long_as_it_takes) {
  ReverseGatewayLab lab(options());
  TcpPeer& client = lab.side.add_peer();
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  lab.call(client, with_xid(compound(0, {}), 1));
  const std::size_t connection = lab.forward.upstream.calls.back().connection;
  lab.forward.upstream.calls.clear();
  lab.forward.upstream.send(connection, record(conformance::rpc_call(78, 0x40000000, 1, 1)));
  const Bytes seen = lab.answer(client);
  lab.forward.pass(25'000'000'000);  // the gateway at the other end waits half a minute
  lab.turns();
  EXPECT_TRUE(lab.forward.upstream.calls.empty());
  client.send_record(success(word_at(seen, 0), pattern(300, 2)));
  ASSERT_TRUE(lab.until([&] { return !lab.forward.upstream.calls.empty(); }));
  EXPECT_EQ(lab.forward.upstream.calls[0].message, success(78, pattern(300, 2)));
  EXPECT_EQ(lab.side.count(Counter::callbacks_refused), 0u);
}

TEST_P(ReverseGateway, the_servers_calls_wait_for_room_in_the_queue_to_their_client) {
  ReverseGatewayLab lab(options());
  TcpPeer& client = lab.side.add_peer();
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  lab.call(client, with_xid(compound(0, {}), 1));
  const std::size_t connection = lab.forward.upstream.calls.back().connection;
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), read3_result(3900, 6)); };
  client.reads = false;
  std::uint32_t sent = 0;
  const auto replies = [&] { return lab.side.count(Counter::replies); };
  for (std::uint64_t before = 0; before != replies();) {
    before = replies();
    for (int i = 0; i < 500; ++i) client.send_record(with_xid(read3(3900), 100 + sent++));
    lab.turns(2000);
  }
  EXPECT_LT(replies(), sent);
  // Longer than the replies that exceed the buffer.
  lab.forward.upstream.send(connection,
                            record(joined({conformance::rpc_call(78, 0x40000000, 1, 1), pattern(4000, 1)})));
  lab.turns();
  client.reads = true;
  Bytes received;
  do ASSERT_FALSE((received = lab.answer(client)).empty());
  while (word_at(received, 1) != 0);
  EXPECT_EQ(lab.side.count(Counter::callbacks), 1u);
  EXPECT_EQ(lab.side.count(Counter::callbacks_refused), 0u);
}

TEST_P(ReverseGateway, calls_go_on_over_a_new_connection_when_theirs_to_the_server_is_lost) {
  ReverseGatewayLab lab(options());
  TcpPeer& client = lab.side.add_peer();
  all_credits(lab, client);
  for (std::uint32_t i = 0; i < 3; ++i) client.send_record(with_xid(read3(30'000), 100 + i));
  ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 3; }));
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid(), read3_result(30'000, 6)); };
  lab.side.connections.at(0)->close(rpcrdma::CloseReason::TransportError);
  for (std::uint32_t i = 0; i < 3; ++i) {
    const Bytes reply = lab.answer(client);
    EXPECT_EQ(without_xid(reply), without_xid(success(0, read3_result(30'000, 6))));
  }
  EXPECT_EQ(lab.side.connections.size(), 2u);
  EXPECT_EQ(lab.side.count(Counter::disconnects), 1u);
}

TEST_P(ReverseGateway, an_idle_connection_that_the_server_ends_comes_back_with_the_next_call) {
  ReverseGatewayLab lab(options());
  TcpPeer& client = lab.side.add_peer();
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  lab.call(client, with_xid(nfs3(0), 1));
  lab.side.connections.at(0)->close(rpcrdma::CloseReason::PeerClosed);
  lab.forward.pass(10'000'000'000);
  lab.turns();
  EXPECT_EQ(lab.side.connections.size(), 1u);
  EXPECT_EQ(lab.call(client, with_xid(nfs3(0), 2)), success(2));
  EXPECT_EQ(lab.side.connections.size(), 2u);
}

TEST_P(ReverseGateway, a_client_that_goes_leaves_nothing_behind) {
  ReverseGatewayLab lab(options());
  for (int round = 0; round < 3; ++round) {
    TcpPeer& client = lab.side.add_peer();
    all_credits(lab, client);
    for (std::uint32_t i = 0; i < 8; ++i)
      client.send_record(with_xid(i % 2 == 0 ? read3(60'000) : write3(60'000, i), 100 + i));
    // Version 1 reserves a credit for probing a silent server.
    ASSERT_TRUE(lab.until([&] { return lab.forward.upstream.calls.size() == 7; }));
    client.shut();
    lab.turns();
    lab.forward.pass(tcp_clients::kUnsentNs + 100'000'000);  // one call waits
    ASSERT_TRUE(lab.until([&] { return lab.side.area->clients.load() == 0; }));
    ASSERT_TRUE(lab.until([&] { return lab.side.area->outstanding.load() == 0; }));
    ASSERT_TRUE(lab.until(
        [&] { return lab.side.connections.back()->state() == rpcrdma::Connection::State::Closed; }));
    lab.forward.upstream.calls.clear();
  }
  // All memory must be free again, because each of these calls uses all the memory that one client may have.
  lab.forward.upstream.answer = [](const auto& call) {
    return success(call.xid(), read3_result(1 << 20, 6));
  };
  TcpPeer& client = lab.side.add_peer();
  for (std::uint32_t i = 0; i < 8; ++i) client.send_record(with_xid(read3(1 << 20), 100 + i));
  for (std::uint32_t i = 0; i < 8; ++i) EXPECT_GT(lab.answer(client).size(), 1u << 20);
  EXPECT_EQ(lab.side.count(Counter::clients_ended), 3u);
}

}  // namespace
}  // namespace sluice::tcp_clients_test
