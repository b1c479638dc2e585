// SPDX-License-Identifier: Apache-2.0
//
// COMPOUNDs through the gateway, including malformed ones (RFC 8267, section 6).
#include "tests/unit/gateway/tcp_upstream/forward_lab.h"

namespace sluice::tcp_upstream_test {
namespace {

constexpr std::uint32_t kPutFh = 22, kWrite = 38, kRead = 25, kGetAttr = 9, kReadLink = 27;

Bytes compound(std::uint32_t operations, const Bytes& body, std::uint32_t procedure = ulb::kNfs4Compound) {
  return call_of(ulb::kNfsProgram, 4, procedure, joined({words({0, 1, operations}), body}));
}
Bytes put_fh() {
  return joined({words({kPutFh}), opaque(pattern(28, 1))});
}
/// Returns a WRITE up to the start of its data.
Bytes write_of(std::uint32_t bytes) {
  return words({kWrite, 1, 2, 3, 4, 0, 0, 2, bytes});
}
Bytes get_attr() {
  return words({kGetAttr, 1, 0x18});
}
Bytes read_call(std::uint32_t bytes) {
  return words({kRead, 1, 2, 3, 4, 0, 0, bytes});
}

Bytes compound_reply(std::uint32_t xid, std::uint32_t status, std::uint32_t operations, const Bytes& body) {
  return success(xid, joined({words({status, 0, operations}), body}));
}
Bytes read_result(const Bytes& data) {
  return joined({words({kRead, 0, 1}), opaque(data)});
}

struct Placed {
  std::deque<rdma::Sge> pieces;
  std::vector<rpcrdma::WriteItem> items;
  std::vector<std::span<std::byte>> bytes;
  void add(LabClient& client, std::size_t count) {
    bytes.push_back(client.memory(count));
    pieces.push_back(client.piece(bytes.back()));
    items.push_back({.pieces = {&pieces.back(), 1}});
  }
};

TEST(ForwardCompound, V1_198_a_write_in_the_middle_goes_out_in_one_piece) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return compound_reply(call.xid(), 0, 0, {}); };
  for (const std::uint32_t bytes : {5001u, 1u << 20}) {
    client.region_used = 0;
    const auto data = client.memory(bytes);
    conformance::fill_pattern(data, 8);
    const Bytes before = compound(3, joined({put_fh(), write_of(bytes)}));
    const Bytes call = joined({before, get_attr()});
    const rdma::Sge piece = client.piece(data);
    const rpcrdma::ReadItem item{.position = rpcrdma::Position{static_cast<std::uint32_t>(before.size())},
                                 .pieces = {&piece, 1}};
    const Outcome outcome = lab.call(client, {.payload = call, .reads = {&item, 1}, .max_reply_bytes = 300});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    const Bytes& seen = lab.upstream.calls.back().message;
    Bytes whole = joined({before, pattern(bytes, 8)});
    whole.resize(before.size() + xdr::padded(bytes));
    append(whole, get_attr());
    ASSERT_EQ(Bytes(seen.begin() + 4, seen.end()), Bytes(whole.begin() + 4, whole.end()));
  }
}

TEST(ForwardCompound, V1_199_each_read_of_a_reply_goes_to_its_write_chunk) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) {
    return compound_reply(
        call.xid(), 0, 4,
        joined({words({kPutFh, 0}), read_result(pattern(3001, 1)),
                joined({words({kReadLink, 0}), opaque(pattern(700, 2))}), read_result(pattern(40'000, 3))}));
  };
  Placed placed;
  for (const std::size_t bytes : {3001u, 700u, 40'000u}) placed.add(client, bytes);
  const Outcome outcome = lab.call(
      client,
      {.payload = compound(4, joined({put_fh(), read_call(3001), words({kReadLink}), read_call(40'000)})),
       .writes = placed.items,
       .max_reply_bytes = 400},
      {3001, 700, 40'000});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(outcome.items[i].where, rpcrdma::ItemResult::Where::Placed) << i;
    EXPECT_TRUE(conformance::has_pattern(placed.bytes[i], i + 1)) << i;
  }
}

TEST(ForwardCompound, more_reads_than_chunks_leave_the_rest_in_the_message) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) {
    return compound_reply(
        call.xid(), 0, 3,
        joined({read_result(pattern(2000, 1)), read_result(pattern(301, 2)), read_result({})}));
  };
  Placed placed;
  placed.add(client, 2000);
  const Outcome outcome =
      lab.call(client,
               {.payload = compound(3, joined({read_call(2000), read_call(301), read_call(9)})),
                .writes = placed.items,
                .max_reply_bytes = 2000},
               {2000});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  EXPECT_TRUE(conformance::has_pattern(placed.bytes[0], 1));
  const Bytes expected =
      joined({words({0, 0, 3}), words({kRead, 0, 1, 2000}), read_result(pattern(301, 2)), read_result({})});
  EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), expected);
}

TEST(ForwardCompound, more_chunks_than_reads_come_back_unused) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) {
    return compound_reply(call.xid(), 0, 1, read_result(pattern(100, 1)));
  };
  Placed placed;
  for (int i = 0; i < 4; ++i) placed.add(client, 100);
  const Outcome outcome = lab.call(
      client, {.payload = compound(1, read_call(100)), .writes = placed.items, .max_reply_bytes = 200},
      {100, 0});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  EXPECT_TRUE(conformance::has_pattern(placed.bytes[0], 1));
}

/// RFC 8267, section 6.4.1: a result whose Write chunk is not empty is not sent inline.
TEST(ForwardCompound, as_many_reads_are_placed_as_a_call_may_have_write_chunks) {
  constexpr std::uint32_t kReads = 16, kBytes = 100;
  ForwardLab lab;
  LabClient& client = lab.add_client();
  Bytes arguments, results = words({0, 0, kReads});
  Placed placed;
  for (std::uint32_t i = 0; i < kReads; ++i) {
    append(arguments, read_call(kBytes));
    append(results, read_result(pattern(kBytes, i)));
    placed.add(client, kBytes);
  }
  lab.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
  const Outcome outcome = lab.call(
      client, {.payload = compound(kReads, arguments), .writes = placed.items, .max_reply_bytes = 3000},
      std::vector(kReads, kBytes));
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  for (std::uint32_t i = 0; i < kReads; ++i) EXPECT_TRUE(conformance::has_pattern(placed.bytes[i], i)) << i;
}

TEST(ForwardCompound, more_items_than_can_be_named_stay_in_the_message) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  constexpr std::uint32_t kReads = service::kMaxResultItems + 3;
  Bytes results = words({0, 0, kReads});
  for (std::uint32_t i = 0; i < kReads; ++i) append(results, read_result(pattern(40 + i, i)));
  lab.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
  const Outcome outcome = lab.call(client, {.payload = compound(1, read_call(9)), .max_reply_bytes = 4000});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), results);
}

TEST(ForwardCompound, a_failed_read_has_no_data_and_uses_no_chunk) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) {
    return compound_reply(call.xid(), 10'025, 2, words({kPutFh, 0, kRead, 10'025}));
  };
  Placed placed;
  placed.add(client, 100);
  const Outcome outcome = lab.call(client,
                                   {.payload = compound(2, joined({put_fh(), read_call(100)})),
                                    .writes = placed.items,
                                    .max_reply_bytes = 200},
                                   {0});
  ASSERT_EQ(outcome.status, CallStatus::Ok);
  EXPECT_EQ(word_at(outcome.message, 6), 10'025u);
}

TEST(ForwardCompound, results_that_cannot_be_stepped_over_come_as_they_are) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  const Bytes odd[] = {
      words({0, 0, 1, 4711, 0, 1, 2}),               // an unknown operation
      words({0, 0, 0xffffffff}),                     // more operations than bytes
      words({0, 0, 1, kRead, 0, 1, 0x7fffffff, 5}),  // more data than bytes
      words({0, 0xfffffff0}),
      words({0}),
      {},
  };
  for (const Bytes& results : odd) {
    lab.upstream.answer = [&](const auto& call) { return success(call.xid(), results); };
    const Outcome outcome = lab.call(client, {.payload = compound(1, get_attr()), .max_reply_bytes = 400});
    ASSERT_EQ(outcome.status, CallStatus::Ok);
    EXPECT_EQ(Bytes(outcome.message.begin() + kResultsAt, outcome.message.end()), results);
  }
}

/// Returns a version 1 call with one Read chunk.
Bytes with_chunk(std::uint32_t xid, std::uint32_t position, const rpcrdma::Segment& segment,
                 const Bytes& call) {
  Bytes message = words({xid, 1, 8, 0, 1, position, static_cast<std::uint32_t>(segment.handle),
                         segment.length, static_cast<std::uint32_t>(segment.offset >> 32),
                         static_cast<std::uint32_t>(segment.offset), 0, 0, 0});
  Bytes body = call;
  xdr::store_u32(body.data(), xid);
  append(message, body);
  return message;
}
constexpr std::uint32_t kRdmaError = 4, kErrChunk = 2;

TEST(ForwardCompound, a_read_chunk_that_stands_at_no_item_is_refused) {
  ForwardLab lab;
  lab.upstream.answer = [](const auto& call) { return compound_reply(call.xid(), 0, 0, {}); };
  const auto peer = lab.add_raw_peer();
  const auto exposed = peer->expose(64, rdma::kRemoteRead);
  const Bytes until_data = compound(3, joined({put_fh(), write_of(64)}));
  const Bytes call = joined({until_data, get_attr()});
  const auto at_data = static_cast<std::uint32_t>(until_data.size());
  std::uint32_t xid = 100;
  const auto answer = [&](std::uint32_t position, const Bytes& body) {
    peer->inbox.clear();
    peer->send(with_chunk(++xid, position, exposed.segment, body));
    EXPECT_TRUE(lab.until([&] { return !peer->inbox.empty(); }));
    return peer->inbox.empty() ? Bytes{} : peer->inbox[0].bytes;
  };
  EXPECT_EQ(word_at(answer(at_data, call), 3), 0u);  // valid: a reply
  const std::size_t forwarded = lab.upstream.calls.size();
  const auto body_at = static_cast<std::uint32_t>(kArgumentsAt);
  for (const std::uint32_t position : {body_at, body_at + 12, at_data - 4}) {
    const Bytes reply = answer(position, call);
    EXPECT_EQ(word_at(reply, 3), kRdmaError) << position;
    EXPECT_EQ(word_at(reply, 4), kErrChunk) << position;
  }
  // A call without an item, a wrong number of operations, and a truncated compound.
  EXPECT_EQ(word_at(answer(body_at + 12, compound(1, get_attr())), 3), kRdmaError);
  EXPECT_EQ(
      word_at(answer(at_data, joined({compound(0xffffffff, joined({put_fh(), write_of(64)})), get_attr()})),
              3),
      kRdmaError);
  EXPECT_EQ(word_at(answer(at_data - 4, compound(3, joined({put_fh(), words({kWrite, 1, 2, 3, 4})}))), 3),
            kRdmaError);
  EXPECT_EQ(lab.upstream.calls.size(), forwarded);
  EXPECT_GE(lab.engine->counters().not_eligible, 4u);
  EXPECT_EQ(word_at(answer(at_data, call), 3), 0u);  // the connection is still open
}

TEST(ForwardCompound, calls_cut_anywhere_are_the_upstreams_to_judge) {
  ForwardLab lab;
  LabClient& client = lab.add_client();
  lab.upstream.answer = [](const auto& call) { return success(call.xid()); };
  const Bytes whole = compound(3, joined({put_fh(), read_call(9), get_attr()}));
  for (std::size_t bytes = kArgumentsAt; bytes < whole.size(); bytes += 4) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    ASSERT_EQ(lab.call(client, {.payload = cut, .max_reply_bytes = 100}).status, CallStatus::Ok);
    EXPECT_EQ(lab.upstream.calls.back().message.size(), bytes);
  }
}

TEST(ForwardCompound, each_client_has_an_upstream_connection_of_its_own) {
  ForwardLab lab;
  for (int i = 0; i < 3; ++i) lab.add_client();
  lab.upstream.answer = [](const auto& call) { return compound_reply(call.xid(), 0, 0, {}); };
  for (int round = 0; round < 2; ++round)
    for (const auto& client : lab.clients)
      lab.call(*client, {.payload = compound(1, get_attr()), .max_reply_bytes = 100});
  std::vector<std::size_t> used;
  for (const auto& call : lab.upstream.calls) used.push_back(call.connection);
  EXPECT_EQ(used, (std::vector<std::size_t>{0, 1, 2, 0, 1, 2}));
  // The connection ends with its client.
  lab.disconnect(*lab.clients[1]);
  EXPECT_TRUE(lab.until([&] { return !lab.upstream.open(1); }));
  EXPECT_TRUE(lab.upstream.open(0) && lab.upstream.open(2));
  LabClient& next = lab.add_client();
  lab.call(next, {.payload = compound(1, get_attr()), .max_reply_bytes = 100});
  EXPECT_EQ(lab.upstream.calls.back().connection, 3u);
}

}  // namespace
}  // namespace sluice::tcp_upstream_test
