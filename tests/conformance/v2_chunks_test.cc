// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: messages and chunk lists. Headers are written by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::Segment;

TEST(V2Messages, V2_066_the_worked_example_of_a_null_call) {
  Server lab;
  Bytes call = null_call(0x11223344, 0x0040003f);
  EXPECT_EQ(call.size(), 76u);
  const Bytes answer = lab.answer(call);
  EXPECT_EQ(answer.size(), 60u);
  EXPECT_EQ(word_at(answer, 9), 0x11223344u);
}

TEST(V2Messages, V2_067_a_position_zero_chunk_in_a_msg_is_refused) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  EXPECT_TRUE(
      is_error(lab.answer(Header{.xid = 1, .reads = {{0, memory.segment}}}.with(test_call(1, 0))), 1, 2));
  // Lists of a NOMSG without a position-zero chunk are refused as well (D2-34).
  EXPECT_TRUE(
      is_error(lab.answer(Header{.xid = 2, .type = kNoMsg, .reads = {{40, memory.segment}}}.bytes()), 2, 2));
}

TEST(V2Messages, V2_068_long_call_and_long_reply) {
  Server lab;
  lab.hello();
  Bytes payload = test_call(3, TestService::kList, {9092});
  const auto memory = lab.peer->expose(payload.size(), rdma::kRemoteRead);
  std::copy(payload.begin(), payload.end(), memory.bytes.begin());
  const auto reply = lab.peer->expose(16384, rdma::kRemoteWrite);
  const Bytes answer = lab.answer(Header{
      .xid = 3,
      .type = kNoMsg,
      .reads = {{0, part(memory.segment, 0, 20)}, {0, part(memory.segment, 20, 24)}},
      .reply = {{reply.segment}}}.bytes());
  EXPECT_EQ(answer.size(), 56u);
  EXPECT_EQ(word_at(answer, 3), kNoMsg);
  EXPECT_EQ(word_at(answer, 4), kResponse);
  EXPECT_EQ(word_at(answer, 11), 24u + 4 + 9092);
  EXPECT_EQ(word_at(reply.bytes, 0), 3u);
  EXPECT_EQ(word_at(reply.bytes, 6), 9092u);
  EXPECT_TRUE(has_pattern(reply.bytes.subspan(28, 9092), 1));
}

TEST(V2Messages, V2_070_octets_behind_the_body_are_a_fault) {
  Server lab;
  lab.hello();
  Bytes long_grant = Header{.xid = 4, .type = kNoMsg}.bytes();
  append(long_grant, words({0}));
  EXPECT_TRUE(is_error(lab.answer(long_grant), 4, 2));
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 5, .type = kConnProp}.then({0, 0})), 5, 2));
}

TEST(V2Chunks, V2_071_V2_072_a_chunk_holds_the_item_without_round_up) {
  for (const bool sink : {false, true}) {
    Server lab;
    lab.service->use_sink = sink;
    lab.hello();
    const auto memory = lab.peer->expose(4100, rdma::kRemoteRead);
    fill_pattern(memory.bytes, 7);
    const Header call{.xid = 6, .reads = {{44, part(memory.segment, 0, 4097)}}};
    const Bytes payload =
        sink ? test_call(6, TestService::kSink, {4097}) : test_call(6, TestService::kSink, {4097, 99});
    const Bytes answer = lab.answer(call.with(payload));
    EXPECT_TRUE(is_success(answer, 6));
    EXPECT_EQ(word_at(answer, 15), 4097u);
    EXPECT_TRUE(has_pattern(lab.service->last_data, 7));
    // The round-up makes the item too long. No Read is posted for it if the header shows this.
    const std::size_t executed = lab.service->executed.size();
    const Header padded{.xid = 6, .reads = {{44, part(memory.segment, 0, 4100)}}};
    EXPECT_TRUE(is_error(lab.answer(padded.with(payload)), 6, 2));
    EXPECT_EQ(lab.service->executed.size(), executed);
  }
}

TEST(V2Chunks, V2_071_V2_078_results_are_written_without_round_up_and_lengths_come_back) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(3 * 4096, rdma::kRemoteWrite);
  fill_pattern(memory.bytes, 9);
  const std::vector<Segment> chunk{part(memory.segment, 0, 4096), part(memory.segment, 4096, 4096),
                                   part(memory.segment, 8192, 4096)};
  const Bytes answer =
      lab.answer(Header{.xid = 7, .writes = {chunk}}.with(test_call(7, TestService::kSource, {5001})));
  EXPECT_EQ(word_at(answer, 6), 0u);
  EXPECT_EQ(word_at(answer, 7), 1u);
  EXPECT_EQ(word_at(answer, 8), 3u);
  for (std::uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(word_at(answer, 9 + 4 * i), handle(chunk[i]));
    EXPECT_EQ(word_at(answer, 12 + 4 * i), static_cast<std::uint32_t>(chunk[i].offset));
  }
  EXPECT_EQ(word_at(answer, 10), 4096u);
  EXPECT_EQ(word_at(answer, 14), 905u);
  EXPECT_EQ(word_at(answer, 18), 0u);
  EXPECT_TRUE(has_pattern(memory.bytes.first(5001), 1));
  for (std::size_t i = 5001; i < memory.bytes.size(); ++i) ASSERT_EQ(memory.bytes[i], pattern_byte(9, i));
}

TEST(V2Chunks, V2_076_segments_of_a_chunk_are_joined_in_list_order) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(8192, rdma::kRemoteRead);
  fill_pattern(memory.bytes, 3);
  const Bytes answer = lab.answer(Header{.xid = 8,
                                         .reads = {{44, part(memory.segment, 0, 1)},
                                                   {44, part(memory.segment, 1, 4095)},
                                                   {44, part(memory.segment, 4096, 1)}}}
                                      .with(test_call(8, TestService::kSink, {4097, 5})));
  EXPECT_TRUE(is_success(answer, 8));
  EXPECT_TRUE(has_pattern(lab.service->last_data, 3));
}

TEST(V2Chunks, V2_079_unused_chunks_come_back_empty_and_empty_ones_force_inline) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  // PAIR without a first result: the second result takes the first chunk, the other chunk is unused.
  const Bytes unused = lab.answer(Header{.xid = 9, .writes = {{memory.segment}, {memory.segment}}}.with(
      test_call(9, TestService::kPair, {0, 16})));
  EXPECT_EQ(word_at(unused, 10), 16u);
  EXPECT_EQ(word_at(unused, 16), 0u);
  const Bytes empty =
      lab.answer(Header{.xid = 10, .writes = {{}}}.with(test_call(10, TestService::kSource, {16})));
  EXPECT_EQ(word_at(empty, 7), 1u);
  EXPECT_EQ(word_at(empty, 8), 0u);
  EXPECT_TRUE(has_pattern(std::span(empty).subspan(44 + 24 + 8, 16), 1));
}

TEST(V2Chunks, V2_080_V2_081_writes_are_posted_before_the_send_and_no_segment_is_ours) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  lab.log.clear();
  const Bytes answer = lab.answer(
      Header{.xid = 11, .writes = {{memory.segment}}}.with(test_call(11, TestService::kSource, {16})));
  EXPECT_LT(lab.log.index_of(OpKind::PostWrite), lab.log.index_of(OpKind::PostSend));
  EXPECT_EQ(word_at(answer, 9), handle(memory.segment));
}

TEST(V2Chunks, V2_075_V2_082_positions_that_cannot_be) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteRead);
  const Bytes payload = test_call(12, TestService::kTwoSinks, {8, 7, 8});
  const auto at = [&](std::uint32_t first, std::uint32_t second) {
    return Header{.xid = 12,
                  .reads = {{first, part(memory.segment, 0, 8)}, {second, part(memory.segment, 8, 8)}}}
        .with(payload);
  };
  EXPECT_TRUE(is_success(lab.answer(at(44, 60)), 12));
  for (const Bytes& bad : {at(60, 44), at(44, 48), at(44, 4096), at(46, 60), at(16, 44)})
    EXPECT_TRUE(is_error(lab.answer(bad), 12, 2));
}

TEST(V2Chunks, V2_083_V2_147_lengths_beyond_all_limits) {
  Server lab;
  lab.hello();
  lab.log.clear();
  const Segment huge{static_cast<rdma::Rkey>(1), 0xFFFFFFFF, 0};
  const Bytes payload = test_call(13, TestService::kSink, {0xFFFFFFFF});
  EXPECT_TRUE(
      is_error(lab.answer(Header{.xid = 13, .reads = {{44, huge}, {44, huge}}}.with(payload)), 13, 10));
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 13, .type = kNoMsg, .reads = {{0, huge}}}.bytes()), 13, 10));
  const Segment wraps{static_cast<rdma::Rkey>(1), 2, ~std::uint64_t{0}};
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 13, .reads = {{44, wraps}}}.with(payload)), 13, 2));
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
}

TEST(V2Chunks, V2_083_chunks_to_be_written_may_not_wrap_either) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  const Bytes source = test_call(14, TestService::kSource, {16});
  const Bytes list = test_call(14, TestService::kList, {9000});
  lab.log.clear();
  for (const Segment& wraps : {Segment{memory.segment.handle, 2, ~std::uint64_t{0}},
                               Segment{memory.segment.handle, 0xFFFFFFFF, ~std::uint64_t{0} - 0xFFFFFFFD}}) {
    EXPECT_TRUE(is_error(lab.answer(Header{.xid = 14, .writes = {{wraps}}}.with(source)), 14, 2));
    EXPECT_TRUE(
        is_error(lab.answer(Header{.xid = 14, .writes = {{memory.segment, wraps}}}.with(source)), 14, 2));
    EXPECT_TRUE(is_error(lab.answer(Header{.xid = 14, .reply = {{wraps}}}.with(list)), 14, 2));
    EXPECT_TRUE(
        is_error(lab.answer(Header{.xid = 14, .reply = {{memory.segment, wraps}}}.with(list)), 14, 2));
  }
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 0u);
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Chunks, V2_155_an_ineligible_argument_that_is_reduced_is_refused) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 14, .reads = {{44, memory.segment}}}.with(
                           test_call(14, TestService::kName, {64}))),
                       14, 2));
  // The error applies even where version 1 ignores such a chunk (V1-194).
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 15, .reads = {{48, memory.segment}}}.with(
                           test_call(15, TestService::kName, {4, 0x41424344}, kTestProgram + 1))),
                       15, 2));
  EXPECT_TRUE(lab.service->executed.empty());
}

}  // namespace
}  // namespace sluice::conformance::v2
