// SPDX-License-Identifier: Apache-2.0
//
// Version 2: messages that just fit a threshold or limit, and messages that do not.
#include <gtest/gtest.h>

#include "tests/conformance/v2_client.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;
using rpcrdma::Segment;

std::vector<Segment> segments_of(const Segment& whole, std::uint32_t count, std::uint32_t bytes) {
  std::vector<Segment> result;
  for (std::uint32_t i = 0; i < count; ++i) result.push_back(part(whole, i * bytes, bytes));
  return result;
}

// --- The responder's thresholds

TEST(V2Limits, V2_097_V2_098_a_reply_chunk_whose_header_is_as_long_as_the_threshold) {
  for (const std::uint32_t segments : {60u, 61u}) {
    Server lab;
    lab.peer->send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then({1, 2, 4, 1024}));
    lab.settle();
    lab.peer->inbox.clear();
    const auto memory = lab.peer->expose(65536, rdma::kRemoteWrite);
    // The header has 36 bytes, a Write chunk of one segment, and the Reply chunk.
    const Header call{.xid = 2,
                      .writes = {{part(memory.segment, 0, 64)}},
                      .reply = segments_of(part(memory.segment, 1024, 0), segments, 64)};
    lab.ask(call.with(test_call(2, TestService::kPair, {16, 2000})));
    const auto answers = lab.answers();
    if (segments == 60) {
      ASSERT_EQ(answers.size(), 1u);
      EXPECT_EQ(answers[0].size(), 1024u);
      EXPECT_EQ(word_at(answers[0], 3), kNoMsg);
    } else {
      EXPECT_GT(answers.size(), 1u);
      EXPECT_EQ(word_at(answers.back(), 3), kMsg);
    }
  }
}

TEST(V2Limits, V2_097_a_reply_as_long_as_the_threshold_and_as_its_chunk) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(8192, rdma::kRemoteWrite);
  const auto ask = [&](std::uint32_t list, std::uint32_t chunk) {
    return lab.ask(Header{.xid = 2, .reply = {{part(memory.segment, 0, chunk)}}}.with(
        test_call(2, TestService::kList, {list})));
  };
  EXPECT_EQ(word_at(ask(4096 - 36 - 28, 8192).at(0), 3), kMsg);
  EXPECT_EQ(word_at(ask(4096 - 36 - 24, 8192).at(0), 3), kNoMsg);
  EXPECT_EQ(word_at(ask(5000 - 28, 5000).at(0), 3), kNoMsg);
  EXPECT_EQ(ask(5004 - 28, 5000).size(), 2u);
}

TEST(V2Limits, V2_098_parts_are_as_long_as_the_threshold) {
  Server lab;
  lab.hello();
  for (const std::uint32_t payload : {4060u, 4064u, 8116u, 8120u, 8124u, 8128u}) {
    const auto parts = lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {payload - 28})));
    const std::size_t expected = payload <= 4060 ? 1 : payload <= 8120 ? 2 : 3;
    ASSERT_EQ(parts.size(), expected) << payload;
    Bytes joined;
    for (const Bytes& one : parts) {
      EXPECT_LE(one.size(), 4096u);
      EXPECT_GT(one.size(), 36u) << "no part is empty";
      append(joined, std::span(one).subspan(36));
    }
    ASSERT_EQ(joined.size(), payload);
    EXPECT_TRUE(has_pattern(std::span(joined).subspan(28), 1));
  }
}

TEST(V2Limits, V2_113_V2_115_V2_117_as_many_chunks_and_segments_as_were_announced) {
  LabOptions options = Server::defaults();
  options.connection.version2.max_read_chunks = 2;
  options.connection.version2.max_write_chunks = 2;
  options.connection.version2.parameters.max_segments = 5;
  Server lab(options);
  lab.hello();
  const auto source = lab.peer->expose(64, rdma::kRemoteRead);
  const auto sink = lab.peer->expose(4096, rdma::kRemoteWrite);
  const Header two_reads{.xid = 1,
                         .reads = {{44, part(source.segment, 0, 8)}, {60, part(source.segment, 8, 8)}}};
  EXPECT_TRUE(is_success(lab.answer(two_reads.with(test_call(1, TestService::kTwoSinks, {8, 7, 8}))), 1));
  const Header two_writes{.xid = 2, .writes = {{part(sink.segment, 0, 8)}, {part(sink.segment, 8, 8)}}};
  const Bytes written = lab.answer(two_writes.with(test_call(2, TestService::kPair, {8, 8})));
  EXPECT_EQ(word_at(written, 3), kMsg);
  EXPECT_EQ(word_at(written, 10), 8u);
  EXPECT_EQ(word_at(written, 16), 8u);
  for (const std::uint32_t count : {3u, 4u}) {
    const Header five{.xid = 3,
                      .writes = {segments_of(sink.segment, count, 4)},
                      .reply = segments_of(part(sink.segment, 1024, 0), 2, 1024)};
    const Bytes answer = lab.answer(five.with(test_call(3, TestService::kSource, {12})));
    EXPECT_EQ(word_at(answer, 3), count == 3 ? kMsg : kError);
  }
}

TEST(V2Limits, V2_083_a_segment_that_ends_where_memory_does) {
  // The segment ends with the last octet of the address space: it does not wrap, but is not registered.
  Server lab;
  lab.hello();
  const Segment last{rdma::Rkey{1}, 2, ~std::uint64_t{0} - 2};
  lab.ask(Header{.xid = 1, .writes = {{last}}}.with(test_call(1, TestService::kSource, {2})));
  EXPECT_EQ(lab.counters().bad_chunk_lists, 0u);
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
}

TEST(V2Limits, V2_092_a_continued_call_as_long_as_its_buffer) {
  LabOptions options = Server::defaults();
  options.engine.call_buffer_bytes = 1024;
  for (const std::uint32_t bytes : {1024u, 1028u}) {
    Server lab(options);
    lab.hello();
    Bytes payload = test_call(5, TestService::kName, {bytes - 44});
    payload.resize(bytes);
    lab.ask(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(512)));
    const Bytes answer = lab.answer(Header{.xid = 5}.with(std::span(payload).subspan(512)));
    if (bytes == 1024)
      EXPECT_TRUE(is_success(answer, 5));
    else
      EXPECT_TRUE(is_error(answer, 5, 10));
  }
}

TEST(V2Limits, results_that_are_longer_than_any_buffer_are_a_system_error) {
  LabOptions options = Server::defaults();
  options.engine.reply_buffer_bytes = 12000;
  Server lab(options);
  lab.hello();
  const auto longest = lab.ask(Header{.xid = 1}.with(test_call(1, TestService::kList, {12000 - 28})));
  EXPECT_EQ(longest.size(), 3u);
  EXPECT_EQ(accept_stat(lab.answer(Header{.xid = 2}.with(test_call(2, TestService::kList, {12000 - 24})))),
            5u);
}

// --- The requester

TEST(V2Limits, V2_047_a_header_as_long_as_the_requesters_room_for_it) {
  for (const std::uint32_t segments : {10u, 11u}) {
    LabOptions options = Client::defaults();
    options.requester.inline_bytes = 36 + 8 + 10 * 16;
    options.requester.max_segment_bytes = 64;
    Client lab(options);
    lab.confirm();
    const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
    const rdma::Sge piece{memory.bytes.data(), segments * 64, memory.lkey};
    const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
    lab.submit({.payload = test_call(0, 0), .writes = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    EXPECT_EQ(lab.sent().size(), segments == 10 ? 1u : 0u);
    EXPECT_EQ(lab.finished.size(), segments == 10 ? 0u : 1u);
  }
}

TEST(V2Limits, V2_104_continuation_up_to_its_limit_and_chunks_beyond) {
  LabOptions options = Client::defaults();
  options.requester.continue_up_to = 8192;
  for (const std::uint32_t bytes : {8192u, 8196u}) {
    Client lab(options);
    lab.confirm();
    const Bytes payload = name_call(bytes);
    lab.submit({.payload = payload, .max_reply_bytes = 64});
    lab.settle();
    EXPECT_EQ(word_at(lab.sent().at(0), 3), bytes == 8192 ? kMsg : kNoMsg);
    Client other(options);
    other.confirm();
    other.submit({.payload = test_call(0, 0), .max_reply_bytes = bytes});
    other.settle();
    EXPECT_EQ(word_at(other.sent().at(0), 8), bytes == 8192 ? 0u : 1u);
  }
}

TEST(V2Limits, V2_051_as_many_segments_as_the_server_takes) {
  for (const std::uint32_t most : {3u, 2u}) {
    Client lab;
    lab.answer(Header{.xid = 7, .credit = 0x00400100, .type = kConnProp}.then({1, 4, 4, most}));
    const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
    std::vector<rdma::Sge> pieces;
    for (std::uint32_t i = 0; i < 3; ++i) pieces.push_back({memory.bytes.data() + 512 * i, 64, memory.lkey});
    const rpcrdma::WriteItem item{.pieces = pieces};
    lab.peer->inbox.clear();
    lab.submit({.payload = test_call(0, 0), .writes = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    EXPECT_EQ(lab.sent().size(), most == 3 ? 1u : 0u);
  }
}

TEST(V2Limits, V2_120_the_shortest_reply_and_less) {
  for (const std::size_t count : {5u, 4u}) {
    Client lab;
    lab.confirm();
    const auto xid = lab.submit_null();
    lab.settle();
    Bytes reply = words({*xid, 1, 1, 1, 5});
    reply.resize(4 * count);
    lab.answer(Header{.xid = *xid, .flags = kResponse}.with(reply));
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, count == 5 ? CallStatus::Ok : CallStatus::UnusableReply);
  }
}

TEST(V2Limits, V2_007_a_first_call_as_long_as_the_first_message_may_be) {
  LabOptions options = Client::defaults();
  options.connection.version2.greeting = rpcrdma::Greeting::Call;
  for (const std::uint32_t bytes : {1024u - 36, 1028u - 36}) {
    Client lab(options);
    const Bytes payload = name_call(bytes);
    lab.submit({.payload = payload, .max_reply_bytes = 64});
    lab.settle();
    ASSERT_EQ(lab.sent().size(), 1u);
    EXPECT_EQ(word_at(lab.sent()[0], 3), bytes == 1024 - 36 ? kMsg : kConnProp);
  }
}

TEST(V2Limits, V2_058_receives_of_another_size_are_announced) {
  LabOptions options = Server::defaults();
  options.engine.capacity.receive_bytes = options.connection.receive_inline_bytes = 8192;
  Server lab(options);
  const auto inbox = lab.exchange(null_call(1, 0x00400010));
  ASSERT_FALSE(inbox.empty());
  ASSERT_EQ(word_at(inbox[0].bytes, 3), kConnProp);
  const auto said = rpcrdma::v2::decode_properties(std::span(inbox[0].bytes).subspan(20));
  ASSERT_TRUE(said);
  EXPECT_EQ(said->receive_buffer_bytes, 8192u);
}

TEST(V2Limits, a_server_that_announces_nothing_keeps_to_the_defaults) {
  LabOptions options = Server::defaults();
  options.connection.version2.announce = false;
  Server lab(options);
  lab.peer->send(Header{.xid = 1, .credit = 0x00400010, .type = kConnProp}.then({1, 2, 4, 65536}));
  lab.settle();
  EXPECT_TRUE(lab.connection->heard_properties());
  EXPECT_EQ(lab.connection->agreement().send_bytes, rpcrdma::v2::kDefaultSendBytes);
}

TEST(V2Limits, V2_037_a_smaller_window_has_fewer_receives_posted) {
  Server lab;
  lab.hello();
  lab.connection->set_credits(2);
  for (std::uint32_t xid = 1; xid <= 100; ++xid) EXPECT_TRUE(is_success(lab.ask(null_call(xid)).at(0), xid));
  const auto posted = lab.log.count(OpKind::PostReceive) - lab.log.count(OpKind::ReceiveDone);
  EXPECT_EQ(posted, 3u);  // one more than granted
}

TEST(V2Limits, V2_065_an_agreement_lifts_no_limit_of_ours) {
  Server lab;
  lab.hello();
  const std::uint32_t most = lab.connection->agreement().send_bytes;
  lab.connection->apply({.send_bytes = 1u << 30, .max_segment_bytes = 0});
  EXPECT_LE(lab.connection->agreement().send_bytes,
            lab.options.connection.version2.parameters.max_send_bytes);
  EXPECT_GE(lab.connection->agreement().send_bytes, most);
  EXPECT_EQ(lab.connection->agreement().max_segment_bytes, rpcrdma::v2::kLeastSegmentBytes);
  lab.connection->apply({.send_bytes = 1});
  EXPECT_EQ(lab.connection->agreement().send_bytes, rpcrdma::v2::kLeastThreshold);
}

}  // namespace
}  // namespace sluice::conformance::v2
