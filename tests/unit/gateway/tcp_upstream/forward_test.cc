// SPDX-License-Identifier: Apache-2.0
//
// Calls through the gateway to a well-behaved upstream and from a well-behaved client: messages that the
// upstream and the client receive.
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

using Counter = segment::UpstreamCounter;

Bytes nfs3_handle() {
  return opaque(pattern(32, 5));
}

Bytes nfs3_read(std::size_t bytes) {
  Bytes arguments = nfs3_handle();
  append(arguments, words({0, 0, static_cast<std::uint32_t>(bytes)}));
  return nfs3(ulb::kNfs3Read, arguments);
}

/// Returns READ3resok without attributes.
Bytes read_results(const Bytes& data) {
  Bytes results = words({0, 0, static_cast<std::uint32_t>(data.size()), 1});
  append(results, opaque(data));
  return results;
}

struct Versions : testing::TestWithParam<std::uint32_t> {
  static ForwardOptions options() { return {.version = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Forward, Versions, testing::Values(1u, 2u),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

TEST_P(Versions, upstreams_of_one_program_are_told_apart_by_their_ports) {
  constexpr std::uint16_t kOwnPort = 20050;
  ForwardOptions chosen = options();
  chosen.hung_routes = {{0x20000123, 1}};
  chosen.hung_port = kOwnPort;
  ForwardLab lab(chosen);
  LabClient& client = lab.add_client();
  LabClient& other = lab.add_client(kOwnPort);
  const auto answers = [](std::uint32_t word) {
    return [word](const auto& call) { return success(call.xid(), words({word})); };
  };
  lab.upstream.answer = answers(1);
  lab.hung->answer = answers(2);
  for (const auto& [asker, word] : {std::pair(&client, 1u), std::pair(&other, 2u), std::pair(&client, 1u)}) {
    const Outcome outcome = lab.call(*asker, {.payload = unknown_call(words({7})), .max_reply_bytes = 64});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    ASSERT_EQ(outcome.message.size(), kResultsAt + 4);
    EXPECT_EQ(xdr::load_u32(&outcome.message[kResultsAt]), word);
  }
  EXPECT_EQ(lab.upstream.calls.size(), 2u);
  EXPECT_EQ(lab.hung->calls.size(), 1u);
  const Outcome unknown = lab.call(other, {.payload = nfs3_read(1), .max_reply_bytes = 64});
  constexpr std::size_t kAcceptStatAt = kResultsAt - 4;
  ASSERT_GE(unknown.message.size(), kResultsAt);
  EXPECT_EQ(xdr::load_u32(&unknown.message[kAcceptStatAt]), 1u) << "PROG_UNAVAIL: the first one has it";
}

TEST_P(Versions, one_at_a_port_of_its_own_comes_later) {
  constexpr std::uint16_t kOwnPort = 20050;
  constexpr std::size_t kAcceptStatAt = kResultsAt - 4;
  ForwardOptions chosen = options();
  chosen.hung_routes = {{0x20000123, 1}};
  chosen.hung_port = kOwnPort;
  chosen.hung_is_spare = true;
  ForwardLab lab(chosen);
  LabClient& client = lab.add_client();
  LabClient& early = lab.add_client(kOwnPort);
  lab.upstream.answer = [](const auto& call) { return success(call.xid(), words({1})); };
  lab.hung->answer = [](const auto& call) { return success(call.xid(), words({2})); };
  const auto word = [&](LabClient& asker, std::size_t at) {
    const Outcome outcome = lab.call(asker, {.payload = unknown_call(words({7})), .max_reply_bytes = 64});
    return outcome.message.size() >= at + 4 ? xdr::load_u32(&outcome.message[at]) : ~0u;
  };
  EXPECT_EQ(word(early, kAcceptStatAt), 1u) << "PROG_UNAVAIL: nobody is there yet";
  EXPECT_EQ(word(client, kResultsAt), 1u);
  lab.bring(0, kOwnPort);
  EXPECT_EQ(word(lab.add_client(kOwnPort), kResultsAt), 2u);
  EXPECT_EQ(word(early, kResultsAt), 2u);
  EXPECT_EQ(word(client, kResultsAt), 1u) << "the others are where they were";
  EXPECT_EQ(lab.hung->calls.size(), 2u);
}

TEST_P(Versions, a_reply_of_many_fragments_is_one_reply) {
  constexpr std::size_t kFragment = 512;
  ForwardLab lab(options());
  LabClient& client = lab.add_client();
  const Bytes data = pattern(1 << 20, 3);
  std::size_t index = client.submit({.payload = nfs3_read(data.size()), .max_reply_bytes = 1100 << 10});
  ASSERT_TRUE(lab.until([&] { return !lab.upstream.calls.empty(); }));
  const auto& seen = lab.upstream.calls[0];
  const Bytes reply = success(seen.xid(), read_results(data));
  Bytes wire;
  for (std::size_t at = 0; at < reply.size(); at += kFragment) {
    const auto piece = std::span(reply).subspan(at, std::min(kFragment, reply.size() - at));
    append(wire, fragment(piece, at + piece.size() == reply.size()));
  }
  lab.upstream.send(seen.connection, wire);
  ASSERT_TRUE(lab.until([&] { return client.finished[index].has_value(); }));
  EXPECT_EQ(client.finished[index]->status, CallStatus::Ok);
  EXPECT_EQ(Bytes(client.finished[index]->message.begin() + 4, client.finished[index]->message.end()),
            Bytes(reply.begin() + 4, reply.end()));
}

TEST_P(Versions, write_data_of_a_read_chunk_stands_in_the_message_again) {
  ForwardLab lab(options());
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return success(call.xid(), words({0})); };
  for (const std::uint32_t bytes : {5u, 4096u, 65'537u, 1u << 20}) {
    client.region_used = 0;
    const LongWrite write(client, bytes);
    conformance::fill_pattern(write.data, 6);
    const Bytes& call = write.call;
    const Outcome outcome = lab.call(client, write.request());
    ASSERT_EQ(outcome.status, CallStatus::Ok) << bytes;
    const Bytes& seen = lab.upstream.calls.back().message;
    ASSERT_EQ(seen.size(), call.size() + xdr::padded(bytes));
    EXPECT_TRUE(conformance::has_pattern(std::span(seen).subspan(call.size(), bytes), 6));
    EXPECT_EQ(Bytes(seen.begin() + 4, seen.begin() + static_cast<std::ptrdiff_t>(call.size())),
              Bytes(call.begin() + 4, call.end()));
  }
}

TEST_P(Versions, a_write_beyond_what_is_configured_is_refused) {
  for (const std::uint32_t most : {1u << 20, 4u << 20}) {
    ForwardOptions chosen = options();
    chosen.max_io_bytes = most;
    ForwardLab lab(chosen);
    LabClient& client = lab.add_client();
    const LongWrite write(client, tcp::record_bytes(most));
    const Outcome outcome = lab.call(client, write.request());
    EXPECT_EQ(outcome.status, GetParam() == 1 ? CallStatus::ChunkError : CallStatus::Refused);
    EXPECT_EQ(lab.engine->counters().call_too_long, 1u);
    EXPECT_TRUE(lab.upstream.calls.empty());
  }
}

TEST(Forward, more_calls_than_may_be_outstanding_wait_their_turn) {
  constexpr std::size_t kMost = 8;  // half of the XIDs
  ForwardLab lab({.max_calls = 2 * kMost});
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return success(call.xid()); };
  lab.call(client, {.payload = unknown_call(), .max_reply_bytes = 64});  // all credits are granted now
  lab.upstream.answer = nullptr;
  lab.upstream.calls.clear();
  client.finished.clear();
  for (std::uint32_t i = 0; i < 16; ++i)
    client.submit({.payload = unknown_call(words({i})), .max_reply_bytes = 64});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == kMost; }));
  lab.turns();
  EXPECT_EQ(lab.upstream.calls.size(), kMost);
  EXPECT_EQ(lab.count(Counter::waits_number), 16 - kMost);
  lab.upstream.answer = [](const auto& call) { return success(call.xid()); };
  for (std::size_t i = 0; i < kMost; ++i) {
    const FakeUpstream::Call call = lab.upstream.calls[i];
    lab.upstream.send(call.connection, record(success(call.xid())));
  }
  ASSERT_TRUE(lab.until([&] { return client.finished[15].has_value(); }));
  for (std::uint32_t i = 0; i < 16; ++i) EXPECT_EQ(word_at(lab.upstream.calls[i].message, 10), i);
}

TEST(Forward, replies_wait_for_memory_and_all_come) {
  ForwardLab lab({.record_buffers = 1, .item_buffers = 1, .reply_buffers = 1});
  LabClient& client = lab.add_client();
  std::deque<Bytes> data;
  lab.upstream.answer = [&](const auto& call) {
    const std::uint32_t bytes = word_at(call.message, 10 + 9);
    return success(call.xid(), read_results(pattern(bytes, bytes)));
  };
  std::deque<rdma::Sge> pieces;
  std::deque<rpcrdma::WriteItem> items;
  const std::uint32_t sizes[] = {100, 40'000, 200, 300'000, 5000, 100'000, 3000, 16'000};
  for (int round = 0; round < 4; ++round)
    for (const std::uint32_t bytes : sizes) {
      pieces.push_back(client.piece(client.memory(bytes)));
      items.push_back({.pieces = {&pieces.back(), 1}});
      Bytes arguments = nfs3_handle();
      append(arguments, words({bytes}));
      client.submit(
          {.payload = nfs3(ulb::kNfs3Read, arguments), .writes = {&items.back(), 1}, .max_reply_bytes = 200});
    }
  ASSERT_TRUE(lab.until([&] {
    for (const auto& outcome : client.finished)
      if (!outcome) return false;
    return true;
  }));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    ASSERT_EQ(client.finished[i]->status, CallStatus::Ok);
    EXPECT_TRUE(conformance::has_pattern({pieces[i].address, pieces[i].length}, pieces[i].length)) << i;
  }
  EXPECT_GT(lab.count(Counter::waits_memory), 0u);
}

TEST(Forward, a_long_reply_in_fragments_is_complete_with_the_last_one_however_short) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  client.submit({.payload = call_of(0x20000123, 1, 7), .max_reply_bytes = 100'000});
  ASSERT_TRUE(lab.until([&] { return lab.upstream.calls.size() == 1; }));
  const Bytes reply = success(lab.upstream.calls[0].xid(), pattern(40'000, 1));
  const std::span<const std::byte> message(reply);
  lab.upstream.send(0, fragment(message.first(40'000), false));
  lab.turns(50);
  lab.upstream.send(0, fragment(message.subspan(40'000), true));
  ASSERT_TRUE(lab.until([&] { return client.finished[0].has_value(); }));
  const Bytes& seen = client.finished[0]->message;
  ASSERT_EQ(seen.size(), reply.size());
  EXPECT_TRUE(std::equal(seen.begin() + 4, seen.end(), reply.begin() + 4)) << "but for the XID";
}

TEST(Forward, programs_that_no_upstream_has_are_refused_here) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  Outcome outcome = lab.call(client, {.payload = call_of(77, 1, 0), .max_reply_bytes = 64});
  EXPECT_EQ(word_at(outcome.message, 5), 1u);  // PROG_UNAVAIL
  outcome = lab.call(client, {.payload = call_of(ulb::kNfsProgram, 2, 0), .max_reply_bytes = 64});
  EXPECT_EQ(word_at(outcome.message, 5), 2u);  // PROG_MISMATCH, 3 to 4
  EXPECT_EQ(word_at(outcome.message, 6), 3u);
  EXPECT_EQ(word_at(outcome.message, 7), 4u);
  EXPECT_TRUE(lab.upstream.calls.empty());
}

/// Returns a call of RPCSEC_GSS (RFC 2203): version 1, DATA, sequence number, service, handle.
Bytes gss_call(std::uint32_t service, std::uint32_t procedure, const Bytes& arguments) {
  Bytes credential = words({1, 0, 77, service});
  append(credential, opaque(pattern(8, 1)));
  Bytes call = words({0, 0, 2, ulb::kNfsProgram, 3, procedure, 6});
  append(call, opaque(credential));
  append(call, words({6}));
  append(call, opaque(pattern(28, 2)));
  append(call, arguments);
  return call;
}

TEST(Forward, V1_175_a_signed_call_keeps_its_xid_on_a_connection_of_its_own) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return success(call.xid()); };
  lab.call(client, {.payload = unknown_call(), .max_reply_bytes = 64});
  for (int i = 0; i < 3; ++i) {
    const Bytes call = gss_call(1, 0, {});
    const Outcome outcome = lab.call(client, {.payload = call, .max_reply_bytes = 64});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    const FakeUpstream::Call& seen = lab.upstream.calls.back();
    EXPECT_EQ(seen.xid(), word_at(outcome.message, 0));
    EXPECT_EQ(Bytes(seen.message.begin() + 4, seen.message.end()), Bytes(call.begin() + 4, call.end()));
    EXPECT_NE(seen.connection, lab.upstream.calls.front().connection);
  }
}

TEST(Forward, V1_176_wrapped_results_stay_in_one_piece) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  const Bytes results = read_results(pattern(3000, 4));  // looks like READ's, and is an opaque's content
  lab.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
  for (const std::uint32_t service : {1u, 2u, 3u}) {
    const auto into = client.memory(4096);
    const rdma::Sge piece = client.piece(into);
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    const Outcome outcome = lab.call(client,
                                     {.payload = gss_call(service, ulb::kNfs3Read, nfs3_handle()),
                                      .writes = {&item, 1},
                                      .max_reply_bytes = 8192},
                                     {3000});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(outcome.items[0].where == rpcrdma::ItemResult::Where::Placed, service == 1) << service;
  }
}

/// The maximum length of the results is unknown if the arguments are wrapped.
TEST(Forward, V1_176_a_wrapped_reply_may_have_any_length) {
  ForwardLab lab({.version = 2});
  LabClient& client = lab.add_client();
  lab.upstream.answer = [&](const auto& call) { return success(call.xid(), pattern(40'000, 4)); };
  for (const std::uint32_t service : {2u, 3u}) {
    const Outcome outcome =
        lab.call(client, {.payload = gss_call(service, ulb::kNfs3Read, {}), .max_reply_bytes = 50'000});
    ASSERT_EQ(outcome.status, CallStatus::Ok) << service;
    EXPECT_EQ(Bytes(outcome.message.begin() + 24, outcome.message.end()), pattern(40'000, 4)) << service;
  }
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
