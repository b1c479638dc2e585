// SPDX-License-Identifier: Apache-2.0
//
// Calls through both gateways to a well-behaved server and from a well-behaved client: messages that the
// server and the client receive.
#include "tests/unit/gateway/gateway_lab.h"

#include <algorithm>

#include "dataplane/segment/calls.h"

namespace sluice::gateway_test {
namespace {

using conformance::append;
using conformance::Bytes;
using conformance::word_at;
using conformance::words;
using rpcrdma::CallStatus;
using tcp_upstream_test::call_of;
using tcp_upstream_test::ForwardLab;
using tcp_upstream_test::joined;
using tcp_upstream_test::kResultsAt;
using tcp_upstream_test::LongWrite;
using tcp_upstream_test::nfs3;
using tcp_upstream_test::opaque;
using tcp_upstream_test::pattern;
using tcp_upstream_test::record;
using tcp_upstream_test::success;

constexpr std::uint32_t kPlainProgram = 0x20000123;

Bytes plain(const Bytes& arguments = {}) {
  return call_of(kPlainProgram, 1, 7, arguments);
}

Bytes nfs3_read(std::size_t bytes) {
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, static_cast<std::uint32_t>(bytes)}));
  return nfs3(ulb::kNfs3Read, arguments);
}

/// Returns READ3resok without attributes.
Bytes read_results(const Bytes& data) {
  Bytes results = words({0, 0, static_cast<std::uint32_t>(data.size()), 1});
  append(results, opaque(data));
  return results;
}

Bytes behind_xid(const Bytes& message) {
  return {message.begin() + 4, message.end()};
}

using Gateways = testing::TestWithParam<Path>;
INSTANTIATE_TEST_SUITE_P(Paths, Gateways,
                         testing::Values(Path{Server::OverTcp, 1}, Path{Server::OverTcp, 2},
                                         Path{Server::OverRdma, 1, 1}, Path{Server::OverRdma, 1, 2},
                                         Path{Server::OverRdma, 2, 1}, Path{Server::OverRdma, 2, 2}),
                         [](const auto& path) { return path.param.name(); });

TEST_P(Gateways, a_call_reaches_the_server_as_it_came) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), words({11, 12, 13})); };
  const Bytes call = plain(words({1, 2, 3}));
  const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 64});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  ASSERT_EQ(lab.upstream().calls.size(), 1u);
  EXPECT_EQ(behind_xid(lab.upstream().calls[0].message), behind_xid(call));
  EXPECT_EQ(behind_xid(outcome.message), behind_xid(success(0, words({11, 12, 13}))));
  EXPECT_EQ(lab.count(Counter::calls), 1u);
  EXPECT_EQ(lab.count(Counter::replies), 1u);
}

/// The gateway is the end of the client's transport. A server that offers TLS would expect a handshake on a
/// connection that clients share (RFC 9289, section 4.1).
TEST_P(Gateways, a_client_that_asks_for_tls_is_answered_here) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  for (const std::uint32_t procedure : {0u, 7u}) {
    const Bytes call = words({0, 0, 2, kPlainProgram, 1, procedure, 7, 0, 0, 0});
    const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 64});
    EXPECT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(behind_xid(outcome.message), words({1, 1, 1, 1}));
  }
  EXPECT_TRUE(lab.upstream().calls.empty());
}

TEST_P(Gateways, a_client_compares_what_it_was_shown) {
  constexpr std::uint32_t kGetAttr = 9, kVerify = 37, kSupported = 1, kLocations = 1u << 24;
  GatewayLab lab(GetParam(), {});
  LabClient& client = lab.add_client();
  const auto asked = [&](const Bytes& arguments, const Bytes& results) {
    Bytes message;
    lab.upstream().answer = [&](const auto& call) {
      message = behind_xid(call.message);
      return success(call.xid(), results);
    };
    const Bytes call = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments);
    EXPECT_EQ(lab.call(client, {.payload = call, .max_reply_bytes = 200}).status, CallStatus::Ok);
    return message;
  };
  const auto verify = [](std::uint32_t attributes) {
    return words({0, 0, 1, kVerify, 1, kSupported, 8, 1, attributes});
  };
  asked(words({0, 0, 1, kGetAttr, 1, kSupported}),
        words({0, 0, 1, kGetAttr, 0, 1, kSupported, 8, 1, kLocations | 7}));
  const Bytes restored = behind_xid(call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, verify(kLocations | 7)));
  EXPECT_EQ(asked(verify(7), words({0, 0, 1, kVerify, 0})), restored);
}

constexpr std::uint32_t kSequence = 53, kPutRootFh = 24, kWrite4 = 38, kUnknown4 = 4711;

/// Returns a COMPOUND of NFS 4.2 that begins with SEQUENCE.
Bytes in_session(std::uint32_t operations, const Bytes& body) {
  return call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound,
                 joined({words({0, 2, operations + 1, kSequence, 1, 2, 3, 4, 5, 0, 0, 0}), body}));
}

/// The server executes the operations before the unknown one, so the session stays usable.
TEST_P(Gateways, an_unknown_operation_of_nfs_4_is_refused_by_the_server_as_illegal) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  for (std::uint32_t at = 0; at < 3; ++at) {
    Bytes before;
    for (std::uint32_t i = 0; i < at; ++i) append(before, words({kPutRootFh}));
    const Bytes body = joined({before, words({kUnknown4, 1, 2, 3, kPutRootFh})});
    const Bytes ended = in_session(at + 1, joined({before, words({ulb::kNfs4Illegal})}));
    const Outcome outcome = lab.call(client, {.payload = in_session(at + 2, body), .max_reply_bytes = 200});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(behind_xid(lab.upstream().calls.back().message), behind_xid(ended));
    EXPECT_EQ(lab.count(Counter::unknown_operations), at + 1);
    EXPECT_EQ(lab.area().unknown_operation.get(), kUnknown4);
  }
  const Bytes known = in_session(1, words({kPutRootFh}));
  ASSERT_EQ(lab.call(client, {.payload = known, .max_reply_bytes = 200}).status, CallStatus::Ok);
  EXPECT_EQ(behind_xid(lab.upstream().calls.back().message), behind_xid(known));
  EXPECT_EQ(lab.count(Counter::unknown_operations), 3u);
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

/// An ERR_CHUNK would leave the client without the reply to its SEQUENCE.
TEST_P(Gateways, the_data_of_a_write_behind_an_unknown_operation_is_dropped) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  for (const std::uint32_t bytes : {9000u, 200'000u}) {
    client.region_used = 0;
    const auto data = client.memory(bytes);
    const rdma::Sge piece = client.piece(data);
    const Bytes call = in_session(2, words({kUnknown4, kWrite4, 1, 2, 3, 4, 0, 0, 2, bytes}));
    const rpcrdma::ReadItem item{.position = rpcrdma::Position{static_cast<std::uint32_t>(call.size())},
                                 .pieces = {&piece, 1}};
    const Outcome outcome = lab.call(client, {.payload = call, .reads = {&item, 1}, .max_reply_bytes = 200});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(behind_xid(lab.upstream().calls.back().message),
              behind_xid(in_session(1, words({ulb::kNfs4Illegal}))));
  }
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

TEST_P(Gateways, every_kind_of_rpc_reply_comes_back_as_it_is) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  std::vector<Bytes> replies = {
      words({1, 0, 0, 0, 1}),        // PROG_UNAVAIL
      words({1, 0, 0, 0, 2, 2, 4}),  // PROG_MISMATCH with its range
      words({1, 0, 0, 0, 4}),        // GARBAGE_ARGS
      words({1, 1, 1, 13}),          // MSG_DENIED, AUTH_ERROR
      words({1, 1, 0, 2, 2}),        // MSG_DENIED, RPC_MISMATCH
  };
  Bytes with_verifier = words({1, 0, 6});
  append(with_verifier, opaque(pattern(30, 4)));
  append(with_verifier, words({0, 42}));
  replies.push_back(with_verifier);
  for (const Bytes& reply : replies) {
    lab.upstream().answer = [&](const auto& call) {
      Bytes whole = words({call.xid()});
      append(whole, reply);
      return whole;
    };
    const Outcome outcome = lab.call(client, {.payload = plain(), .max_reply_bytes = 600});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(behind_xid(outcome.message), reply);
  }
}

TEST_P(Gateways, read_data_is_placed_directly_short_and_long) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  for (const std::size_t bytes : {0u, 1u, 1023u, 4096u, 12'001u, 16'384u, 100'000u, 1u << 20}) {
    const Bytes data = pattern(bytes, static_cast<std::uint32_t>(bytes));
    lab.upstream().answer = [&](const auto& call) { return success(call.xid(), read_results(data)); };
    client.region_used = 0;
    const auto into = client.memory(std::max<std::size_t>(bytes, 4));
    const rdma::Sge piece = client.piece(into);
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    const Outcome outcome =
        lab.call(client, {.payload = nfs3_read(bytes), .writes = {&item, 1}, .max_reply_bytes = 200},
                 {static_cast<std::uint32_t>(bytes)});
    ASSERT_EQ(outcome.status, CallStatus::Ok) << bytes;
    if (bytes > 0) {
      EXPECT_EQ(outcome.items[0].where, rpcrdma::ItemResult::Where::Placed) << bytes;
    }
    EXPECT_TRUE(conformance::has_pattern(into.first(bytes), static_cast<std::uint32_t>(bytes))) << bytes;
    EXPECT_EQ(outcome.message.size(), kResultsAt + 20) << bytes;
  }
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

TEST_P(Gateways, a_read_that_returns_less_than_was_asked_for) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  for (const std::size_t bytes : {5u, 70'001u}) {
    lab.upstream().answer = [&](const auto& call) {
      return success(call.xid(), read_results(pattern(bytes, 3)));
    };
    client.region_used = 0;
    const auto into = client.memory(1u << 20);
    const rdma::Sge piece = client.piece(into);
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    const Outcome outcome =
        lab.call(client, {.payload = nfs3_read(1u << 20), .writes = {&item, 1}, .max_reply_bytes = 200},
                 {static_cast<std::uint32_t>(bytes)});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(outcome.items[0].where, rpcrdma::ItemResult::Where::Placed);
    EXPECT_TRUE(conformance::has_pattern(into.first(bytes), 3));
  }
}

TEST_P(Gateways, read_data_without_a_write_chunk_comes_in_the_message) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  for (const std::size_t bytes : {7u, 3000u, 200'001u}) {
    const Bytes data = pattern(bytes, 9);
    lab.upstream().answer = [&](const auto& call) { return success(call.xid(), read_results(data)); };
    const Outcome outcome = lab.call(client, {.payload = nfs3_read(bytes), .max_reply_bytes = 1u << 20});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), read_results(data))
        << bytes;
  }
}

TEST_P(Gateways, more_than_a_mebibyte_without_a_write_chunk_comes_in_the_message) {
  constexpr std::uint32_t kBytes = 1'500'000;
  GatewayLab lab(GetParam(), {.pnfs = false, .referrals = false}, 2u << 20);
  LabClient& client = lab.add_client();
  for (const Bytes& call : {nfs3_read(kBytes), plain()}) {
    const Bytes results = read_results(pattern(kBytes, 9));
    lab.upstream().answer = [&](const auto& seen) { return success(seen.xid(), results); };
    const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 2u << 20});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), results);
  }
}

TEST_P(Gateways, a_long_reply_without_eligible_items_comes_whole) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  for (const std::size_t bytes : {6'000u, 15'000u, 700'000u}) {
    const Bytes list = pattern(bytes, 3);
    lab.upstream().answer = [&](const auto& call) { return success(call.xid(), list); };
    const Outcome outcome = lab.call(client, {.payload = plain(), .max_reply_bytes = 1u << 20});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), list);
  }
}

TEST_P(Gateways, many_calls_of_many_clients_each_get_their_own_reply) {
  GatewayLab lab(GetParam());
  for (int i = 0; i < 3; ++i) lab.add_client();
  lab.upstream().answer = [](const auto& call) {
    return success(call.xid(), words({word_at(call.message, 10), word_at(call.message, 11)}));
  };
  constexpr std::uint32_t kCalls = 200;
  std::vector<std::uint32_t> next(3);
  const auto all_back = [&] {
    for (std::uint32_t c = 0; c < 3; ++c) {
      LabClient& client = lab.client(c);
      while (next[c] < kCalls && client.requester.free_requests() > 0)
        client.submit({.payload = plain(words({c, next[c]++})), .max_reply_bytes = 64});
    }
    for (std::uint32_t c = 0; c < 3; ++c)
      if (lab.client(c).finished.size() < kCalls || !lab.client(c).finished.back()) return false;
    return true;
  };
  ASSERT_TRUE(lab.until(all_back));
  for (std::uint32_t c = 0; c < 3; ++c)
    for (std::uint32_t i = 0; i < kCalls; ++i) {
      const Outcome& outcome = *lab.client(c).finished[i];
      ASSERT_EQ(outcome.status, CallStatus::Ok);
      ASSERT_EQ(word_at(outcome.message, 6), c);
      ASSERT_EQ(word_at(outcome.message, 7), i);
    }
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

TEST_P(Gateways, V1_200_calls_of_the_server_go_to_the_client_whose_connection_they_come_on) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  LabClient& other = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  const Bytes compound = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 1, 0}));
  lab.call(other, {.payload = compound, .max_reply_bytes = 64});
  lab.call(client, {.payload = compound, .max_reply_bytes = 64});
  const std::size_t connection = lab.upstream().calls.back().connection;
  lab.upstream().calls.clear();
  Bytes call = conformance::rpc_call(0xabcd, conformance::kTestProgram, 1, conformance::TestService::kName);
  append(call, opaque(pattern(100, 1)));
  lab.upstream().send(connection, record(call));
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  EXPECT_EQ(lab.upstream().calls[0].message, success(0xabcd, words({100})));
  EXPECT_EQ(client.reverse.executed.size(), 1u);
  EXPECT_TRUE(other.reverse.executed.empty());
  EXPECT_EQ(lab.count(Counter::callbacks), 1u);
}

/// Returns a COMPOUND of PUTFH, WRITE of `bytes` and GETATTR in XDR, with or without the data of the WRITE.
Bytes compound_write(std::uint32_t bytes, bool with_data) {
  Bytes call = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, words({0, 0, 3, 22}));
  append(call, opaque(pattern(20, 5)));
  append(call, words({38, 1, 2, 3, 4, 0, 0, 2, bytes}));
  if (with_data) append(call, pattern(bytes, 6));
  call.resize(xdr::padded(call.size()));
  append(call, words({9, 1, 0x10}));
  return call;
}

TEST_P(Gateways, V1_077_write_data_in_the_middle_of_a_compound_stays_there) {
  GatewayLab lab(GetParam());
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), words({0, 0, 0})); };
  constexpr std::uint32_t kBytes = 50'001;
  const auto data = client.memory(kBytes);
  conformance::fill_pattern(data, 6);
  const rdma::Sge piece = client.piece(data);
  const Bytes whole = compound_write(kBytes, true);
  const auto at = static_cast<std::uint32_t>(whole.size() - xdr::padded(kBytes) - 12);
  const rpcrdma::ReadItem item{.position = rpcrdma::Position{at}, .pieces = {&piece, 1}};
  const Outcome outcome = lab.call(
      client, {.payload = compound_write(kBytes, false), .reads = {&item, 1}, .max_reply_bytes = 200});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  EXPECT_EQ(behind_xid(lab.upstream().calls.back().message), behind_xid(whole));
}

TEST_P(Gateways, four_mebibytes_are_one_write_and_one_read) {
  constexpr std::uint32_t kBytes = 4u << 20;
  GatewayLab lab(GetParam(), {.pnfs = false, .referrals = false}, kBytes);
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid(), words({0})); };
  const LongWrite write(client, kBytes);
  conformance::fill_pattern(write.data, 6);
  ASSERT_EQ(lab.call(client, write.request()).status, CallStatus::Ok);
  ASSERT_EQ(lab.upstream().calls.size(), 1u);
  const Bytes& seen = lab.upstream().calls.back().message;
  ASSERT_EQ(seen.size(), write.call.size() + kBytes);
  EXPECT_TRUE(conformance::has_pattern(std::span(seen).subspan(write.call.size()), 6));

  const Bytes data = pattern(kBytes, 7);
  lab.upstream().answer = [&](const auto& call) { return success(call.xid(), read_results(data)); };
  const auto into = client.memory(kBytes);
  const rdma::Sge piece = client.piece(into);
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  const Outcome outcome = lab.call(
      client, {.payload = nfs3_read(kBytes), .writes = {&item, 1}, .max_reply_bytes = 200}, {kBytes});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  ASSERT_EQ(outcome.items.size(), 1u);
  EXPECT_EQ(outcome.items[0].where, rpcrdma::ItemResult::Where::Placed);
  EXPECT_TRUE(conformance::has_pattern(into, 7));
  EXPECT_EQ(lab.upstream().calls.size(), 2u);
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

/// Returns the READ size that a client sees if the server announces `server_bytes` in FSINFO and the gateway
/// carries `max_io_bytes`.
std::uint32_t announced_read_bytes(const Path& path, std::uint32_t max_io_bytes, std::uint32_t server_bytes) {
  GatewayLab lab(path, {.pnfs = false, .referrals = false}, max_io_bytes);
  LabClient& client = lab.add_client();
  lab.upstream().answer = [&](const auto& call) {  // FSINFO3resok without attributes
    return success(call.xid(), words({0, 0, server_bytes, server_bytes, 1, server_bytes, server_bytes, 1,
                                      server_bytes, 0, 0, 0, 1, 0}));
  };
  const Outcome outcome =
      lab.call(client, {.payload = nfs3(ulb::kNfs3FsInfo, opaque(pattern(32, 5))), .max_reply_bytes = 400});
  EXPECT_EQ(outcome.status, CallStatus::Ok);
  return word_at(outcome.message, 8);
}

TEST_P(Gateways, what_the_path_does_not_carry_is_not_announced) {
  for (const std::uint32_t most : {1u << 20, 4u << 20})
    EXPECT_EQ(announced_read_bytes(GetParam(), most, 64u << 20), most);
}

TEST_P(Gateways, a_server_that_offers_less_than_the_path_carries_is_obeyed) {
  for (const std::uint32_t offered : {64u << 10, 1u << 20, 3u << 20})
    EXPECT_EQ(announced_read_bytes(GetParam(), 4u << 20, offered), offered);
}

TEST_P(Gateways, a_session_and_its_file_systems_have_the_sizes_that_the_path_carries) {
  constexpr std::uint32_t kHuge = 64u << 20, kCreateSession = 43, kGetAttr = 9, kBoth = 1u << 30 | 1u << 31;
  const auto channel = [](std::uint32_t bytes) { return words({0, bytes, bytes, 4096, 8, 64, 0}); };
  const auto results = [&](std::uint32_t data_bytes, std::uint32_t message_bytes) {
    Bytes all = words({0, 0, 2, kCreateSession, 0, 1, 2, 3, 4, 1, 0});
    append(all, channel(message_bytes));
    append(all, channel(message_bytes));
    append(all, words({kGetAttr, 0, 1, kBoth, 16, 0, data_bytes, 0, data_bytes}));
    return all;
  };
  Bytes arguments = words({0, 1, 2, kCreateSession, 7, 8, 1, 0});
  append(arguments, channel(kHuge));
  append(arguments, channel(kHuge));
  append(arguments, words({0x40000000, 1, 0, kGetAttr, 1, kBoth}));
  for (const std::uint32_t most : {1u << 20, 4u << 20}) {
    GatewayLab lab(GetParam(), {.pnfs = false, .referrals = false}, most);
    LabClient& client = lab.add_client();
    lab.upstream().answer = [&](const auto& call) { return success(call.xid(), results(kHuge, kHuge)); };
    const Bytes call = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments);
    const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 2000});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()),
              results(most, tcp::record_bytes(most)));
  }
}

TEST_P(Gateways, a_call_that_the_server_answers_late_is_noted_with_the_servers_part) {
  constexpr std::uint64_t kSecondNs = 1'000'000'000;
  const auto table = std::make_unique<segment::CallTable>();
  const auto slow = std::make_unique<segment::SlowCallRing>();
  GatewayLab lab(GetParam());
  lab.engine().measure(*table, &ForwardLab::clock);
  lab.engine().set_slow_calls(*slow, &ForwardLab::clock);
  lab.engine().set_slow_call_ns(kSecondNs);
  LabClient& client = lab.add_client();
  const std::size_t ticket = client.submit({.payload = plain(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  lab.pass(3 * kSecondNs);
  EXPECT_EQ(slow->written.load(), 0u) << "it is outstanding";
  lab.upstream().send(0, record(success(lab.upstream().calls[0].xid())));
  ASSERT_TRUE(lab.until([&] { return client.finished[ticket].has_value() && slow->written.load() == 1; }));
  const segment::SlowCall noted = *slow->records[0].read();
  EXPECT_EQ(noted.call.program, kPlainProgram);
  EXPECT_EQ(noted.call.procedure, 7u);
  EXPECT_GE(noted.upstream_ns, 3 * kSecondNs);
  EXPECT_LE(noted.upstream_ns, noted.call.total_ns);
  EXPECT_GE(noted.call.state_ns[static_cast<std::size_t>(rpcrdma::CallSlot::State::Executing)],
            3 * kSecondNs);
  // The next call in the same slot is fast, and contains no time of the first one.
  lab.upstream().answer = [](const auto& next) { return success(next.xid()); };
  EXPECT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  lab.engine().set_slow_call_ns(1);
  EXPECT_EQ(lab.call(client, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  ASSERT_TRUE(lab.until([&] { return slow->written.load() == 2; }));
  EXPECT_LT(slow->records[1].read()->upstream_ns, 3 * kSecondNs);
}

TEST_P(Gateways, a_client_that_disconnects_leaves_nothing_and_holds_nobody_up) {
  GatewayLab lab(GetParam());
  LabClient& leaving = lab.add_client();
  LabClient& staying = lab.add_client();
  leaving.submit({.payload = plain(), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 1; }));
  const auto call = lab.upstream().calls[0];
  leaving.disconnect();
  lab.upstream().answer = [](const auto& next) { return success(next.xid(), words({8})); };
  EXPECT_EQ(lab.call(staying, {.payload = plain(), .max_reply_bytes = 64}).status, CallStatus::Ok);
  lab.upstream().send(call.connection, record(success(call.xid(), words({9}))));
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
  const Outcome outcome = lab.call(staying, {.payload = plain(), .max_reply_bytes = 64});
  EXPECT_EQ(word_at(outcome.message, 6), 8u);
}

}  // namespace
}  // namespace sluice::gateway_test
