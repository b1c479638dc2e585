// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the requester: errors, and which calls are retried, against a server that writes its headers
// by hand.
#include <gtest/gtest.h>

#include "tests/conformance/v2_client.h"

#include <algorithm>

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;
using rpcrdma::ItemResult;
using rpcrdma::v2::ErrorCode;

TEST(V2ClientErrors, V2_107_V2_108_V2_146_faulty_replies_end_the_call_and_draw_no_error) {
  const auto outcome = [](const std::function<Bytes(std::uint32_t, const Bytes&)>& reply) {
    ReadClient lab;
    const Bytes call = lab.read(4096, 16);
    const std::uint32_t xid = word_at(call, 0);
    lab.answer(reply(xid, call));
    EXPECT_TRUE(lab.sent().empty());
    EXPECT_TRUE(lab.connection->is_open());
    EXPECT_EQ(lab.finished.size(), 1u);
    const CallStatus status = lab.finished.empty() ? CallStatus::Ok : lab.finished[0].status;
    const auto next = lab.submit_null();
    lab.settle();
    lab.answer(success(*next));
    EXPECT_EQ(lab.finished.size(), 2u);
    return status;
  };
  using Xid = std::uint32_t;
  const auto unusable = CallStatus::UnusableReply;
  EXPECT_EQ(outcome([](Xid xid, const Bytes& call) { return read_reply(xid, call, 8192, 16); }),
            unusable);  // V2-146
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) { return Header{.xid = xid, .type = 9, .flags = 1}.bytes(); }),
            unusable);
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) {
              return Header{.xid = xid, .flags = 0x81}.with(words({xid, 1}));
            }),
            unusable);
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) {
              return Header{.xid = xid, .flags = 1}.then({0, 7, 0, 0});
            }),
            unusable);
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) {
              return Header{.xid = xid, .flags = 1}.with(words({xid, 0, 0, 0, 0, 0}));
            }),
            unusable);
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) {
              return Header{.xid = xid, .flags = 1}.with(words({xid + 1, 1, 0, 0, 0, 0}));
            }),
            unusable);
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) {
              return Header{.xid = xid, .flags = 1, .reads = {{0, {}}}}.with(
                  words({xid, 1, 0, 0, 0, 0}));  // V2-079
            }),
            unusable);
  EXPECT_EQ(outcome([](Xid xid, const Bytes&) {
              return Header{.xid = xid, .type = kNoMsg, .flags = 1, .writes = {{}}}
                  .bytes();  // no Reply chunk (D2-34)
            }),
            unusable);
}

TEST(V2ClientErrors, V2_120_V2_121_V2_122_permanent_errors_end_the_call_at_once) {
  for (const std::uint32_t code : {2u, 3u, 4u, 10u, 77u}) {
    ReadClient lab;
    const Bytes call = lab.read(4096, 16, repeatable());
    lab.answer(error(
        word_at(call, 0), code,
        code == 77 ? std::initializer_list<std::uint32_t>{1, 2} : std::initializer_list<std::uint32_t>{}));
    EXPECT_TRUE(lab.sent().empty());
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Refused);
    EXPECT_EQ(static_cast<std::uint32_t>(lab.finished[0].error.code), code);
    EXPECT_GE(lab.log.count(OpKind::InvalidateDone), 1u);
  }
}

TEST(V2ClientErrors, V2_114_without_read_chunks_the_call_goes_as_a_whole) {
  Client lab;
  lab.confirm();
  const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
  fill_pattern(memory.bytes, 3);
  const rdma::Sge piece{memory.bytes.data(), 1001, memory.lkey};
  const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
  const Bytes payload = test_call(0, TestService::kSink, {1001, 99});
  const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 3), kMsg);
  lab.answer(error(*xid, 5, {0}));
  ASSERT_EQ(lab.sent().size(), 1u);
  const Bytes again = lab.sent()[0];
  EXPECT_EQ(word_at(again, 0), *xid);
  EXPECT_EQ(word_at(again, 3), kNoMsg);
  EXPECT_EQ(word_at(again, 7), 0u);  // Position
  EXPECT_EQ(word_at(again, 9), 44u + 1004 + 4);
  const auto whole = lab.peer->read_remote({static_cast<rdma::Rkey>(word_at(again, 8)), 0,
                                            std::uint64_t{word_at(again, 10)} << 32 | word_at(again, 11)},
                                           1052);
  lab.settle();
  EXPECT_EQ(word_at(whole, 0), *xid);
  EXPECT_TRUE(has_pattern(whole.subspan(44, 1001), 3));
  EXPECT_EQ(word_at(whole, 262), 99u);
  lab.answer(error(*xid, 5, {0}));
  EXPECT_TRUE(lab.sent().empty());
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].error.code, ErrorCode::ReadChunks);
}

/// Builds the position-zero contents of a call whose two arguments were in Read chunks.
Bytes whole_call(std::uint32_t xid, std::uint32_t first, std::uint32_t second, std::uint32_t tail) {
  Bytes whole = test_call(xid, TestService::kTwoSinks, {first});
  whole.resize(44 + xdr::padded(first));
  fill_pattern(std::span(whole).subspan(44, first), 3);
  append(whole, words({77, second}));
  const std::size_t at = whole.size();
  whole.resize(at + xdr::padded(second) + tail);
  fill_pattern(std::span(whole).subspan(at, second), 4);
  fill_pattern(std::span(whole).subspan(at + xdr::padded(second)), 5);
  return whole;
}

TEST(V2ClientErrors, V2_114_a_call_longer_than_a_send_goes_as_a_whole_too) {
  struct Case {
    std::uint32_t first, second, tail;
  };
  for (const Case& c :
       {Case{1001, 6, 100}, Case{1001, 6, 5000}, Case{5, 4097, 4100}, Case{3001, 3002, 12000}}) {
    Client lab;
    lab.confirm();
    const rdma::MemoryRegion memory = lab.device->allocate_memory(16384);
    fill_pattern(memory.bytes.first(c.first), 3);
    fill_pattern(memory.bytes.subspan(8192, c.second), 4);
    const rdma::Sge pieces[] = {{memory.bytes.data(), c.first, memory.lkey},
                                {memory.bytes.data() + 8192, c.second, memory.lkey}};
    const auto second_at = static_cast<std::uint32_t>(44 + xdr::padded(c.first) + 8);
    const rpcrdma::ReadItem items[] = {{rpcrdma::Position{44}, {&pieces[0], 1}},
                                       {rpcrdma::Position{second_at}, {&pieces[1], 1}}};
    Bytes payload = test_call(0, TestService::kTwoSinks, {c.first, 77, c.second});
    payload.resize(52 + c.tail);
    fill_pattern(std::span(payload).subspan(52), 5);
    const auto xid = lab.submit({.payload = payload, .reads = items, .max_reply_bytes = 64});
    lab.settle();
    lab.answer(error(*xid, 5, {0}));
    ASSERT_EQ(lab.sent().size(), 1u);
    const Bytes again = lab.sent()[0];
    const Bytes expected = whole_call(*xid, c.first, c.second, c.tail);
    EXPECT_EQ(word_at(again, 3), kNoMsg);
    ASSERT_EQ(word_at(again, 9), expected.size());
    const auto whole = lab.peer->read_remote({static_cast<rdma::Rkey>(word_at(again, 8)), 0,
                                              std::uint64_t{word_at(again, 10)} << 32 | word_at(again, 11)},
                                             expected.size());
    lab.settle();
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), expected.begin(), expected.end()));
    lab.answer(error(*xid, 5, {0}));
    EXPECT_TRUE(lab.sent().empty());
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].error.code, ErrorCode::ReadChunks);
  }
}

TEST(V2ClientErrors, V2_114_a_call_that_no_buffer_holds_as_a_whole_ends_and_those_behind_it_go_out) {
  LabOptions options = Client::defaults();
  options.requester.long_buffer_bytes = 4096;
  Client lab(options);
  lab.answer(grant(1));
  const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
  const rdma::Sge piece{memory.bytes.data(), 4096, memory.lkey};
  const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
  const Bytes payload = test_call(0, TestService::kSink, {4096, 99});
  const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
  const auto next = lab.submit_null();  // no credit is left for it
  lab.answer(error(*xid, 5, {0}));
  lab.answer(grant(2));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Refused);
  EXPECT_EQ(lab.finished[0].error.code, ErrorCode::ReadChunks);
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *next);
}

TEST(V2ClientErrors, V2_120_an_error_in_the_middle_of_a_call_ends_it_at_once) {
  ReadClient lab;
  lab.disconnect();
  lab.connect();
  lab.answer(grant(2));
  const rdma::Sge piece{lab.memory.bytes.data(), 4096, lab.memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  lab.peer->inbox.clear();
  const auto xid = lab.submit(
      {.payload = name_call(16000), .writes = {&item, 1}, .max_reply_bytes = 64, .repeatable = true});
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 2u);
  for (const Bytes& part : lab.sent()) EXPECT_EQ(word_at(part, 4), kMore);
  lab.answer(error(*xid, 10));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Refused);
  EXPECT_EQ(lab.finished[0].error.code, ErrorCode::System);
  EXPECT_FALSE(lab.requester->cancel(static_cast<rpc::Xid>(*xid)));
  // The responder drops the rest up to the last part (D2-40), which has no chunks.
  const auto next = lab.submit_null();
  lab.answer(grant(60));
  const auto rest = lab.sent();
  ASSERT_EQ(rest.size(), 3u);
  EXPECT_EQ(word_at(rest[0], 4), kMore);
  EXPECT_EQ(word_at(rest[1], 4), 0u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(word_at(rest[i], 0), *xid);
    for (std::size_t word = 5; word < 9; ++word) EXPECT_EQ(word_at(rest[i], word), 0u);
  }
  EXPECT_EQ(lab.log.count(OpKind::Bind), 0u);
  EXPECT_EQ(lab.requester->awaited_replies(), 1u);  // the reply of the next call
  lab.answer(error(*xid, 10));
  EXPECT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(word_at(rest[2], 0), *next);
  lab.answer(success(*next));
  ASSERT_EQ(lab.finished.size(), 2u);
  EXPECT_EQ(lab.finished[1].status, CallStatus::Ok);
  EXPECT_EQ(lab.requester->free_requests(), lab.options.requester.requests);
}

TEST(V2ClientErrors, V2_120_a_call_that_has_ended_in_the_middle_ends_once_when_its_connection_is_lost) {
  Client lab;
  lab.answer(grant(2));
  const auto xid = lab.submit({.payload = name_call(16000), .max_reply_bytes = 64});
  lab.settle();
  lab.answer(error(*xid, 10));
  ASSERT_EQ(lab.finished.size(), 1u);
  lab.disconnect();
  EXPECT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.requester->free_requests(), lab.options.requester.requests);
  lab.connect();
  lab.confirm();
  EXPECT_EQ(lab.finished.size(), 1u);
  const auto next = lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 1u);
  lab.answer(success(*next));
  EXPECT_EQ(lab.finished.size(), 2u);
}

TEST(V2ClientErrors, V2_120_a_late_error_ends_the_wait_for_a_call_that_was_given_up) {
  Client lab;
  lab.confirm();
  const auto xid = lab.submit_null();
  lab.settle();
  EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
  EXPECT_EQ(lab.requester->awaited_replies(), 1u);
  lab.answer(error(*xid, 10));
  EXPECT_EQ(lab.requester->awaited_replies(), 0u);
  EXPECT_EQ(lab.finished.size(), 1u);
}

TEST(V2ClientErrors, V2_116_without_write_chunks_a_reply_chunk_takes_all) {
  ReadClient lab;
  const Bytes call = lab.read(4096, 16);
  lab.answer(error(word_at(call, 0), 6, {1}));
  ASSERT_EQ(lab.sent().size(), 1u);
  const Bytes again = lab.sent()[0];
  EXPECT_EQ(word_at(again, 0), word_at(call, 0));
  EXPECT_EQ(word_at(again, 7), 0u);
  EXPECT_EQ(word_at(again, 8), 1u);
  EXPECT_GE(word_at(again, 11), 4096u + 64);
  lab.answer(Header{.xid = word_at(call, 0), .flags = kResponse}.with(
      words({word_at(call, 0), 1, 0, 0, 0, 0, 0, 8, 1, 2})));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
  EXPECT_EQ(lab.finished[0].items.at(0).where, ItemResult::Where::Inline);
}

TEST(V2ClientErrors, V2_077_V2_105_write_resource_is_tried_again_with_more) {
  ReadClient lab;
  const Bytes call = lab.read(1u << 20, 1u << 20, repeatable(), 65536);
  EXPECT_EQ(word_at(call, 10), 65536u);
  lab.answer(error(word_at(call, 0), 8, {1, 1u << 20}));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), word_at(call, 0));
  EXPECT_EQ(word_at(lab.sent()[0], 10), 1u << 20);
  EXPECT_NE(word_at(lab.sent()[0], 9), word_at(call, 9));
  lab.answer(error(word_at(call, 0), 8, {1, 1u << 20}));
  EXPECT_TRUE(lab.sent().empty());
  EXPECT_EQ(lab.finished.at(0).error.code, ErrorCode::WriteResource);

  const Bytes not_twice = lab.read(1u << 20, 0, {}, 65536);
  lab.answer(error(word_at(not_twice, 0), 8, {1, 1u << 20}));
  EXPECT_TRUE(lab.sent().empty());
  EXPECT_EQ(lab.finished.size(), 2u);
}

TEST(V2ClientErrors, V2_145_a_call_that_is_cancelled_while_it_waits_to_be_sent_again_ends) {
  ReadClient lab;
  const Bytes call = lab.read(1u << 20, 0, repeatable(), 65536);
  lab.peer->send(error(word_at(call, 0), 8, {1, 1u << 20}));
  // The call is cancelled in the iteration in which the refusal has arrived and the invalidation of the first
  // offer has not completed.
  bool cancelled = false;
  for (int i = 0; i < 50 && !cancelled; ++i) {
    lab.peer->poll();
    lab.engine->poll(lab.now_ns += 1000);
    if (lab.engine->counters().calls_replanned == 0) continue;
    cancelled = lab.requester->cancel(static_cast<rpc::Xid>(word_at(call, 0)));
    break;
  }
  EXPECT_TRUE(cancelled);
  lab.peer->inbox.clear();
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Cancelled);
  EXPECT_TRUE(lab.sent().empty());
}

TEST(V2ClientErrors, V2_105_reply_resource_is_tried_again_with_more) {
  Client lab;
  lab.confirm();
  const auto xid = lab.submit({.payload = test_call(0, 4, {10}), .max_reply_bytes = 64, .repeatable = true});
  lab.settle();
  EXPECT_EQ(word_at(lab.sent().at(0), 8), 0u);
  lab.answer(error(*xid, 9, {9120}));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 8), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 11), 9120u);
  lab.answer(error(*xid, 9, {0}));
  EXPECT_EQ(lab.finished.at(0).status, CallStatus::Refused);
}

TEST(V2ClientErrors, V2_111_V2_122_V2_158_nomsg_is_not_used_again_when_it_is_unknown) {
  Client lab;
  lab.confirm();
  const auto xid = lab.submit({.payload = name_call(20000), .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(word_at(lab.sent().at(0), 3), kNoMsg);
  lab.answer(error(*xid, 3));
  EXPECT_EQ(lab.finished.at(0).status, CallStatus::Refused);
  lab.peer->inbox.clear();
  lab.submit({.payload = name_call(20000), .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(lab.sent().size(), 5u);
  for (const Bytes& part : lab.sent()) EXPECT_EQ(word_at(part, 3), kMsg);
}

TEST(V2ClientErrors, V2_117_V2_122_segments_are_planned_again_once) {
  ReadClient lab;
  const rdma::Sge piece{lab.memory.bytes.data(), 4096, lab.memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  lab.peer->inbox.clear();
  const auto xid = lab.submit({.payload = name_call(20000), .writes = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(word_at(lab.sent().at(0), 3), kNoMsg);
  lab.answer(error(*xid, 7, {1}));
  EXPECT_EQ(lab.sent().size(), 5u);
  lab.answer(error(*xid, 7, {1}));
  EXPECT_EQ(lab.finished.at(0).error.code, ErrorCode::Segments);
}

TEST(V2ClientErrors, V2_156_a_result_that_its_chunk_could_take_may_not_come_inline) {
  ReadClient lab;
  Bytes call = lab.read(4096, 16);
  lab.answer(read_reply(word_at(call, 0), call, 0, 16));
  EXPECT_EQ(lab.finished.at(0).items.at(0).where, ItemResult::Where::Defect);
  call = lab.read(4096, 1001);
  lab.answer(read_reply(word_at(call, 0), call, 1004, 1001));  // a written round-up is one (V2-071)
  EXPECT_EQ(lab.finished.at(1).items.at(0).where, ItemResult::Where::Defect);
  call = lab.read(4096, 1001);
  lab.answer(read_reply(word_at(call, 0), call, 1001, 1001));
  EXPECT_EQ(lab.finished.at(2).items.at(0).where, ItemResult::Where::Placed);
}

}  // namespace
}  // namespace sluice::conformance::v2
