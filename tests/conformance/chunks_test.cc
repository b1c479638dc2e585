// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows 2.5, 2.6, 2.7 at the responder: Read chunks, Write chunks, long messages and the Reply
// chunk.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/conformance/raw_call.h"
#include "tests/golden/v1_vectors.h"

namespace sluice::conformance {
namespace {

using Segments = std::vector<rpcrdma::Segment>;

/// Builds a SINK call of `bytes` bytes whose data is in Read segments of the given sizes, with an inline
/// trailer word.
struct SinkCall {
  Bytes message;
  std::uint32_t xid = 0x2000;
};
SinkCall sink_call(ServerLab& lab, std::uint32_t bytes, const std::vector<std::uint32_t>& cuts,
                   std::uint32_t seed, bool trailer = true) {
  SinkCall result;
  RawCall call{.xid = result.xid};
  const auto memory = lab.peer->expose(std::accumulate(cuts.begin(), cuts.end(), 0u) + 1, rdma::kRemoteRead);
  fill_pattern(memory.bytes, seed);
  std::uint32_t at = 0;
  for (const std::uint32_t cut : cuts) {
    call.reads.push_back({44, part(memory.segment, at, cut)});
    at += cut;
  }
  result.message = call.with(trailer ? test_call(call.xid, TestService::kSink, {bytes, 0xABCD})
                                     : test_call(call.xid, TestService::kSink, {bytes}));
  return result;
}

TEST(ReadChunks, V1_072_V1_076_V1_079_V1_085_V1_087_F_11_odd_sizes_then_inline_data) {
  ServerLab lab;
  for (const std::uint32_t bytes : {5001u, 5002u, 5003u, 5004u}) {
    const SinkCall call = sink_call(lab, bytes, {4096, bytes - 4096}, bytes);
    const Bytes reply = lab.call(call.message);
    ASSERT_EQ(accept_stat(reply), 0u);
    EXPECT_EQ(word_at(reply, 13), bytes);
    EXPECT_EQ(word_at(reply, 15), 0xABCDu);  // the trailer is aligned
    ASSERT_EQ(lab.service->last_data.size(), bytes);
    EXPECT_TRUE(has_pattern(lab.service->last_data, bytes));
  }
}

TEST(ReadChunks, V1_079_V1_073_pieces_of_any_length_are_joined_in_list_order) {
  ServerLab lab;
  const SinkCall call = sink_call(lab, 116, {7, 9, 100}, 3);
  EXPECT_EQ(accept_stat(lab.call(call.message)), 0u);
  EXPECT_TRUE(has_pattern(lab.service->last_data, 3));
}

TEST(ReadChunks, V1_080_F_03_thirty_two_segments_at_one_position) {
  LabOptions options;
  options.raw_receive_bytes = 4096;
  ServerLab lab(options);
  const SinkCall call = sink_call(lab, 32 * 1024, std::vector<std::uint32_t>(32, 1024), 4);
  EXPECT_EQ(accept_stat(lab.call(call.message)), 0u);
  EXPECT_TRUE(has_pattern(lab.service->last_data, 4));
}

TEST(ReadChunks, V1_086_padding_of_old_requesters_is_accepted) {
  ServerLab lab;
  // The round-up is a separate segment of three bytes, or part of a longer last segment.
  for (const auto& cuts : {std::vector<std::uint32_t>{4096, 905, 3}, std::vector<std::uint32_t>{4096, 908}}) {
    const SinkCall call = sink_call(lab, 5001, cuts, 5);
    const Bytes reply = lab.call(call.message);
    ASSERT_EQ(accept_stat(reply), 0u);
    EXPECT_EQ(word_at(reply, 15), 0xABCDu);
    ASSERT_EQ(lab.service->last_data.size(), 5001u);
    EXPECT_TRUE(has_pattern(lab.service->last_data, 5));
  }
}

TEST(ReadChunks, V1_073_count_and_chunk_that_disagree_are_garbage) {
  ServerLab lab;
  for (const std::uint32_t chunk : {4997u, 5005u, 6000u}) {
    const SinkCall call = sink_call(lab, 5001, {chunk}, 6);
    EXPECT_EQ(accept_stat(lab.call(call.message)), 4u) << chunk;
    lab.service->use_sink = true;
    const SinkCall placed = sink_call(lab, 5001, {chunk}, 6, false);
    EXPECT_EQ(accept_stat(lab.call(placed.message)), 4u) << chunk;
    lab.service->use_sink = false;
  }
}

TEST(ReadChunks, V1_080_data_is_pulled_straight_into_the_sink_of_the_service) {
  ServerLab lab;
  lab.service->use_sink = true;
  const SinkCall call = sink_call(lab, 5001, {1000, 3000, 1001}, 7, false);
  const Bytes reply = lab.call(call.message);
  ASSERT_EQ(accept_stat(reply), 0u);
  EXPECT_EQ(lab.service->places, 1u);
  ASSERT_EQ(lab.service->last_data.size(), 5001u);
  EXPECT_TRUE(has_pattern(lab.service->last_data, 7));
  EXPECT_EQ(lab.service->releases, 1u);
}

TEST(ReadChunks, V1_082_positions_in_any_order) {
  ServerLab lab;
  const auto memory = lab.peer->expose(300, rdma::kRemoteRead);
  fill_pattern(memory.bytes, 8);
  // TWO_SINKS: 40 bytes header, count at 40, data at 44 (100 bytes), word at 144, count at 148, data at 152.
  RawCall call{.reads = {{152, part(memory.segment, 100, 60)},
                         {44, part(memory.segment, 0, 100)},
                         {152, part(memory.segment, 160, 41)}}};
  const Bytes reply = lab.call(call.with(test_call(call.xid, TestService::kTwoSinks, {100, 0x5555, 101})));
  ASSERT_EQ(accept_stat(reply), 0u);
  EXPECT_EQ(word_at(reply, 13), 100u);
  EXPECT_EQ(word_at(reply, 15), 0x5555u);
  EXPECT_EQ(word_at(reply, 16), 101u);
  std::uint32_t sum = 0;
  for (std::size_t i = 100; i < 201; ++i) sum += static_cast<std::uint32_t>(memory.bytes[i]);
  EXPECT_EQ(word_at(reply, 17), sum);
}

TEST(ReadChunks, V1_083_reads_finish_before_the_reply) {
  ServerLab lab;
  lab.log.clear();
  const SinkCall call = sink_call(lab, 5001, {4096, 905}, 9);
  lab.call(call.message);
  EXPECT_GT(lab.log.index_of(OpKind::PostSend), lab.log.index_of(OpKind::ReadDone));
  EXPECT_GE(lab.log.count(OpKind::PostRead), 1u);
}

TEST(ReadChunks, V1_089_A_11_zero_length_segments_are_skipped) {
  ServerLab lab;
  const SinkCall call = sink_call(lab, 500, {0, 200, 0, 300}, 10);
  EXPECT_EQ(accept_stat(lab.call(call.message)), 0u);
  EXPECT_TRUE(has_pattern(lab.service->last_data, 10));
}

TEST(ReadChunks, V1_089_overlap_and_overflow_are_refused_before_any_read) {
  ServerLab lab;
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  lab.log.clear();
  const rpcrdma::Segment huge{memory.segment.handle, 0xFFFFFFFF, memory.segment.offset};
  RawCall overflow{.reads = {{44, huge}, {44, huge}, {44, huge}}};
  EXPECT_TRUE(is_err_chunk(lab.call(overflow.with(test_call(overflow.xid, 1, {64}))), overflow.xid));
  RawCall overlap{.reads = {{44, {memory.segment.handle, 64, memory.segment.offset}},
                            {48, {memory.segment.handle, 4, memory.segment.offset}}}};
  EXPECT_TRUE(is_err_chunk(lab.call(overlap.with(test_call(overlap.xid, 1, {64, 0, 0}))), overlap.xid));
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
}

TEST(ReadChunks, V1_188_V1_191_F_09_items_that_are_not_eligible_are_refused) {
  ServerLab lab;
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  RawCall call{.reads = {{44, memory.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(test_call(call.xid, TestService::kName, {64}))), call.xid));
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_EQ(lab.engine->counters().not_eligible, 1u);
}

TEST(ReadChunks, V1_194_a_binding_that_ignores_uses_no_chunk_of_other_procedures) {
  ServerLab lab;
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  lab.log.clear();
  RawCall call{.reads = {{48, memory.segment}}};
  const Bytes reply =
      lab.call(call.with(test_call(call.xid, TestService::kName, {4, 0x41424344}, kTestProgram + 1)));
  EXPECT_EQ(accept_stat(reply), 0u);
  EXPECT_EQ(word_at(reply, 13), 4u);
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
}

TEST(ReadChunks, V1_149_offsets_are_opaque_start_values) {
  // The responder only adds displacements, so a segment in the middle of a window works.
  ServerLab lab;
  const auto memory = lab.peer->expose(8192, rdma::kRemoteRead);
  fill_pattern(memory.bytes, 11);
  lab.log.clear();
  RawCall call{.reads = {{44, part(memory.segment, 4097, 100)}}};
  EXPECT_EQ(accept_stat(lab.call(call.with(test_call(call.xid, TestService::kSink, {100})))), 0u);
  EXPECT_EQ(lab.log.all(OpKind::PostRead).at(0).remote_address, memory.segment.offset + 4097);
}

TEST(ReadChunks, sixteen_calls_with_read_chunks_at_once_are_served) {
  ServerLab lab;
  for (std::uint32_t i = 0; i < 16; ++i) {
    const SinkCall call = sink_call(lab, 2000, {1000, 1000}, i);
    Bytes message = call.message;
    xdr::store_u32(message.data(), 0x3000 + i);
    xdr::store_u32(message.data() + 28 + 2 * 24, 0x3000 + i);
    lab.peer->send(message);
  }
  lab.settle(2000);
  EXPECT_EQ(lab.peer->inbox.size(), 16u);
  for (const auto& reply : lab.peer->inbox) EXPECT_EQ(accept_stat(reply.bytes), 0u);
}

// --- Long calls

struct LongCall {
  RawCall call;
  Exposed memory;
};
LongCall long_call(ServerLab& lab, const Bytes& rpc, const std::vector<std::uint32_t>& cuts,
                   std::uint32_t xid) {
  LongCall result{{.xid = xid, .proc = 1}, lab.peer->expose(rpc.size(), rdma::kRemoteRead)};
  std::copy(rpc.begin(), rpc.end(), result.memory.bytes.begin());
  std::uint32_t at = 0;
  for (const std::uint32_t cut : cuts) {
    result.call.reads.push_back({0, part(result.memory.segment, at, cut)});
    at += cut;
  }
  return result;
}

TEST(LongCalls, V1_112_V1_113_V1_115_V1_007_F_04_position_zero_chunks_of_1_2_8_and_40_segments) {
  LabOptions options;
  options.raw_receive_bytes = 4096;
  ServerLab lab(options);
  for (const std::uint32_t segments : {1u, 2u, 8u, 40u}) {
    const std::uint32_t name_bytes = segments * 100 - 44;
    Bytes rpc = test_call(0x4000, TestService::kName, {name_bytes});
    rpc.resize(44 + name_bytes);
    fill_pattern(std::span(rpc).subspan(44), segments);
    rpc.resize(segments * 100);
    const LongCall call = long_call(lab, rpc, std::vector<std::uint32_t>(segments, 100), 0x4000);
    const Bytes reply = lab.call(call.call.header());
    ASSERT_EQ(accept_stat(reply), 0u) << segments;
    EXPECT_TRUE(has_pattern(lab.service->last_data, segments));
  }
}

TEST(LongCalls, V1_088_what_is_in_round_up_is_ignored_and_never_seen) {
  constexpr std::uint32_t kBytes = 5001;
  ServerLab lab;
  const auto memory = lab.peer->expose(kBytes + 3, rdma::kRemoteRead);
  std::fill(memory.bytes.begin(), memory.bytes.begin() + kBytes, std::byte{0x11});
  std::fill(memory.bytes.begin() + kBytes, memory.bytes.end(), std::byte{0xEE});
  std::vector<Bytes> calls;
  // The round-up is in the chunk of the item, in a separate segment, and in a position-zero chunk.
  calls.push_back(RawCall{.xid = 1, .reads = {{44, memory.segment}}}.with(
      test_call(1, TestService::kSink, {kBytes, 0xABCD})));
  calls.push_back(RawCall{
      .xid = 2, .reads = {{44, part(memory.segment, 0, kBytes)}, {44, part(memory.segment, kBytes, 3)}}}
                      .with(test_call(2, TestService::kSink, {kBytes, 0xABCD})));
  Bytes whole = test_call(3, TestService::kSink, {kBytes});
  append(whole, memory.bytes);
  append(whole, words({0xABCD}));
  calls.push_back(long_call(lab, whole, {static_cast<std::uint32_t>(whole.size())}, 3).call.header());
  for (const Bytes& call : calls) {
    lab.service->last_data.clear();
    const Bytes reply = lab.call(call);
    ASSERT_EQ(accept_stat(reply), 0u);
    EXPECT_EQ(word_at(reply, 13), kBytes);
    EXPECT_EQ(word_at(reply, 14), kBytes * 0x11);
    EXPECT_EQ(word_at(reply, 15), 0xABCDu);
    EXPECT_EQ(lab.service->last_data, Bytes(kBytes, std::byte{0x11}));
  }
  // Inline.
  Bytes name = test_call(4, TestService::kName, {5, 0x11111111, 0x11EEEEEE});
  EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 4}.with(name))), 0u);
  EXPECT_EQ(lab.service->last_data, Bytes(5, std::byte{0x11}));
}

TEST(LongCalls, V1_114_a_short_call_may_be_long) {
  ServerLab lab;
  const LongCall call = long_call(lab, test_call(0x4001, 0), {40}, 0x4001);
  EXPECT_EQ(lab.call(call.call.header()), ClientLab::success(0x4001, 64));
}

TEST(LongCalls, V1_116_V1_128_a_long_call_with_a_further_chunk_and_a_long_reply) {
  ServerLab lab;
  // SINK with its data in a chunk, everything else in the position-zero chunk, and the reply in the Reply
  // chunk.
  Bytes rpc = test_call(0x4002, TestService::kSink, {4096, 0x77});
  LongCall call = long_call(lab, rpc, {20, 28}, 0x4002);
  const auto data = lab.peer->expose(4096, rdma::kRemoteRead);
  fill_pattern(data.bytes, 12);
  call.call.reads.push_back({44, data.segment});
  const auto reply_memory = lab.peer->expose(512, rdma::kRemoteWrite);
  call.call.reply = Segments{reply_memory.segment};
  const Bytes answer = lab.call(call.call.header());
  ASSERT_EQ(word_at(answer, 3), 1u);  // RDMA_NOMSG
  EXPECT_TRUE(has_pattern(lab.service->last_data, 12));
  EXPECT_EQ(word_at(reply_memory.bytes, 0), 0x4002u);
  EXPECT_EQ(word_at(reply_memory.bytes, 8), 0x77u);
}

TEST(LongCalls, V1_116_V1_194_chunks_of_items_that_are_not_eligible) {
  ServerLab lab;
  const auto data = lab.peer->expose(64, rdma::kRemoteRead);
  LongCall strict = long_call(lab, test_call(0x4003, TestService::kName, {4, 0x41424344}), {48}, 0x4003);
  strict.call.reads.push_back({44, data.segment});
  EXPECT_TRUE(is_err_chunk(lab.call(strict.call.header()), 0x4003));
  // UnusableChunks::Ignore serves the message without the chunk (F-08: it is a long call).
  LongCall lenient =
      long_call(lab, test_call(0x4004, TestService::kName, {4, 0x41424344}, kTestProgram + 1), {48}, 0x4004);
  lenient.call.reads.push_back({44, data.segment});
  const Bytes reply = lab.call(lenient.call.header());
  EXPECT_EQ(accept_stat(reply), 0u);
  EXPECT_EQ(word_at(reply, 13), 4u);
  EXPECT_EQ(word_at(lab.lenient->last_data, 0), 0x41424344u);
}

TEST(LongCalls, V1_034_the_xid_inside_has_to_agree) {
  ServerLab lab;
  const LongCall call = long_call(lab, test_call(0x9999, 0), {40}, 0x4005);
  EXPECT_TRUE(is_err_chunk(lab.call(call.call.header()), 0x4005));
}

TEST(LongCalls, longer_than_the_limit_is_refused_and_a_shortage_of_buffers_is_a_queue) {
  LabOptions options;
  options.engine.call_buffers = 1;
  options.engine.call_buffer_bytes = 8192;
  ServerLab lab(options);
  const auto memory = lab.peer->expose(16384, rdma::kRemoteRead);
  RawCall too_long{.proc = 1, .reads = {{0, memory.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(too_long.header()), too_long.xid));
  EXPECT_EQ(lab.engine->counters().call_too_long, 1u);
  lab.peer->inbox.clear();
  for (std::uint32_t i = 0; i < 8; ++i)
    lab.peer->send(
        long_call(lab, test_call(0x5000 + i, TestService::kLater), {40}, 0x5000 + i).call.header());
  lab.settle();
  EXPECT_EQ(lab.service->held(), 1u);  // one buffer, one call; the others wait
  EXPECT_EQ(lab.engine->counters().waits_call_memory, 7u);
  for (int i = 0; i < 8; ++i) {
    lab.service->complete_later();
    lab.settle();
  }
  EXPECT_EQ(lab.peer->inbox.size(), 8u);
}

// --- Write chunks

TEST(WriteChunks, V1_093_V1_094_V1_095_V1_101_V1_102_V1_106_V1_127_F_05_F_06_F_30_E3_becomes_E3a) {
  ServerLab lab;
  const auto first = lab.peer->expose(2048, rdma::kRemoteWrite);
  const auto second = lab.peer->expose(4096, rdma::kRemoteWrite);
  const auto reply_memory = lab.peer->expose(8192, rdma::kRemoteWrite);
  for (auto span : {first.bytes, second.bytes, reply_memory.bytes})
    std::fill(span.begin(), span.end(), std::byte{0xA5});
  const RawCall call{.xid = 0x1A2B3C4F,
                     .writes = {{part(first.segment, 0, 1024), part(first.segment, 1024, 1024)},
                                {part(second.segment, 0, 2048), part(second.segment, 2048, 2048)}},
                     .reply = Segments{reply_memory.segment}};
  lab.log.clear();
  const Bytes answer = lab.call(call.with(test_call(call.xid, TestService::kPair, {1501, 0})));
  // Equal to E3a except for the handles, which the driver chooses, and the grant.
  Bytes expected = RawCall{.xid = call.xid,
                           .credits = 64,
                           .proc = 1,
                           .writes = {{part(first.segment, 0, 1024), part(first.segment, 1024, 477)},
                                      {part(second.segment, 0, 0), part(second.segment, 2048, 0)}},
                           .reply = Segments{part(reply_memory.segment, 0, 36)}}
                       .header();
  EXPECT_EQ(answer, expected);
  EXPECT_TRUE(std::equal(first.bytes.begin(), first.bytes.begin() + 1501, lab.service->source().begin()));
  for (std::size_t i = 1501; i < 2048; ++i) ASSERT_EQ(first.bytes[i], std::byte{0xA5}) << i;
  EXPECT_EQ(word_at(reply_memory.bytes, 6), 0u);     // result 1: status
  EXPECT_EQ(word_at(reply_memory.bytes, 7), 1501u);  // its count; no data follows
  EXPECT_EQ(word_at(reply_memory.bytes, 8), 5u);     // result 2: no data
  EXPECT_EQ(reply_memory.bytes[36], std::byte{0xA5});
  EXPECT_GT(lab.log.index_of(OpKind::PostSend),
            lab.log.index_of(OpKind::PostWrite, lab.log.count(OpKind::PostWrite) - 1));
}

TEST(WriteChunks, V1_098_F_26_results_pair_with_chunks_in_order) {
  ServerLab lab;
  const auto first = lab.peer->expose(100, rdma::kRemoteWrite);
  const auto second = lab.peer->expose(300, rdma::kRemoteWrite);
  const RawCall call{.writes = {{first.segment}, {second.segment}}};
  const Bytes answer = lab.call(call.with(test_call(call.xid, TestService::kPair, {77, 299})));
  ASSERT_FALSE(answer.empty());
  const auto source = lab.service->source();
  EXPECT_TRUE(std::equal(first.bytes.begin(), first.bytes.begin() + 77, source.begin()));
  EXPECT_TRUE(
      std::equal(second.bytes.begin(), second.bytes.begin() + 299, source.begin() + source.size() / 2));
}

TEST(WriteChunks, V1_098_A_12_a_chunk_that_no_result_used_goes_to_the_next_result) {
  ServerLab lab;
  const auto first = lab.peer->expose(300, rdma::kRemoteWrite);
  const RawCall call{.writes = {{first.segment}}};
  lab.call(call.with(test_call(call.xid, TestService::kPair, {0, 299})));
  const auto source = lab.service->source();
  EXPECT_TRUE(std::equal(first.bytes.begin(), first.bytes.begin() + 299, source.begin() + source.size() / 2));
}

TEST(WriteChunks, V1_099_results_beyond_the_list_stay_inline_or_go_to_the_reply_chunk) {
  ServerLab lab;
  const auto chunk = lab.peer->expose(300, rdma::kRemoteWrite);
  const RawCall one{.writes = {{chunk.segment}}};
  const Bytes answer = lab.call(one.with(test_call(one.xid, TestService::kPair, {50, 101})));
  const std::size_t payload = one.header().size();
  // status, count, (data moved), status, count, data with pad
  ASSERT_EQ(answer.size(), payload + 24 + 16 + 104);
  EXPECT_EQ(word_at(answer, (payload + 24) / 4 + 3), 101u);
  const auto source = lab.service->source();
  EXPECT_TRUE(std::equal(answer.end() - 104, answer.end() - 3, source.begin() + source.size() / 2));

  const auto reply_memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const RawCall two{.writes = {{chunk.segment}}, .reply = Segments{reply_memory.segment}};
  lab.call(two.with(test_call(two.xid, TestService::kPair, {50, 2000})));
  EXPECT_TRUE(std::equal(reply_memory.bytes.begin() + 40, reply_memory.bytes.begin() + 2040,
                         source.begin() + source.size() / 2));
  EXPECT_EQ(accept_stat(lab.call(RawCall{}.with(test_call(RawCall{}.xid, TestService::kSource, {500})))), 0u);
}

TEST(WriteChunks, V1_093_a_small_result_goes_into_its_chunk_too) {
  ServerLab lab;
  const auto chunk = lab.peer->expose(64, rdma::kRemoteWrite);
  const RawCall call{.writes = {{chunk.segment}}};
  const Bytes answer = lab.call(call.with(test_call(call.xid, TestService::kSource, {8})));
  EXPECT_EQ(answer.size(), call.header().size() + 24 + 12);
  EXPECT_TRUE(std::equal(chunk.bytes.begin(), chunk.bytes.begin() + 8, lab.service->source().begin()));
}

TEST(WriteChunks, V1_097_V1_096_V1_196_F_07_unused_chunks_come_back_with_zero_lengths) {
  ServerLab lab;
  const auto chunk = lab.peer->expose(600, rdma::kRemoteWrite);
  const RawCall call{
      .credits = 9,
      .writes = {{part(chunk.segment, 0, 200), part(chunk.segment, 200, 400)}, {part(chunk.segment, 0, 8)}}};
  const Bytes answer = lab.call(call.with(test_call(call.xid, TestService::kPair, {0, 0})));
  const Bytes expected = RawCall{
      .xid = call.xid,
      .credits = 64,
      .writes = {{part(chunk.segment, 0, 0), part(chunk.segment, 200, 0)},
                 {part(chunk.segment, 0,
                       0)}}}.header();
  ASSERT_GT(answer.size(), expected.size());
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), answer.begin()));
  // A call that fails as a whole returns the chunks in the same way.
  const Bytes failed = lab.call(call.with(test_call(call.xid, TestService::kPair)));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), failed.begin()));
}

TEST(WriteChunks, V1_107_a_result_longer_than_its_chunk_is_ERR_CHUNK_and_nothing_is_written) {
  ServerLab lab;
  const auto chunk = lab.peer->expose(1001, rdma::kRemoteWrite);
  std::fill(chunk.bytes.begin(), chunk.bytes.end(), std::byte{0xA5});
  const RawCall call{.writes = {{part(chunk.segment, 0, 1000)}}};
  lab.log.clear();
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(test_call(call.xid, TestService::kSource, {1001}))), call.xid));
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
  EXPECT_EQ(chunk.bytes[0], std::byte{0xA5});
  EXPECT_EQ(lab.service->releases, 1u);
  EXPECT_TRUE(lab.alive());
}

TEST(WriteChunks, V1_111_A_11_a_chunk_without_segments_asks_for_its_result_inline) {
  ServerLab lab;
  Bytes message = bytes_of(golden::kE11);
  xdr::store_u32(message.data() + message.size() - 20, TestService::kSource);
  append(message, words({16}));
  const Bytes answer = lab.call(message);
  ASSERT_EQ(answer.size(), 36u + 24 + 12 + 16);
  EXPECT_EQ(word_at(answer, 5), 1u);
  EXPECT_EQ(word_at(answer, 6), 0u);
  EXPECT_EQ(word_at(answer, 7), 0u);
  EXPECT_TRUE(std::equal(answer.end() - 20, answer.end() - 4, lab.service->source().begin()));
}

TEST(WriteChunks, V1_189_A_10_a_write_list_for_a_procedure_without_eligible_results) {
  ServerLab lab;
  const auto chunk = lab.peer->expose(64, rdma::kRemoteWrite);
  const RawCall strict{.writes = {{chunk.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(strict.with(test_call(strict.xid, 0))), strict.xid));
  const Bytes lenient = lab.call(strict.with(test_call(strict.xid, 0, {}, kTestProgram + 1)));
  EXPECT_EQ(lenient.size(), strict.header().size() + 24);
  EXPECT_EQ(word_at(lenient, 8), 0u);  // the chunk's length: unused
}

TEST(WriteChunks, V1_123_V1_120_V1_124_V1_126_V1_129_the_reply_chunk_takes_executed_replies) {
  ServerLab lab;
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const RawCall call{.reply = Segments{part(memory.segment, 0, 1024), part(memory.segment, 1024, 1024),
                                       part(memory.segment, 2048, 1024)}};
  const Bytes long_reply = lab.call(call.with(test_call(call.xid, TestService::kList, {2472})));
  const Bytes expected =
      RawCall{.xid = call.xid,
              .credits = 64,
              .proc = 1,
              .reply = Segments{part(memory.segment, 0, 1024), part(memory.segment, 1024, 1024),
                                part(memory.segment, 2048, 452)}}
          .header();
  EXPECT_EQ(long_reply, expected);
  EXPECT_TRUE(
      std::equal(memory.bytes.begin() + 28, memory.bytes.begin() + 2500, lab.service->source().begin()));
  // A short reply uses the chunk too, by default.
  const Bytes short_reply = lab.call(call.with(test_call(call.xid, 0)));
  EXPECT_EQ(word_at(short_reply, 3), 1u);
  EXPECT_EQ(word_at(short_reply, 9), 24u);
  // A call that fails is answered inline, with the chunk returned unused.
  const Bytes failed = lab.call(call.with(test_call(call.xid, 99)));
  EXPECT_EQ(word_at(failed, 3), 0u);
  EXPECT_EQ(word_at(failed, 9), 0u);
}

TEST(WriteChunks, V1_120_X_01_the_reply_chunk_may_be_kept_for_replies_that_need_it) {
  LabOptions options;
  options.connection.reply_chunks = rpcrdma::ReplyChunkPolicy::IfNeeded;
  ServerLab lab(options);
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const RawCall call{.reply = Segments{memory.segment}};
  EXPECT_EQ(word_at(lab.call(call.with(test_call(call.xid, 0))), 3), 0u);
  EXPECT_EQ(word_at(lab.call(call.with(test_call(call.xid, TestService::kList, {2000}))), 3), 1u);
}

TEST(WriteChunks, V1_037_V1_038_V1_169_F_15_a_reply_without_room_is_ERR_CHUNK) {
  ServerLab lab;
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  const RawCall small{.reply = Segments{memory.segment}};
  lab.log.clear();
  EXPECT_TRUE(
      is_err_chunk(lab.call(small.with(test_call(small.xid, TestService::kList, {2000}))), small.xid));
  const RawCall none;
  EXPECT_TRUE(is_err_chunk(lab.call(none.with(test_call(none.xid, TestService::kList, {3000}))), none.xid));
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
  EXPECT_EQ(lab.engine->counters().reply_too_large, 2u);
  EXPECT_TRUE(lab.alive());
}

TEST(WriteChunks, V1_122_no_RDMA_NOMSG_reply_without_a_reply_chunk) {
  ServerLab lab;
  for (const std::uint32_t bytes : {0u, 100u, 900u, 1000u, 2000u}) {
    const RawCall call;
    EXPECT_NE(word_at(lab.call(call.with(test_call(call.xid, TestService::kList, {bytes}))), 3), 1u);
  }
}

TEST(WriteChunks, V1_009_V1_064_F_12_the_whole_send_is_measured_against_the_threshold) {
  ServerLab lab;
  // 28 header, 24 RPC header, 4 count: 968 bytes of data make exactly 1024.
  const RawCall call;
  EXPECT_EQ(lab.call(call.with(test_call(call.xid, TestService::kList, {968}))).size(), 1024u);
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(test_call(call.xid, TestService::kList, {969}))), call.xid));
  // A returned Write list counts as well: 40 bytes of chunk leave 928.
  const auto chunk = lab.peer->expose(64, rdma::kRemoteWrite);
  const RawCall with_list{.writes = {{part(chunk.segment, 0, 16), part(chunk.segment, 16, 16)}}};
  EXPECT_EQ(lab.call(with_list.with(test_call(call.xid, TestService::kList, {928}, kTestProgram + 1))).size(),
            1024u);
  EXPECT_TRUE(is_err_chunk(
      lab.call(with_list.with(test_call(call.xid, TestService::kList, {929}, kTestProgram + 1))), call.xid));
}

TEST(WriteChunks, more_segments_than_the_limit_are_refused) {
  LabOptions options;
  options.connection.receive_inline_bytes = 16384;
  options.engine.capacity.receive_bytes = 16384;
  ServerLab lab(options);
  const rpcrdma::Segment segment{rdma::Rkey{1}, 4, 0};
  RawCall reads{.reads = std::vector<RawRead>(rpcrdma::kMaxReadSegments + 1, RawRead{44, segment})};
  EXPECT_TRUE(is_err_chunk(lab.call(reads.with(test_call(reads.xid, 1, {4}))), reads.xid));
  RawCall chunks{.writes = std::vector<Segments>(rpcrdma::kMaxWriteChunks + 1, Segments{segment})};
  EXPECT_TRUE(is_err_chunk(lab.call(chunks.with(test_call(chunks.xid, 2, {4}))), chunks.xid));
  RawCall segments{.writes = {Segments(rpcrdma::kMaxWriteSegments + 1, segment)}};
  EXPECT_TRUE(is_err_chunk(lab.call(segments.with(test_call(segments.xid, 2, {4}))), segments.xid));
  EXPECT_EQ(lab.engine->counters().too_many_segments, 3u);
}

TEST(WriteChunks, V1_148_the_server_exposes_no_memory) {
  ServerLab lab;
  lab.log.clear();
  const SinkCall call = sink_call(lab, 5001, {5001}, 1);
  lab.call(call.message);
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const RawCall read{.writes = {{memory.segment}}};
  lab.call(read.with(test_call(read.xid, TestService::kSource, {4000})));
  EXPECT_EQ(lab.log.count(OpKind::Bind), 0u);
}

}  // namespace
}  // namespace sluice::conformance
