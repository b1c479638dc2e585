// SPDX-License-Identifier: Apache-2.0
//
// The reverse gateway between its clients and an upstream, with RPC-over-RDMA of both versions in between.
#include "tests/unit/gateway/tcp_clients/reverse_gateway_lab.h"

namespace sluice::tcp_clients_test {
namespace {

using tcp_upstream_test::call_of;
using tcp_upstream_test::joined;
using tcp_upstream_test::nfs3;
using tcp_upstream_test::opaque;
using tcp_upstream_test::pattern;
using tcp_upstream_test::record;
using tcp_upstream_test::success;

constexpr std::uint32_t kRead = 25, kReadLink = 27, kWrite = 38, kGetAttr = 9;

/// Returns the message without its XID, which the gateway on the other side replaces.
Bytes without_xid(const Bytes& message) {
  return Bytes(message.begin() + std::min<std::ptrdiff_t>(4, std::ssize(message)), message.end());
}
Bytes write3(std::uint32_t bytes, std::uint32_t seed) {
  return nfs3(ulb::kNfs3Write,
              joined({opaque(pattern(32, 5)), words({0, 0, bytes, 2}), opaque(pattern(bytes, seed))}));
}
Bytes read3(std::uint32_t bytes) {
  return nfs3(ulb::kNfs3Read, joined({opaque(pattern(32, 5)), words({0, 0, bytes})}));
}
Bytes read3_result(std::uint32_t bytes, std::uint32_t seed) {
  return joined({words({0, 0, bytes, 1}), opaque(pattern(bytes, seed))});
}
Bytes compound(std::uint32_t operations, const Bytes& body) {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, joined({words({0, 1, operations}), body}));
}
Bytes compound_result(std::uint32_t operations, const Bytes& body) {
  return joined({words({0, 0, operations}), body});
}

struct ReverseGateway : testing::TestWithParam<std::uint32_t> {
  /// Version of RPC-over-RDMA for both sides.
  static SideOptions options() { return {.version = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(ReverseGateway, ReverseGateway, testing::Values(1u, 2u),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

/// Makes the client's first call, whose reply grants all credits.
void all_credits(ReverseGatewayLab& lab, TcpPeer& client) {
  lab.forward.upstream.answer = [](const auto& call) { return success(call.xid()); };
  EXPECT_EQ(lab.call(client, with_xid(nfs3(0), 1)), success(1));
  lab.forward.upstream.answer = nullptr;
  lab.forward.upstream.calls.clear();
}

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

// --- Invalid messages

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
