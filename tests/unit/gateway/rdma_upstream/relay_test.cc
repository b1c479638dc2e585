// SPDX-License-Identifier: Apache-2.0
//
// Calls through a relay to a well-behaved server and from a well-behaved client, for each pair of versions of
// RPC-over-RDMA: messages that the server and the client receive.
#include <deque>

#include "tests/unit/gateway/rdma_upstream/relay_lab.h"

namespace sluice::rdma_upstream_test {
namespace {

using rpcrdma::CallStatus;
using tcp_upstream_test::call_of;
using tcp_upstream_test::LongWrite;
using tcp_upstream_test::nfs3;
using tcp_upstream_test::opaque;
using tcp_upstream_test::pattern;
using tcp_upstream_test::success;

Bytes behind_xid(const Bytes& message) {
  return {message.begin() + 4, message.end()};
}

struct Versions : testing::TestWithParam<std::pair<std::uint32_t, std::uint32_t>> {
  static RelayOptions options() {
    return {.client_version = GetParam().first, .server_version = GetParam().second};
  }
};
INSTANTIATE_TEST_SUITE_P(Relay, Versions,
                         testing::Values(std::pair{1u, 1u}, std::pair{1u, 2u}, std::pair{2u, 1u},
                                         std::pair{2u, 2u}),
                         [](const auto& versions) {
                           return "v" + std::to_string(versions.param.first) + "_to_v" +
                                  std::to_string(versions.param.second);
                         });

/// Makes a COMPOUND of READs whose results are too short for the server to place them, so that the reply
/// message contains them. Returns the number of reads whose data the client receives.
std::uint32_t reads_that_arrive(RelayOptions options, std::uint32_t bytes, std::uint32_t count) {
  constexpr std::uint32_t kRead = 25;
  RelayLab lab(options);
  LabClient& client = lab.add_client();
  lab.upstream().answer = [&](const auto& call) {
    Bytes results = words({0, 0, count});
    for (std::uint32_t i = 0; i < count; ++i) {
      append(results, words({kRead, 0, 1}));
      append(results, opaque(pattern(bytes, i)));
    }
    return success(call.xid(), results);
  };
  std::deque<rdma::Sge> pieces;
  std::vector<rpcrdma::WriteItem> items;
  Bytes arguments = words({0, 1, count});
  for (std::uint32_t i = 0; i < count; ++i) {
    append(arguments, words({kRead, 1, 2, 3, 4, 0, 0, bytes}));
    pieces.push_back(client.piece(client.memory(bytes)));
    items.push_back({.pieces = {&pieces.back(), 1}});
  }
  const Bytes call = call_of(ulb::kNfsProgram, 4, ulb::kNfs4Compound, arguments);
  const Outcome outcome = lab.call(client, {.payload = call, .writes = items, .max_reply_bytes = 1000},
                                   std::vector(count, bytes));
  EXPECT_EQ(outcome.status, CallStatus::Ok) << count << " of " << bytes;
  std::uint32_t right = 0;
  for (std::uint32_t i = 0; i < count; ++i) right += conformance::has_pattern({pieces[i].address, bytes}, i);
  return right;
}

TEST_P(Versions, results_that_the_server_does_not_place_are_placed_for_the_client) {
  for (const std::uint32_t count : {1u, 4u, 5u, 8u, 16u})
    for (const std::uint32_t bytes : {1000u, 1024u})
      EXPECT_EQ(reads_that_arrive(options(), bytes, count), count);
}

TEST_P(Versions, a_long_link_is_placed_for_the_client) {
  for (const std::size_t bytes : {3000u, 4090u}) {
    RelayLab lab(options());
    LabClient& client = lab.add_client();
    lab.upstream().answer = [&](const auto& call) {
      Bytes results = words({0, 0});
      append(results, opaque(pattern(bytes, 3)));
      return success(call.xid(), results);
    };
    const auto into = client.memory(bytes);
    const rdma::Sge piece = client.piece(into);
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    const Bytes call = nfs3(ulb::kNfs3ReadLink, opaque(pattern(32, 5)));
    const Outcome outcome = lab.call(client, {.payload = call, .writes = {&item, 1}, .max_reply_bytes = 200},
                                     {static_cast<std::uint32_t>(bytes)});
    EXPECT_EQ(outcome.status, CallStatus::Ok) << bytes;
    EXPECT_TRUE(conformance::has_pattern(into, 3));
  }
}

TEST_P(Versions, write_data_of_a_read_chunk_is_offered_where_it_is) {
  RelayLab lab(options());
  LabClient& client = lab.add_client();
  for (const std::uint32_t bytes : {5u, 4096u, 65'537u, 1u << 20}) {
    lab.upstream().answer = nullptr;
    client.region_used = 0;
    const LongWrite write(client, bytes);
    conformance::fill_pattern(write.data, 6);
    const std::size_t index = client.submit(write.request());
    const std::size_t calls = lab.upstream().calls.size();
    ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() > calls; })) << bytes;
    EXPECT_EQ(lab.side.relay->held_bytes(lab.side.accepted[0]->number()), 0u) << "no copy of it is there";
    const Bytes& seen = lab.upstream().calls.back().message;
    ASSERT_EQ(seen.size(), write.call.size() + xdr::padded(bytes));
    EXPECT_TRUE(conformance::has_pattern(std::span(seen).subspan(write.call.size(), bytes), 6));
    EXPECT_EQ(Bytes(seen.begin() + 4, seen.begin() + static_cast<std::ptrdiff_t>(write.call.size())),
              behind_xid(write.call));
    lab.upstream().send(lab.upstream().calls.back().connection,
                        tcp_upstream_test::record(success(lab.upstream().calls.back().xid(), words({0}))));
    ASSERT_TRUE(lab.until([&] { return client.finished[index].has_value(); }));
    EXPECT_EQ(client.finished[index]->status, CallStatus::Ok);
  }
}

TEST(RelayMemory, reads_of_four_mebibytes_wait_for_one_of_few_long_buffers) {
  constexpr std::uint32_t kBytes = 4u << 20;
  RelayLab lab({.record_buffers = 2, .max_io_bytes = kBytes});
  LabClient& client = lab.add_client();
  lab.upstream().answer = [](const auto& call) { return success(call.xid()); };
  lab.call(client, {.payload = nfs3(ulb::kNfs3Null), .max_reply_bytes = 64});  // all credits are granted now
  lab.upstream().answer = nullptr;
  lab.upstream().calls.clear();
  client.finished.clear();
  Bytes arguments = opaque(pattern(32, 5));
  append(arguments, words({0, 0, kBytes}));
  std::deque<rdma::Sge> pieces;
  for (int i = 0; i < 3; ++i) {
    pieces.push_back(client.piece(client.memory(kBytes)));
    const rpcrdma::WriteItem item{.pieces = {&pieces.back(), 1}};
    client.submit({.payload = nfs3(ulb::kNfs3Read, arguments), .writes = {&item, 1}, .max_reply_bytes = 200});
  }
  ASSERT_TRUE(lab.until([&] { return lab.count(Counter::waits_memory) > 0; }));
  ASSERT_TRUE(lab.until([&] { return lab.upstream().calls.size() == 2; }));
  EXPECT_EQ(lab.side.relay->held_bytes(lab.side.accepted[0]->number()), 2u * tcp::record_bytes(kBytes));
  const auto answer = [](const auto& call) {
    Bytes results = words({0, 0, kBytes, 1});
    append(results, opaque(pattern(kBytes, 7)));
    return success(call.xid(), results);
  };
  for (const auto& call : std::vector(lab.upstream().calls))
    lab.upstream().send(call.connection, tcp_upstream_test::record(answer(call)));
  lab.upstream().answer = answer;
  ASSERT_TRUE(lab.until([&] { return client.finished[2].has_value(); }));
  for (const rdma::Sge& piece : pieces)
    EXPECT_TRUE(conformance::has_pattern({piece.address, piece.length}, 7));
  EXPECT_TRUE(lab.until([&] { return lab.balanced(); }));
}

}  // namespace
}  // namespace sluice::rdma_upstream_test
