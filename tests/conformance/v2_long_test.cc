// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: messages that take more than one Send, the form of replies, and remote
// invalidation.
#include <gtest/gtest.h>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

// --- G: continuation

std::vector<Bytes> split(const Header& last, std::span<const std::byte> payload, std::size_t bytes) {
  std::vector<Bytes> parts;
  while (payload.size() > bytes) {
    parts.push_back(Header{.xid = last.xid, .flags = last.flags | kMore}.with(payload.first(bytes)));
    payload = payload.subspan(bytes);
  }
  parts.push_back(last.with(payload));
  return parts;
}

TEST(V2Continuation, V2_084_a_call_in_any_parts_is_executed_once) {
  for (const std::size_t bytes : {4u, 8u, 24u, 1000u, 4000u}) {
    Server lab;
    lab.hello();
    Bytes payload = test_call(0x11223345, TestService::kName, {2560 - 44});
    payload.resize(2560);
    fill_pattern(std::span(payload).subspan(44), 5);
    std::vector<Bytes> answers;
    lab.peer->inbox.clear();
    for (const Bytes& one : split({.xid = 0x11223345}, payload, bytes)) {
      lab.peer->send(one);
      lab.settle();
    }
    answers = lab.answers();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_TRUE(is_success(answers[0], 0x11223345));
    EXPECT_EQ(lab.service->executed.size(), 1u);
    EXPECT_TRUE(has_pattern(lab.service->last_data, 5));
  }
}

TEST(V2Continuation, V2_075_V2_088_V2_089_reduction_and_continuation_together) {
  Server lab;
  lab.hello();
  const std::uint32_t big = 300000;
  const auto memory = lab.peer->expose(big, rdma::kRemoteRead);
  fill_pattern(memory.bytes, 6);
  // The call has two items; the first is inline and continued, the second is read by RDMA Read.
  Bytes payload = test_call(20, TestService::kTwoSinks, {9000});
  payload.resize(44 + 9000);
  fill_pattern(std::span(payload).subspan(44), 4);
  append(payload, words({77, big}));
  const Header last{.xid = 20, .reads = {{static_cast<std::uint32_t>(payload.size()), memory.segment}}};
  lab.peer->inbox.clear();
  for (const Bytes& one : split(last, payload, 4000)) lab.peer->send(one);
  lab.settle();
  ASSERT_EQ(lab.answers().size(), 1u);
  const Bytes answer = lab.answers()[0];
  EXPECT_TRUE(is_success(answer, 20));
  EXPECT_EQ(word_at(answer, 15), 9000u);
  EXPECT_EQ(word_at(answer, 17), 77u);
  EXPECT_EQ(word_at(answer, 18), big);
}

TEST(V2Continuation, V2_086_V2_112_parts_of_two_messages_break_both) {
  Server lab;
  lab.hello();
  const Bytes payload = test_call(5, 0);
  const auto first = [&](std::uint32_t xid, std::uint32_t type = kMsg) {
    return Header{.xid = xid, .type = type, .flags = kMore}.with(std::span(payload).first(20));
  };
  lab.peer->send(first(5));
  auto answers = lab.ask(Header{.xid = 6}.with(std::span(payload).subspan(20)));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(is_error(answers[0], 5, 4));
  EXPECT_TRUE(is_error(answers[1], 6, 4));
  // The rest of both messages is dropped, up to the last part.
  EXPECT_TRUE(lab.ask(Header{.xid = 5}.with(std::span(payload).subspan(20))).empty());
  EXPECT_TRUE(lab.alive2());

  lab.peer->send(first(15));
  answers = lab.ask(Header{.xid = 15, .type = kConnProp}.then({0}));
  ASSERT_EQ(answers.size(), 1u);  // one error: both have the same XID
  EXPECT_TRUE(is_error(answers[0], 15, 4));
  EXPECT_TRUE(lab.service->executed.size() == 1);
  EXPECT_TRUE(lab.ask(Header{.xid = 15}.with(std::span(payload).subspan(20))).empty());
  EXPECT_TRUE(lab.alive2());
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
}

TEST(V2Continuation, V2_091_grants_and_errors_pass_between_parts) {
  Server lab;
  lab.hello();
  const Bytes payload = test_call(5, 0);
  lab.peer->send(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(20)));
  lab.peer->send(grant(3));
  lab.peer->send(error(99, 10));
  EXPECT_TRUE(is_success(lab.answer(Header{.xid = 5}.with(std::span(payload).subspan(20))), 5));
}

TEST(V2Continuation, V2_087_more_with_types_that_cannot_go_on) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 1, .type = kNoMsg, .flags = kMore}.bytes()), 1, 4));
  EXPECT_TRUE(is_error(
      lab.answer(Header{.xid = 1, .type = kNoMsg, .flags = kMore, .reads = {{0, memory.segment}}}.bytes()), 1,
      4));
  EXPECT_TRUE(lab.ask(Header{.xid = 1, .type = kError, .flags = 3}.then({2})).empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Continuation, V2_088_more_with_chunks) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  lab.log.clear();
  const Bytes payload = test_call(2, TestService::kSink, {64});
  EXPECT_TRUE(is_error(
      lab.answer(Header{.xid = 2, .flags = kMore, .reads = {{44, memory.segment}}}.with(payload)), 2, 4));
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 0u);
  // An error in the middle of a message is answered as well; the rest is dropped.
  lab.peer->send(Header{.xid = 3, .flags = kMore}.with(payload));
  EXPECT_TRUE(is_error(
      lab.answer(Header{.xid = 3, .flags = kMore, .reads = {{44, memory.segment}}}.with(payload)), 3, 4));
  EXPECT_TRUE(lab.ask(Header{.xid = 3, .flags = kMore}.with(payload)).empty());
  EXPECT_TRUE(lab.ask(Header{.xid = 3}.with(payload)).empty());
  EXPECT_TRUE(lab.alive2());
  EXPECT_EQ(lab.service->executed.size(), 1u);
}

TEST(V2Continuation, V2_023_a_part_with_an_unknown_flag_leaves_no_hole) {
  Server lab;
  lab.hello();
  const Bytes payload = test_call(5, 0);
  lab.peer->send(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(16)));
  EXPECT_TRUE(is_error(
      lab.answer(Header{.xid = 5, .flags = kMore | 8}.with(std::span(payload).subspan(16, 4))), 5, 4));
  EXPECT_TRUE(lab.ask(Header{.xid = 5}.with(std::span(payload).subspan(20))).empty());
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
  EXPECT_TRUE(lab.alive2());
  // A message of an unknown type interrupts a continued one: one error for each.
  lab.peer->send(Header{.xid = 6, .flags = kMore}.with(std::span(payload).first(16)));
  const auto answers = lab.ask(Header{.xid = 7, .type = 9}.bytes());
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(is_error(answers[0], 6, 4));
  EXPECT_TRUE(is_error(answers[1], 7, 3));
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
}

TEST(V2Continuation, V2_092_a_message_that_never_ends_is_bounded) {
  LabOptions options = Server::defaults();
  options.engine.call_buffer_bytes = 64 << 10;
  Server lab(options);
  lab.hello();
  const Bytes payload(4000);
  std::vector<Bytes> answers;
  for (int i = 0; i < 200; ++i) {
    lab.exchange(Header{.xid = 30, .flags = kMore}.with(payload));
    for (const Bytes& answer : lab.answers()) answers.push_back(answer);
  }
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(is_error(answers[0], 30, 10));
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
  EXPECT_TRUE(lab.ask(Header{.xid = 30}.with(payload)).empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Continuation, V2_093_a_part_without_payload_is_refused) {
  Server lab;
  lab.hello();
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 31, .flags = kMore}.bytes()), 31, 2));
  lab.ask(Header{.xid = 31}.with(words({1})));  // its last part
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 32}.bytes()), 32, 2));
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Continuation, V2_095_a_message_that_does_not_go_on_ends_the_connection) {
  Server lab;
  lab.hello();
  lab.ask(Header{.xid = 33, .flags = kMore}.with(words({1, 2})));
  EXPECT_TRUE(lab.connection->is_open());
  lab.pass(6'000'000'000);
  EXPECT_FALSE(lab.connection->is_open());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::SequenceTimeout);
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
}

TEST(V2Continuation, V2_095_each_part_starts_the_timer_again) {
  Server lab;
  lab.hello();
  const Bytes payload = test_call(34, TestService::kName, {8, 1, 2});
  lab.ask(Header{.xid = 34, .flags = kMore}.with(std::span(payload).first(12)));
  for (std::size_t at = 12; at < 48; at += 12) {
    lab.pass(4'000'000'000);
    ASSERT_TRUE(lab.connection->is_open()) << at;
    lab.ask(Header{.xid = 34, .flags = kMore}.with(std::span(payload).subspan(at, 12)));
  }
  lab.pass(4'000'000'000);
  EXPECT_TRUE(is_success(lab.answer(Header{.xid = 34}.with(std::span(payload).subspan(48))), 34));
  // No message is incomplete now, so silence is not an error.
  lab.pass(60'000'000'000);
  EXPECT_TRUE(lab.alive2(35));
}

TEST(V2Continuation, V2_095_what_has_come_of_a_message_goes_with_its_connection) {
  Server lab;
  lab.hello();
  const auto& pool = lab.engine->assembly_memory();
  lab.ask(Header{.xid = 36, .flags = kMore}.with(words({36, 0})));
  EXPECT_EQ(pool.available(), lab.options.engine.assembly_buffers - 1);
  lab.reconnect();
  EXPECT_EQ(pool.available(), lab.options.engine.assembly_buffers);
  lab.hello();
  // The remaining part belongs to no message.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 36}.with(words({2}))), 36, 2));
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Continuation, V2_092_those_that_find_no_memory_wait) {
  LabOptions options = Server::defaults();
  options.engine.assembly_buffers = 1;
  Server lab(options);
  lab.hello();
  auto& pool = lab.engine->assembly_memory();
  rpcrdma::SharedMemory::Account other;
  std::byte* const taken = pool.acquire(other, 1);
  const Bytes payload = test_call(5, 0);
  lab.peer->inbox.clear();
  lab.peer->send(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(20)));
  lab.peer->send(Header{.xid = 5}.with(std::span(payload).subspan(20)));
  lab.peer->send(null_call(6));
  lab.settle();
  EXPECT_TRUE(lab.answers().empty());
  EXPECT_EQ(lab.counters().waits_assembly, 1u);
  pool.release(taken);
  lab.settle();
  const auto answers = lab.answers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(is_success(answers[0], 5));
  EXPECT_TRUE(is_success(answers[1], 6));
}

// --- H: reply mechanism

TEST(V2Replies, V2_096_eligible_results_go_to_the_write_chunk_even_if_they_fit_inline) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  const Bytes answer = lab.answer(
      Header{.xid = 1, .writes = {{memory.segment}}}.with(test_call(1, TestService::kSource, {16})));
  EXPECT_EQ(word_at(answer, 10), 16u);
  EXPECT_EQ(answer.size(), 60u + 24 + 12);
}

TEST(V2Replies, V2_097_V2_101_inline_before_the_reply_chunk_and_that_before_continuation) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(16384, rdma::kRemoteWrite);
  const auto list = [&](std::uint32_t bytes) {
    lab.ask(Header{.xid = 2, .reply = {{memory.segment}}}.with(test_call(2, TestService::kList, {bytes})));
    return lab.answers();
  };
  const auto inline_reply = list(100);
  ASSERT_EQ(inline_reply.size(), 1u);
  EXPECT_TRUE(is_success(inline_reply[0], 2));
  EXPECT_EQ(word_at(inline_reply[0], 8), 0u);  // Reply chunk absent
  const auto by_chunk = list(9092);
  ASSERT_EQ(by_chunk.size(), 1u);
  EXPECT_EQ(word_at(by_chunk[0], 3), kNoMsg);
  EXPECT_EQ(word_at(by_chunk[0], 11), 9120u);
}

TEST(V2Replies, V2_098_V2_099_a_reply_that_fits_no_chunk_is_continued) {
  Server lab;
  lab.hello();
  for (const bool small_chunk : {false, true}) {
    Header call{.xid = 3};
    if (small_chunk) call.reply = {{lab.peer->expose(4096, rdma::kRemoteWrite).segment}};
    const auto parts = lab.ask(call.with(test_call(3, TestService::kList, {8972})));
    ASSERT_EQ(parts.size(), 3u);
    Bytes payload;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(word_at(parts[i], 0), 3u);
      EXPECT_EQ(word_at(parts[i], 3), kMsg);
      EXPECT_EQ(word_at(parts[i], 4), i < 2 ? 3u : 1u);
      for (std::size_t w = 5; w < 9; ++w) EXPECT_EQ(word_at(parts[i], w), 0u);
      append(payload, std::span(parts[i]).subspan(36));
    }
    EXPECT_EQ(payload.size(), 9000u);
    EXPECT_EQ(word_at(payload, 6), 8972u);
    EXPECT_TRUE(has_pattern(std::span(payload).subspan(28, 8972), 1));
  }
}

TEST(V2Replies, V2_089_V2_128_a_continued_reply_with_a_write_chunk_has_it_in_the_last_part) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(65536, rdma::kRemoteWrite);
  // The first result goes to the chunk, the second stays inline and is too long for it.
  lab.peer->inbox.clear();
  lab.ask(Header{.xid = 4, .invalidate = handle(memory.segment), .writes = {{memory.segment}}}.with(
      test_call(4, TestService::kPair, {65536, 9000})));
  const auto parts = lab.answers();
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(word_at(parts[0], 7), 0u);
  EXPECT_EQ(word_at(parts[2], 10), 65536u);
  EXPECT_TRUE(has_pattern(memory.bytes, 1));
  std::size_t invalidated = 0;
  for (const Received& received : lab.peer->inbox) invalidated += received.remote_invalidate;
  EXPECT_EQ(invalidated, 1u);
  EXPECT_TRUE(lab.peer->inbox.back().remote_invalidate);
}

TEST(V2Replies, V2_084_parts_wait_for_the_buffers_of_their_headers) {
  LabOptions options = Server::defaults();
  options.engine.reply_buffer_bytes = 256u << 10;
  Server lab(options);
  lab.hello();
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ControlSent;
  };
  lab.peer->send(Header{.xid = 5, .credit = 0x00400000}.with(test_call(5, TestService::kList, {200000})));
  lab.settle();
  EXPECT_LE(lab.answers().size(), rpcrdma::v2::kControlBuffers);
  EXPECT_GE(lab.counters().waits_send_queue, 1u);
  lab.device->hold = nullptr;
  lab.settle();
  std::size_t bytes = 0;
  for (const Bytes& part : lab.answers()) bytes += part.size();
  EXPECT_GT(bytes, 200000u);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Replies, V2_090_V2_085_a_continued_reply_waits_for_credits_and_is_not_interrupted) {
  Server lab;
  lab.peer->send(Header{.xid = 1, .credit = 0x00400002, .type = kConnProp}.then({0}));
  lab.settle();
  lab.peer->inbox.clear();
  lab.peer->send(Header{.xid = 5, .credit = 0x00400000}.with(test_call(5, TestService::kList, {20000})));
  lab.peer->send(null_call(6, 0x00400000));
  lab.settle();
  EXPECT_EQ(lab.answers().size(), 2u);
  lab.peer->send(grant(2));
  lab.settle();
  EXPECT_EQ(lab.answers().size(), 4u);
  lab.peer->send(grant(9));
  lab.settle();
  const auto answers = lab.answers();
  ASSERT_EQ(answers.size(), 6u);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(word_at(answers[i], 0), 5u);
  EXPECT_TRUE(is_success(answers[5], 6));
}

TEST(V2Replies, V2_098_a_reply_that_has_begun_in_parts_ends_so_whatever_the_threshold_becomes) {
  Server lab;
  lab.hello(1);  // after the greeting there is one credit
  lab.ask(Header{.xid = 5, .credit = 0x00400000}.with(test_call(5, TestService::kList, {9000})));
  std::vector<Bytes> parts = lab.answers();
  ASSERT_EQ(parts.size(), 1u);
  lab.connection->apply({.send_bytes = 32768});
  for (const Bytes& part : lab.ask(grant(9))) parts.push_back(part);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(word_at(parts[1], 4), kResponse);
  Bytes payload;
  for (const Bytes& part : parts) append(payload, std::span(part).subspan(36));
  ASSERT_EQ(payload.size(), 9028u);
  EXPECT_TRUE(has_pattern(std::span(payload).subspan(28, 9000), 1));
}

TEST(V2Replies, V2_098_V2_103_a_threshold_too_low_for_the_last_part_ends_the_reply_and_nothing_else) {
  Server lab;
  lab.hello(1);
  // The Write chunk makes the header of the last part longer than the smallest threshold.
  const auto memory = lab.peer->expose(80 * 64, rdma::kRemoteWrite);
  std::vector<rpcrdma::Segment> chunk;
  for (std::uint32_t i = 0; i < 80; ++i)
    chunk.push_back({memory.segment.handle, 64, memory.segment.offset + 64 * i});
  lab.ask(Header{.xid = 4, .credit = 0x00400000, .writes = {chunk}}.with(
      test_call(4, TestService::kPair, {4096, 9000})));
  ASSERT_EQ(lab.answers().size(), 1u);
  lab.connection->apply({.send_bytes = 1024});
  lab.peer->inbox.clear();
  const auto rest = lab.ask(grant(9));
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_TRUE(is_error(rest[0], 4, 9)) << "REPLY_RESOURCE";
  lab.peer->inbox.clear();
  lab.peer->send(null_call(6));  // one call uses the freed slot, one another slot
  EXPECT_EQ(lab.ask(null_call(7)).size(), 2u) << "other calls are served";
}

TEST(V2Replies, V2_092_a_reply_that_waits_for_a_credit_holds_no_memory_of_its_call) {
  Server lab;
  lab.hello(0);
  const Bytes payload = test_call(5, 0);
  lab.peer->send(Header{.xid = 5, .credit = 0x00400000, .flags = kMore}.with(std::span(payload).first(20)));
  lab.peer->send(Header{.xid = 5, .credit = 0x00400000}.with(std::span(payload).subspan(20)));
  lab.settle();
  EXPECT_EQ(lab.service->executed.size(), 1u);
  EXPECT_TRUE(lab.answers().empty());
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
  lab.ask(grant(1));
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_TRUE(is_success(lab.answers()[0], 5));
}

TEST(V2Replies, V2_102_V2_118_a_write_chunk_that_is_too_short) {
  Server lab;
  lab.hello();
  const auto big = lab.peer->expose(65536, rdma::kRemoteWrite);
  const auto small = lab.peer->expose(64, rdma::kRemoteWrite);
  const Bytes first = lab.answer(
      Header{.xid = 1, .writes = {{big.segment}}}.with(test_call(1, TestService::kSource, {1 << 20})));
  EXPECT_TRUE(is_error(first, 1, 8));
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(word_at(first, 6), 1u);
  EXPECT_EQ(word_at(first, 7), 1u << 20);
  const Bytes second = lab.answer(Header{.xid = 2, .writes = {{big.segment}, {small.segment}}}.with(
      test_call(2, TestService::kPair, {64, 65})));
  EXPECT_TRUE(is_error(second, 2, 8));
  EXPECT_EQ(word_at(second, 6), 2u);
  EXPECT_EQ(word_at(second, 7), 65u);
}

TEST(V2Replies, V2_103_V2_119_a_reply_that_fits_nowhere) {
  LabOptions options = Server::defaults();
  options.connection.version2.continue_replies = false;
  Server lab(options);
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const Bytes answer = lab.answer(
      Header{.xid = 3, .reply = {{memory.segment}}}.with(test_call(3, TestService::kList, {9092})));
  EXPECT_TRUE(is_error(answer, 3, 9));
  EXPECT_EQ(answer.size(), 28u);
  EXPECT_EQ(word_at(answer, 6), 9120u);
}

// --- J: remote invalidation

TEST(V2Invalidation, V2_127_V2_128_a_reply_invalidates_what_the_call_named_and_nothing_else) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  lab.log.clear();
  lab.answer(Header{.xid = 1, .invalidate = handle(memory.segment), .writes = {{memory.segment}}}.with(
      test_call(1, TestService::kSource, {16})));
  auto sends = lab.log.all(OpKind::PostSend);
  ASSERT_EQ(sends.size(), 1u);
  EXPECT_TRUE(sends[0].with_invalidate);
  EXPECT_EQ(sends[0].rkey, memory.segment.handle);

  const auto other = lab.peer->expose(64, rdma::kRemoteWrite);
  lab.log.clear();
  lab.answer(Header{.xid = 2, .writes = {{other.segment}}}.with(test_call(2, TestService::kSource, {16})));
  lab.answer(Header{.xid = 3, .invalidate = 0xDEAD, .writes = {{other.segment}}}.with(
      test_call(3, TestService::kSource, {16})));
  lab.answer(Header{.xid = 4, .invalidate = handle(other.segment), .writes = {{other.segment}}}.with(
      test_call(4, TestService::kSource, {65})));
  for (const Op& op : lab.log.all(OpKind::PostSend)) EXPECT_FALSE(op.with_invalidate);
  EXPECT_EQ(lab.counters().unmatched_invalidate, 1u);
}

TEST(V2Version, V2_159_the_first_four_words_have_their_place_in_both_versions) {
  for (const std::uint32_t version : {1u, 2u}) {
    const Bytes message = words({0xA1, version, 0xA3, 4});
    const auto fixed = rpcrdma::load_fixed(message.data());
    EXPECT_EQ(static_cast<std::uint32_t>(fixed.xid), 0xA1u);
    EXPECT_EQ(fixed.version, version);
    EXPECT_EQ(static_cast<std::uint32_t>(fixed.credits), 0xA3u);
    EXPECT_EQ(fixed.procedure, 4u);
  }
}

}  // namespace
}  // namespace sluice::conformance::v2
