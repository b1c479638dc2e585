// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows at the requester, against a raw server: the form of each call, and the items that bindings
// report.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "dataplane/ulb/nfs3.h"
#include "dataplane/ulb/nfs4.h"
#include "tests/conformance/raw_server.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;
using Where = rpcrdma::ItemResult::Where;

TEST(RequesterShapes, F_03_scattered_items_go_as_one_segment_to_peers_that_take_no_more) {
  LabOptions options;
  options.requester.single_segment_chunks = true;
  options.requester.bounce_buffers = 1;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 32768);
  fill_pattern(memory.region.bytes, 5);
  const std::array<rdma::Sge, 3> argument = {memory.piece(0, 1000), memory.piece(4096, 24),
                                             memory.piece(8192, 977)};
  const std::array<rdma::Sge, 2> result = {memory.piece(16384, 600), memory.piece(20480, 600)};
  Bytes expected;
  for (const rdma::Sge& piece : argument)
    expected.insert(expected.end(), piece.address, piece.address + piece.length);
  Bytes payload = null_call();
  append(payload, words({static_cast<std::uint32_t>(expected.size())}));
  const rpcrdma::ReadItem read{rpcrdma::Position{static_cast<std::uint32_t>(payload.size())}, argument};
  const rpcrdma::WriteItem write{result};
  const rpcrdma::Request request{
      .payload = payload, .reads = {&read, 1}, .writes = {&write, 1}, .max_reply_bytes = 64};
  const auto xid = lab.submit(request, {1200});
  ASSERT_TRUE(xid);
  EXPECT_FALSE(lab.submit(request)) << "the second call needs the one bounce buffer";
  lab.settle();
  Offer offer = offer_in(got(lab, 0));
  ASSERT_EQ(offer.reads.size(), 1u);
  EXPECT_EQ(offer.reads[0].target.length, expected.size());
  ASSERT_EQ(offer.writes.at(0).size(), 1u);
  EXPECT_EQ(offer.writes[0][0].length, 1200u);
  const auto fetched = lab.peer->read_remote(offer.reads[0].target, expected.size());
  lab.settle();
  EXPECT_TRUE(std::equal(fetched.begin(), fetched.end(), expected.begin()));
  Bytes data(1200);
  fill_pattern(data, 9);
  lab.peer->write_remote(offer.writes[0][0], data);
  lab.peer->send(RawCall{.xid = *xid, .credits = 4, .writes = offer.writes}.with(accepted(*xid, {1200})));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].items.at(0).where, Where::Placed);
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 600, memory.region.bytes.begin() + 16384));
  EXPECT_TRUE(std::equal(data.begin() + 600, data.end(), memory.region.bytes.begin() + 20480));
  EXPECT_TRUE(lab.submit(request));
}

TEST(RequesterShapes, V1_005_V1_040_V1_084_V1_072_a_write_is_E2) {
  LabOptions options;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 16384);
  const rdma::Sge pieces[] = {memory.piece(0, 4096), memory.piece(8192, 905)};
  Bytes payload = bytes_of(std::span(golden::kE2).subspan(19));
  const rpcrdma::ReadItem item{rpcrdma::Position{96}, pieces};
  lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 200});
  lab.settle();
  Bytes expected = bytes_of(golden::kE2);
  Bytes message = got(lab, 0);
  ASSERT_EQ(message.size(), expected.size());
  const Offer offer = offer_in(message);
  EXPECT_EQ(offer.reads.at(0).target.length + offer.reads.at(1).target.length, 5001u);  // no padding anywhere
  // XID, handles and offsets are chosen by Sluice and the driver; everything else equals E2.
  for (const std::size_t word : {0u, 6u, 8u, 9u, 12u, 14u, 15u, 19u}) {
    xdr::store_u32(expected.data() + word * 4, 0);
    xdr::store_u32(message.data() + word * 4, 0);
  }
  EXPECT_EQ(message, expected);
}

TEST(RequesterShapes, V1_009_V1_062_V1_064_V1_066_V1_112_threshold_decides_between_short_and_long) {
  ClientLab lab;  // the peer's threshold is unknown: 1024 bytes
  const std::pair<std::uint32_t, std::uint32_t> cases[] = {{1024 - 28, 0}, {1024 - 28 + 4, 1}};
  for (const auto& [bytes, proc] : cases) {
    lab.peer->inbox.clear();
    Bytes payload = null_call();
    payload.resize(bytes);
    fill_pattern(std::span(payload).subspan(40), 1);
    const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64});
    lab.settle();
    ASSERT_EQ(lab.peer->inbox.size(), 1u);
    EXPECT_EQ(word_at(got(lab, 0), 3), proc);
    EXPECT_LE(got(lab, 0).size(), 1024u);
    if (proc == 1) {
      const Offer offer = offer_in(got(lab, 0));
      ASSERT_EQ(offer.reads.size(), 1u);
      EXPECT_EQ(offer.reads[0].position, rpcrdma::Position{0});
      EXPECT_EQ(offer.reads[0].target.length, bytes);
    }
    lab.peer->send(ClientLab::success(*xid, 8));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 2u);
}

TEST(RequesterShapes, V1_009_V1_064_F_12_segments_in_the_header_count_against_the_threshold) {
  for (const std::uint32_t segments : {0u, 1u, 20u})
    for (const bool reads : {true, false})
      for (const std::uint32_t total : {1023u, 1024u, 1025u}) {
        ClientLab lab;  // the peer receives 1024 bytes
        const CallerMemory memory = caller_memory(lab, 4096);
        std::vector<rdma::Sge> pieces;
        for (std::uint32_t i = 0; i < segments; ++i) pieces.push_back(memory.piece(64 * i, 32));
        const std::size_t items = segments > 0 ? 1 : 0;
        const rpcrdma::ReadItem read{rpcrdma::Position{44}, pieces};
        const rpcrdma::WriteItem write{pieces};
        const std::size_t header = 28 + (reads ? 24 * segments : 8 * items + 16 * segments);
        Bytes payload = null_call();
        payload.resize(total - header);
        rpcrdma::Request request{.payload = payload, .max_reply_bytes = 64};
        if (reads)
          request.reads = {&read, items};
        else
          request.writes = {&write, items};
        lab.submit(request);
        lab.settle();
        SCOPED_TRACE(std::to_string(segments) + " segments, " + std::to_string(total) + " bytes");
        EXPECT_FALSE(lab.peer->failed);
        ASSERT_EQ(lab.peer->inbox.size(), 1u);
        const bool fits = total <= 1024;
        EXPECT_EQ(word_at(got(lab, 0), 3), fits ? 0u : 1u);
        EXPECT_EQ(got(lab, 0).size(), fits ? total : header + 24);
      }
}

TEST(RequesterShapes, V1_009_no_call_of_any_size_is_too_long_for_the_peers_receives) {
  LabOptions options;
  options.requester.windows = 2048;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 4096);
  std::uint32_t seed = 1;
  const auto random = [&seed](std::uint32_t below) {
    return (seed = seed * 1664525 + 1013904223) / 65536 % below;
  };
  std::uint32_t longest = 0;
  for (int i = 0; i < 100'000; ++i) {
    const rdma::Sge pieces[] = {memory.piece(0, 32),   memory.piece(64, 32),  memory.piece(128, 32),
                                memory.piece(192, 32), memory.piece(256, 32), memory.piece(320, 32)};
    const rpcrdma::ReadItem read{rpcrdma::Position{44}, std::span(pieces).first(random(4))};
    const rpcrdma::WriteItem write{std::span(pieces).subspan(3, random(4))};
    Bytes payload = null_call();
    payload.resize(40 + random(1100));
    const auto xid = lab.submit({.payload = payload,
                                 .reads = {&read, read.pieces.empty() ? 0u : 1u},
                                 .writes = {&write, write.pieces.empty() ? 0u : 1u},
                                 .max_reply_bytes = 64});
    // Both sides run until the call has arrived.
    for (int turn = 0; turn < 100 && lab.peer->inbox.empty(); ++turn)
      lab.engine->poll(lab.now_ns += 1000), lab.peer->poll();
    ASSERT_EQ(lab.peer->inbox.size(), 1u) << i;
    longest = std::max<std::uint32_t>(longest, static_cast<std::uint32_t>(got(lab, 0).size()));
    lab.peer->inbox.clear();
    lab.peer->send(ClientLab::success(*xid, 8));
    for (int turn = 0; turn < 100 && lab.finished.empty(); ++turn)
      lab.peer->poll(), lab.engine->poll(lab.now_ns += 1000);
    ASSERT_EQ(lab.finished.size(), 1u) << i;
    lab.finished.clear();
    lab.log.clear();
    lab.peer->send_completions.clear();
  }
  EXPECT_FALSE(lab.peer->failed);
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_EQ(longest, 1024u);
}

TEST(RequesterShapes, V1_005_V1_013_V1_138_long_call_content_starts_with_the_xid) {
  ClientLab lab;
  Bytes payload = null_call();
  payload.resize(3000);
  const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64, .as_long_call = true});
  lab.settle();
  const Offer offer = offer_in(got(lab, 0));
  lab.peer->read_remote({offer.reads[0].target.handle, 4, offer.reads[0].target.offset}, 4);
  lab.settle();
  EXPECT_FALSE(lab.peer->failed);
  EXPECT_EQ(xdr::load_u32(reinterpret_cast<const std::byte*>(offer.reads[0].target.offset)), *xid);
}

TEST(RequesterShapes, V1_067_V1_168_F_13_a_header_that_cannot_fit_fails_locally) {
  LabOptions options;
  options.requester.max_segment_bytes = 4096;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 1 << 20);
  std::uint32_t sent = 0;
  for (std::uint32_t bytes = 4096; bytes <= 1 << 20; bytes *= 2) {
    const rdma::Sge piece = memory.piece(0, bytes);
    const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
    Bytes payload = test_call(0, TestService::kSink, {bytes});
    const std::size_t before = lab.finished.size();
    const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    if (bytes / 4096 * 24 + 28 + 24 > 1024) {
      ASSERT_EQ(lab.finished.size(), before + 1);
      EXPECT_EQ(lab.finished.back().status, CallStatus::TooLarge);
    } else {
      ++sent;
      EXPECT_LE(got(lab, lab.peer->inbox.size() - 1).size(), 1024u);
      lab.peer->send(ClientLab::success(*xid, 8));
      lab.settle();
    }
  }
  EXPECT_EQ(lab.peer->inbox.size(), sent);
}

TEST(RequesterShapes, V1_118_V1_119_V1_177_A_20_F_15_reply_chunk_exactly_when_the_reply_may_not_fit) {
  ClientLab lab;
  lab.options.connection.receive_inline_bytes = 1024;
  lab.disconnect();
  lab.connect();
  const Bytes payload = null_call();
  for (const auto& [bytes, expected] :
       {std::pair{996u, false}, std::pair{997u, true}, std::pair{8000u, true}}) {
    lab.peer->inbox.clear();
    const auto xid = lab.submit({.payload = payload, .max_reply_bytes = bytes});
    lab.settle();
    const Offer offer = offer_in(got(lab, 0));
    EXPECT_EQ(offer.reply.has_value(), expected) << bytes;
    if (expected) {
      EXPECT_GE((*offer.reply)[0].length, bytes);
    }
    lab.peer->send(ClientLab::success(*xid, 1));
    lab.settle();
  }
}

TEST(RequesterShapes, V1_056_shortage_of_windows_delays_a_call) {
  LabOptions options;
  options.requester.windows = 2;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 64);
  const rpcrdma::WriteItem item{{&piece, 1}};
  const Bytes payload = null_call();
  for (int i = 0; i < 5; ++i) lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  lab.peer->send(RawCall{.xid = xid_of(got(lab, 0)), .credits = 16}.with(accepted(xid_of(got(lab, 0)))));
  lab.settle();
  EXPECT_EQ(lab.requester->outstanding(), 2u);
  for (std::size_t i = 1; i < 5; ++i) {
    lab.peer->send(RawCall{.xid = xid_of(got(lab, i)), .credits = 16}.with(accepted(xid_of(got(lab, i)))));
    lab.settle();
  }
  EXPECT_EQ(lab.finished.size(), 5u);
}

TEST(RequesterShapes, V1_092_V1_103_V1_195_V1_193_V1_192_nfs_shapes_and_estimates) {
  // READ of count N: the caller provides N bytes, and N bytes are offered, without room for padding.
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge piece = memory.piece(0, 1501);
  const rpcrdma::WriteItem item{{&piece, 1}};
  lab.submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 200});
  lab.settle();
  EXPECT_EQ(offer_in(got(lab, 0)).writes.at(0).at(0).length, 1501u);
  const auto& binding = ulb::nfs3_binding();
  EXPECT_EQ(binding.procedure(ulb::kNfs3Read).eligible_results, 1);
  EXPECT_EQ(binding.procedure(ulb::kNfs3Write).eligible_arguments, 1);
  EXPECT_EQ(binding.procedure(ulb::kNfs3SymLink).eligible_arguments, 1);
  EXPECT_EQ(binding.procedure(ulb::kNfs3ReadDir).eligible_results, 0);
}

TEST(RequesterShapes, V1_197_a_reply_chunk_for_readdir_is_sized_by_the_count_asked_for) {
  const auto& binding = ulb::nfs3_binding();
  EXPECT_EQ(binding.procedure(ulb::kNfs3ReadDir).eligible_results, 0);
  constexpr std::uint32_t kAround = 4 + 88 + 16;  // status, attributes, cookie verifier, list's end, eof
  EXPECT_EQ(binding.max_results_bytes(ulb::kNfs3ReadDir, {}), kAround);
  for (const std::uint32_t count : {512u, 8192u}) {
    Bytes arguments = words({24});
    arguments.resize(4 + 24);
    append(arguments, words({0, 0, 0, 0, count}));
    const std::uint64_t results = binding.max_results_bytes(ulb::kNfs3ReadDir, arguments);
    EXPECT_EQ(results, count + kAround);
    ClientLab lab;
    Bytes payload = rpc_call(0, 100003, 3, ulb::kNfs3ReadDir);
    append(payload, arguments);
    lab.submit(
        {.payload = payload, .max_reply_bytes = static_cast<std::uint32_t>(rpc::kMinReplyBytes + results)});
    lab.settle();
    const Offer offer = offer_in(got(lab, 0));
    EXPECT_TRUE(offer.writes.empty());
    ASSERT_EQ(offer.reply.has_value(), count == 8192);
    if (!offer.reply) continue;
    ASSERT_EQ(offer.reply->size(), 1u);
    EXPECT_GE((*offer.reply)[0].length, 8192u + rpc::kMinReplyBytes + kAround);
  }
}

TEST(RequesterShapes, V1_071_adjacent_items_are_two_chunks_at_two_positions) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge first = memory.piece(0, 5);
  const rdma::Sge second = memory.piece(1024, 8);
  // Counts at 40 and 52; the first item's round-up is in the unreduced message (V1-077).
  const rpcrdma::ReadItem items[] = {{rpcrdma::Position{44}, {&first, 1}},
                                     {rpcrdma::Position{56}, {&second, 1}}};
  const Bytes payload = test_call(0, TestService::kTwoSinks, {5, 8});
  lab.submit({.payload = payload, .reads = items, .max_reply_bytes = 64});
  lab.settle();
  const Offer offer = offer_in(got(lab, 0));
  ASSERT_EQ(offer.reads.size(), 2u);
  EXPECT_EQ(offer.reads[0].position, rpcrdma::Position{44});
  EXPECT_EQ(offer.reads[0].target.length, 5u);
  EXPECT_EQ(offer.reads[1].position, rpcrdma::Position{56});
  EXPECT_EQ(offer.reads[1].target.length, 8u);
}

TEST(RequesterShapes, V1_074_optional_data_keeps_its_discriminator_inline) {
  ClientLab lab;
  const CallerMemory memory = caller_memory(lab, 4096);
  const rdma::Sge data = memory.piece(0, 64);
  const rpcrdma::ReadItem item{rpcrdma::Position{48}, {&data, 1}};
  // Present: the word 1 and the count stay, the data moves. Absent: the word 0, and no chunk.
  const Bytes present = test_call(0, TestService::kSink, {1, 64});
  lab.submit({.payload = present, .reads = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(word_at(got(lab, 0), (28 + 24 + 40) / 4), 1u);
  EXPECT_EQ(offer_in(got(lab, 0)).reads.size(), 1u);
  lab.peer->send(ClientLab::success(xid_of(got(lab, 0)), 4));
  lab.settle();
  const Bytes absent = test_call(0, TestService::kSink, {0});
  lab.submit({.payload = absent, .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(word_at(got(lab, 1), (28 + 40) / 4), 0u);
  EXPECT_TRUE(offer_in(got(lab, 1)).reads.empty());
}

TEST(RequesterShapes, V1_070_V1_075_V1_183_V1_184_V1_187_bindings_name_items_and_bounds) {
  const service::Binding empty{.program = 1, .version = 1};
  for (std::uint32_t procedure : {0u, 1u, 1000u}) {
    EXPECT_EQ(empty.procedure(procedure).eligible_arguments, 0);
    EXPECT_EQ(empty.procedure(procedure).eligible_results, 0);
  }
  EXPECT_EQ(empty.max_results_bytes, nullptr);  // the caller has to give the size: Request::max_reply_bytes
  EXPECT_NE(ulb::nfs3_binding().max_results_bytes, nullptr);
}

/// Builds a COMPOUND of one WRITE and one READ. The data of the WRITE is `data`.
Bytes compound_arguments(const Bytes& data) {
  Bytes out = words({0, 1, 2, 38, 1, 2, 3, 4, 0, 0, 2, static_cast<std::uint32_t>(data.size())});
  append(out, data);
  append(out, words({25, 1, 2, 3, 4, 0, 0, 100}));
  return out;
}

TEST(Bindings, V1_185_what_looks_like_an_item_within_an_item_is_none) {
  std::array<service::Item, 8> items;
  const auto& nfs4 = ulb::nfs4_binding();
  const Bytes inner = compound_arguments(words({1, 2, 3}));
  for (const bool whole : {true, false}) {  // a whole message, or one operation
    const Bytes data = whole ? inner : Bytes(inner.begin() + 12, inner.end());
    const Bytes outer = compound_arguments(data);
    ASSERT_EQ(nfs4.argument_items(ulb::kNfs4Compound, outer, items), 1u);
    EXPECT_EQ(items[0].offset, 48u);
    EXPECT_EQ(items[0].bytes, data.size());
  }
  // The results are of a READ whose data looks like the results of a READ.
  Bytes results = words({0, 0, 2, 25, 0, 1, 12, 25, 0, 0, 25, 0, 1, 4, 7});
  ASSERT_EQ(nfs4.result_items(ulb::kNfs4Compound, results, nullptr, items), 2u);
  EXPECT_EQ(items[0].offset, 28u);
  EXPECT_EQ(items[0].bytes, 12u);
  EXPECT_EQ(items[1].offset, 56u);
  // NFS version 3: a WRITE whose data looks like the arguments of a WRITE.
  const Bytes write = words({4, 9, 0, 0, 4, 2, 4, 7});
  Bytes nested = words({4, 9, 0, 0, 32, 2, 32});
  append(nested, write);
  ASSERT_EQ(ulb::nfs3_binding().argument_items(ulb::kNfs3Write, nested, items), 1u);
  EXPECT_EQ(items[0].offset, 28u);
  EXPECT_EQ(items[0].bytes, 32u);
}

TEST(Bindings, V1_186_the_binding_says_which_result_belongs_to_which_chunk) {
  struct Order final : service::PlacedResults {
    bool placed(std::size_t index, std::uint32_t bytes) noexcept override {
      asked.emplace_back(index, bytes);
      return true;
    }
    void unreadable() noexcept override { ADD_FAILURE(); }
    std::vector<std::pair<std::size_t, std::uint32_t>> asked;
  };
  using Asked = std::vector<std::pair<std::size_t, std::uint32_t>>;
  const auto& nfs4 = ulb::nfs4_binding();
  // READ, GETATTR, READLINK, READ: a chunk for each that may have data, in the order of the operations.
  const Bytes call = words({0, 1, 4, 25, 1, 2, 3, 4, 0, 0, 1000, 9, 1, 0x18, 27, 25, 1, 2, 3, 4, 0, 0, 3000});
  std::array<std::uint32_t, 8> most{};
  ASSERT_EQ(nfs4.expected_items(ulb::kNfs4Compound, call, most), 3u);
  EXPECT_EQ(most[0], 1000u);
  EXPECT_EQ(most[2], 3000u);
  // All three operations return data.
  std::array<service::Item, 8> items;
  Order all;
  ASSERT_EQ(
      nfs4.result_items(ulb::kNfs4Compound,
                        words({0, 0, 4, 25, 0, 0, 900, 9, 0, 0, 0, 27, 0, 30, 25, 0, 1, 2000}), &all, items),
      3u);
  EXPECT_EQ(all.asked, (Asked{{0, 900}, {1, 30}, {2, 2000}}));
  // An operation that returns no data has no item, and the word after it is not mistaken for one.
  Order failed;
  ASSERT_EQ(nfs4.result_items(ulb::kNfs4Compound, words({70, 0, 3, 25, 0, 0, 900, 9, 0, 0, 0, 27, 70}),
                              &failed, items),
            1u);
  EXPECT_EQ(failed.asked, (Asked{{0, 900}}));
  // NFS version 3: a READ with data, and a failed READ.
  const auto& nfs3 = ulb::nfs3_binding();
  Order read, no_read;
  EXPECT_EQ(nfs3.result_items(ulb::kNfs3Read, words({0, 0, 8, 1, 8}), &read, items), 1u);
  EXPECT_EQ(read.asked, (Asked{{0, 8}}));
  EXPECT_EQ(nfs3.result_items(ulb::kNfs3Read, words({70, 0}), &no_read, items), 0u);
  EXPECT_TRUE(no_read.asked.empty());
}

}  // namespace
}  // namespace sluice::conformance
