// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the requester, against a server that writes its headers by hand.
#include <gtest/gtest.h>

#include "tests/conformance/v2_client.h"

#include <algorithm>

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;

// --- A: negotiation

TEST(V2Negotiation, V2_006_V2_007_V2_008_V2_058_one_small_message_until_credits_come) {
  LabOptions options = Client::defaults();
  Client lab(options);
  ASSERT_EQ(lab.sent().size(), 1u);
  const Bytes first = lab.sent()[0];
  EXPECT_EQ(word_at(first, 1), 2u);
  EXPECT_EQ(word_at(first, 3), kConnProp);
  EXPECT_EQ(word_at(first, 4), 0u);
  EXPECT_LE(first.size(), 1024u);
  const Bytes big = name_call(3000);
  for (int i = 0; i < 10; ++i) lab.submit({.payload = big, .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(lab.sent().size(), 1u);
  lab.answer(grant(3));
  EXPECT_EQ(lab.sent().size(), 3u);
  for (const Bytes& call : lab.sent()) EXPECT_EQ(call.size(), 3036u);
}

TEST(V2Negotiation, V2_006_V2_007_a_short_call_as_greeting) {
  LabOptions options = Client::defaults();
  options.connection.version2.greeting = rpcrdma::Greeting::Call;
  Client lab(options);
  EXPECT_TRUE(lab.sent().empty());
  const auto xid = lab.submit_null();
  lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(lab.sent()[0].size(), 76u);
  EXPECT_EQ(word_at(lab.sent()[0], 4), 0u);
  EXPECT_EQ(word_at(lab.sent()[0], 5), 0u);
  lab.answer(success(*xid, 0x00400005));
  ASSERT_EQ(lab.sent().size(), 2u);
  EXPECT_EQ(word_at(lab.sent()[0], 3), kConnProp);
  EXPECT_EQ(lab.finished.size(), 1u);
  // A call that cannot be the greeting is preceded by properties.
  Client other(options);
  other.submit({.payload = name_call(2000), .max_reply_bytes = 64});
  other.settle();
  ASSERT_EQ(other.sent().size(), 1u);
  EXPECT_EQ(word_at(other.sent()[0], 3), kConnProp);
}

TEST(V2Negotiation, V2_009_V2_044_an_error_as_first_answer_gives_one_credit_back) {
  Client lab;
  lab.submit_null();
  lab.submit_null();
  lab.answer(error(word_at(lab.sent()[0], 0), 2));
  EXPECT_EQ(lab.sent().size(), 1u);
}

TEST(V2Negotiation, V2_013_V2_014_V2_017_both_forms_of_err_vers_lead_to_version_1) {
  for (const Bytes& refusal : {words({0, 2, 32, 4, 1, 1, 1}), words({0, 1, 32, 4, 1, 1, 1}),
                               words({0, 2, 0x00200000, 4, 1, 1, 1, 1})}) {
    Client lab;
    const auto xid = lab.submit_null();
    lab.settle();
    Bytes answer = refusal;
    xdr::store_u32(answer.data(), word_at(lab.sent()[0], 0));
    lab.answer(answer);
    ASSERT_TRUE(lab.connection->is_open());
    EXPECT_EQ(lab.connection->version(), 1u);
    ASSERT_EQ(lab.sent().size(), 1u);
    EXPECT_EQ(word_at(lab.sent()[0], 0), *xid);
    EXPECT_EQ(word_at(lab.sent()[0], 1), 1u);
    EXPECT_EQ(lab.sent()[0].size(), 68u);
    lab.answer(ClientLab::success(*xid, 32));
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
    for (int i = 0; i < 40; ++i) {
      const auto next = lab.submit_null();
      lab.settle();
      lab.answer(ClientLab::success(*next, 32));
    }
    EXPECT_EQ(lab.finished.size(), 41u);
    // The next connections begin with version 1, for some time.
    lab.disconnect();
    lab.connect();
    EXPECT_EQ(lab.connection->version(), 1u);
    EXPECT_TRUE(lab.sent().empty());
    lab.disconnect();
    lab.now_ns += lab.options.connection.version2.version_1_memory_ns + 1;
    lab.settle();
    lab.connect();
    EXPECT_EQ(lab.connection->version(), 2u);
  }
}

TEST(V2Negotiation, V2_013_err_vers_to_a_call_as_greeting_sends_it_again) {
  LabOptions options = Client::defaults();
  options.connection.version2.greeting = rpcrdma::Greeting::Call;
  Client lab(options);
  const auto xid = lab.submit_null();
  lab.settle();
  lab.answer(words({*xid, 2, 32, 4, 1, 1, 1}));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_EQ(word_at(lab.sent()[0], 0), *xid);
  EXPECT_EQ(word_at(lab.sent()[0], 1), 1u);
  lab.answer(ClientLab::success(*xid, 32));
  EXPECT_EQ(lab.finished.at(0).status, CallStatus::Ok);
}

TEST(V2Negotiation, V2_014_without_a_common_version_it_gives_up) {
  Client lab;
  lab.answer(words({word_at(lab.sent()[0], 0), 2, 32, 4, 1, 5, 9}));
  EXPECT_FALSE(lab.connection->is_open());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::NoCommonVersion);
}

TEST(V2Negotiation, V2_013_V2_015_no_usable_answer_makes_the_next_connection_version_1) {
  for (const int kind : {0, 1, 2}) {
    Client lab;
    lab.submit_null();
    if (kind == 0) {
      lab.answer(words({word_at(lab.sent()[0], 0), 2, 32, 4, 2}));  // ERR_CHUNK
    } else if (kind == 1) {
      lab.pass(6'000'000'000);  // silence
      EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::NoAnswer);
    }
    lab.disconnect();
    lab.connect();
    EXPECT_EQ(lab.connection->version(), 1u) << kind;
    ASSERT_EQ(lab.sent().size(), 1u);
    EXPECT_EQ(word_at(lab.sent()[0], 1), 1u);
  }
}

// --- C, D: credits and thresholds

TEST(V2ClientCredits, V2_032_V2_034_V2_035_calls_go_out_as_far_as_the_server_has_granted) {
  for (const std::uint32_t limit : {0x00010000u, 0xffff0000u}) {
    Client lab;
    for (int i = 0; i < 10; ++i) lab.submit_null();
    lab.answer(Header{.xid = 0, .credit = limit | 3, .type = kNoMsg}.bytes());
    EXPECT_EQ(lab.sent().size(), 3u);
    lab.answer(grant(2));
    EXPECT_EQ(lab.sent().size(), 2u);
  }
}

TEST(V2ClientCredits, V2_033_V2_036_V2_041_V2_042_grants_when_the_server_runs_short) {
  Client lab;
  lab.confirm(100);
  lab.log.clear();
  std::int64_t unused = lab.connection->flow_control().unused();
  for (int i = 0; i < 200; ++i) {
    const auto xid = lab.submit_null();
    lab.settle();
    lab.peer->send(success(*xid, 0x00400001));
    lab.settle();
    lab.peer->send(success(0xabcd));  // an unknown XID: it only uses a credit
    lab.settle();
    unused = lab.connection->flow_control().unused();
    ASSERT_GE(unused, 0);
  }
  std::size_t grants = 0;
  for (const Op& op : lab.log.all(OpKind::PostSend)) {
    EXPECT_GE(word_at(op.content, 2) >> 16, 2u);
    if (!is_grant(op.content)) continue;
    ++grants;
    for (const std::size_t word : {0, 4, 5, 6, 7, 8}) EXPECT_EQ(word_at(op.content, word), 0u);
  }
  EXPECT_EQ(lab.finished.size(), 200u);
  const std::size_t before = lab.log.count(OpKind::PostSend);
  lab.pass(60'000'000'000);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), before);
}

TEST(V2ClientCredits, V2_042_a_grant_that_is_due_waits_one_turn_for_a_call_that_carries_it) {
  for (const bool calls : {false, true}) {
    Client lab;
    lab.confirm(100);
    const auto& flow = lab.connection->flow_control();
    const auto mark = static_cast<std::int32_t>(flow.window() / 2);
    const auto use_a_credit = [&] { lab.peer->send(success(0xabcd, 0x00400000)); };
    while (flow.unused() > mark + 1) {
      use_a_credit();
      lab.settle();
    }
    const std::uint64_t grants = lab.engine->counters().grants_sent;
    use_a_credit();
    lab.engine->poll(++lab.now_ns);
    EXPECT_EQ(flow.unused(), mark);
    EXPECT_EQ(lab.engine->counters().grants_sent, grants);
    if (calls) lab.submit_null();
    lab.engine->poll(++lab.now_ns);
    EXPECT_EQ(lab.engine->counters().grants_sent, grants + (calls ? 0 : 1));
    EXPECT_GT(flow.unused(), mark) << "by one or the other";
    lab.settle();
    EXPECT_EQ(lab.engine->counters().grants_sent, grants + (calls ? 0 : 1));
  }
}

TEST(V2ClientCredits, V2_036_a_server_without_credits_gets_some_in_the_same_turn) {
  LabOptions options = Client::defaults();
  options.connection.credits_requested = 2;  // a window of two is replenished when none is left
  options.connection.credit_grant = 0;
  Client lab(options);
  lab.confirm(100);
  const auto& flow = lab.connection->flow_control();
  const auto use_a_credit = [&] { lab.peer->send(success(0xabcd, 0x00400000)); };
  while (flow.unused() > 1) {
    use_a_credit();
    lab.settle();
  }
  const std::uint64_t grants = lab.engine->counters().grants_sent;
  use_a_credit();
  lab.engine->poll(++lab.now_ns);
  EXPECT_EQ(lab.engine->counters().grants_sent, grants + 1);
  EXPECT_GT(flow.unused(), 0);
}

TEST(V2ClientCredits, V2_040_keep_alive) {
  LabOptions options = Client::defaults();
  options.connection.version2.keep_alive_ns = 1'000'000'000;
  Client lab(options);
  lab.confirm();
  for (int i = 0; i < 3; ++i) {
    lab.peer->inbox.clear();
    lab.pass(1'100'000'000);
    ASSERT_EQ(lab.peer->inbox.size(), 1u);
    EXPECT_TRUE(is_grant(lab.peer->inbox[0].bytes));
  }
}

TEST(V2ClientThresholds, V2_049_V2_104_long_calls_or_continuation_and_reply_chunks) {
  const auto shape = [](std::uint32_t receive_bytes, std::uint32_t call_bytes, std::uint32_t reply_bytes) {
    Client lab;
    lab.peer->send(Header{.xid = 7, .credit = 0x00400100, .type = kConnProp}.then({1, 2, 4, receive_bytes}));
    lab.settle();
    lab.peer->inbox.clear();
    lab.submit({.payload = name_call(call_bytes), .max_reply_bytes = reply_bytes});
    lab.settle();
    return lab.sent();
  };
  EXPECT_EQ(shape(4096, 5000, 64).size(), 2u);
  EXPECT_EQ(shape(8192, 5000, 64).size(), 1u);
  const auto long_call = shape(4096, 20000, 64);
  ASSERT_EQ(long_call.size(), 1u);
  EXPECT_EQ(word_at(long_call[0], 3), kNoMsg);
  const auto small_reply = shape(4096, 100, 9000);
  EXPECT_EQ(word_at(small_reply.at(0), 8), 0u);  // the reply can be continued (V2-104)
  const auto large_reply = shape(4096, 100, 100000);
  EXPECT_EQ(word_at(large_reply.at(0), 8), 1u);
}

TEST(V2ClientThresholds, V2_050_segments_are_not_longer_than_the_peer_takes) {
  ReadClient lab;
  // This connection has sent its first, empty, set of properties, so the test needs a new one.
  lab.disconnect();
  lab.connect();
  lab.peer->send(Header{.xid = 7, .credit = 0x00400100, .type = kConnProp}.then({2, 3, 4, 65536, 4, 4, 16}));
  lab.settle();
  const Bytes call = lab.read(1u << 20, 0);
  EXPECT_EQ(word_at(call, 8), 16u);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(word_at(call, 10 + 4 * i), 65536u);
}

TEST(V2ClientThresholds, V2_051_no_more_segments_than_the_peer_takes) {
  ReadClient lab;
  lab.disconnect();
  lab.connect();
  lab.peer->send(Header{.xid = 7, .credit = 0x00400100, .type = kConnProp}.then({1, 4, 4, 2}));
  lab.settle();
  lab.peer->inbox.clear();
  // Position-zero chunk, Write chunk and Reply chunk are three segments, so the call is continued instead.
  const rdma::Sge piece{lab.memory.bytes.data(), 4096, lab.memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  const Bytes payload = name_call(20000);
  lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 100000});
  lab.settle();
  EXPECT_EQ(lab.sent().size(), 5u);
  EXPECT_EQ(word_at(lab.sent().back(), 3), kMsg);
  // Here the three segments cannot be avoided.
  const std::vector<rdma::Sge> pieces(3, piece);
  const rpcrdma::WriteItem three{.pieces = pieces};
  lab.submit({.payload = payload, .writes = {&three, 1}, .max_reply_bytes = 64});
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::TooLarge);
}

// --- Calls in parts

TEST(V2ClientContinuation, V2_020_V2_084_V2_090_parts_wait_for_credits) {
  Client lab;
  lab.answer(grant(2));
  const Bytes payload = name_call(16000);
  const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64});
  lab.submit_null();
  lab.settle();
  EXPECT_EQ(lab.sent().size(), 2u);
  std::vector<Bytes> parts = lab.sent();
  lab.answer(grant(3));
  for (const Bytes& part : lab.sent()) parts.push_back(part);
  ASSERT_EQ(parts.size(), 5u);
  Bytes joined;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(word_at(parts[i], 0), *xid);
    EXPECT_EQ(word_at(parts[i], 4), i < 3 ? kMore : 0u);
    for (std::size_t w = 5; w < 9; ++w) EXPECT_EQ(word_at(parts[i], w), 0u);
    append(joined, std::span(parts[i]).subspan(36));
  }
  EXPECT_EQ(word_at(joined, 0), *xid);
  EXPECT_TRUE(std::equal(joined.begin() + 4, joined.end(), payload.begin() + 4, payload.end()));
  lab.answer(success(*xid));
  EXPECT_EQ(lab.finished.size(), 1u);
}

TEST(V2ClientContinuation, V2_085_a_threshold_raised_in_the_middle_leaves_the_way_free_for_others) {
  Client lab;
  lab.answer(grant(1));
  const Bytes payload = name_call(12000);
  const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64});
  lab.settle();
  std::vector<Bytes> parts = lab.sent();
  ASSERT_EQ(parts.size(), 1u);
  lab.connection->apply({.send_bytes = 32768});
  lab.answer(grant(9));
  ASSERT_EQ(lab.sent().size(), 1u);
  parts.push_back(lab.sent()[0]);
  EXPECT_EQ(word_at(parts[1], 4), 0u);
  Bytes joined;
  for (const Bytes& part : parts) append(joined, std::span(part).subspan(36));
  EXPECT_TRUE(std::equal(joined.begin() + 4, joined.end(), payload.begin() + 4, payload.end()));
  lab.answer(null_call(77));  // a reply of our engine may be sent now
  EXPECT_EQ(lab.sent().size(), 1u);
  lab.answer(success(*xid));
  EXPECT_EQ(lab.finished.size(), 1u);
}

TEST(V2ClientContinuation, V2_145_a_call_that_is_cancelled_in_the_middle_is_sent_to_its_end) {
  Client lab;
  lab.answer(grant(2));
  const auto xid = lab.submit({.payload = name_call(16000), .max_reply_bytes = 64});
  lab.settle();
  EXPECT_TRUE(lab.requester->cancel(static_cast<rpc::Xid>(*xid)));
  EXPECT_TRUE(lab.finished.empty());
  lab.answer(grant(6));
  EXPECT_EQ(lab.sent().size(), 2u);
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Cancelled);
  lab.answer(success(*xid));
  EXPECT_EQ(lab.finished.size(), 1u);
  const auto next = lab.submit_null();
  lab.settle();
  lab.answer(success(*next));
  EXPECT_EQ(lab.finished.size(), 2u);
}

TEST(V2ClientContinuation, V2_084_V2_100_V2_101_a_continued_reply_is_joined) {
  ReadClient lab;
  const auto xid =
      lab.submit({.payload = test_call(0, 4, {10}), .max_reply_bytes = 40000, .offer_reply_chunk = true});
  lab.settle();
  Bytes payload = words({*xid, 1, 0, 0, 0, 0, 8000});
  payload.resize(28 + 8000);
  fill_pattern(std::span(payload).subspan(28), 2);
  lab.peer->send(Header{.xid = *xid, .flags = kResponse | kMore}.with(std::span(payload).first(4000)));
  lab.peer->send(grant(1));
  lab.peer->send(Header{.xid = *xid, .flags = kResponse}.with(std::span(payload).subspan(4000)));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
  EXPECT_EQ(lab.finished[0].message, payload);
  EXPECT_EQ(lab.engine->assembly_memory().available(), lab.options.engine.assembly_buffers);
}

TEST(V2ClientContinuation, V2_086_V2_094_V2_107_a_broken_reply_ends_its_call_and_is_not_answered) {
  Client lab;
  lab.confirm();
  const auto first = lab.submit_null();
  const auto second = lab.submit_null();
  const auto third = lab.submit_null();
  lab.settle();
  lab.peer->inbox.clear();
  lab.peer->send(Header{.xid = *first, .flags = kResponse | kMore}.with(words({*first, 1, 0, 0})));
  lab.peer->send(success(*second));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 2u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::UnusableReply);
  EXPECT_EQ(lab.finished[1].status, CallStatus::UnusableReply);
  lab.peer->send(Header{.xid = *first, .flags = kResponse}.with(words({0, 0})));
  lab.peer->send(success(*third));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 3u);
  EXPECT_EQ(lab.finished[2].status, CallStatus::Ok);
  EXPECT_TRUE(lab.sent().empty());
}

// --- J: remote invalidation

TEST(V2ClientInvalidation, V2_125_V2_130_the_named_handle_is_not_invalidated_twice) {
  ReadClient lab;
  const rdma::Sge pieces[2] = {{lab.memory.bytes.data(), 4096, lab.memory.lkey},
                               {lab.memory.bytes.data() + 8192, 4096, lab.memory.lkey}};
  const rpcrdma::WriteItem item{.pieces = pieces};
  const auto xid =
      lab.submit({.payload = test_call(0, 2, {8192}), .writes = {&item, 1}, .max_reply_bytes = 64}, {8192});
  lab.settle();
  const Bytes call = lab.sent().at(0);
  const std::uint32_t named = word_at(call, 5);
  EXPECT_EQ(named, word_at(call, 9));
  const std::uint32_t other = word_at(call, 13);
  lab.log.clear();
  const rpcrdma::Segment segments[2] = {
      {static_cast<rdma::Rkey>(named), 4096, std::uint64_t{word_at(call, 11)} << 32 | word_at(call, 12)},
      {static_cast<rdma::Rkey>(other), 4096, std::uint64_t{word_at(call, 15)} << 32 | word_at(call, 16)}};
  lab.peer->send(Header{.xid = *xid, .flags = kResponse, .writes = {{segments[0], segments[1]}}}.with(
                     words({*xid, 1, 0, 0, 0, 0, 0, 8192})),
                 static_cast<rdma::Rkey>(named));
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
  const auto invalidated = lab.log.all(OpKind::Invalidate);
  ASSERT_EQ(invalidated.size(), 1u);
  EXPECT_EQ(static_cast<std::uint32_t>(invalidated[0].rkey), other);
  // Both handles are invalid now.
  lab.peer->write_remote(segments[1], words({1}));
  lab.settle();
  EXPECT_TRUE(lab.peer->failed);
  EXPECT_EQ(lab.peer->first_error, rdma::WcStatus::RemoteAccessError);
}

TEST(V2ClientInvalidation, V2_126_not_named_when_it_is_switched_off) {
  LabOptions options = Client::defaults();
  options.requester.remote_invalidation = false;
  ReadClient lab(options);
  EXPECT_EQ(word_at(lab.read(4096, 16), 5), 0u);
}

TEST(V2ClientInvalidation, V2_126_not_named_nor_invalidated_by_a_device_without_it) {
  LabOptions options = Client::defaults();
  options.remote_invalidation = false;
  ReadClient lab(options);
  const Bytes call = lab.read(4096, 16);
  EXPECT_EQ(word_at(call, 5), 0u);
  EXPECT_EQ(word_at(call, 7), 1u);  // although it has a handle
  ReadClient with_it;
  const Bytes named = with_it.read(4096, 16);
  EXPECT_EQ(word_at(named, 5), word_at(named, 9));
  for (const bool feature : {false, true}) {
    LabOptions server_options = Server::defaults();
    server_options.remote_invalidation = feature;
    Server server(server_options);
    server.hello();
    const auto memory = server.peer->expose(64, rdma::kRemoteWrite);
    EXPECT_TRUE(has_pattern(memory.bytes, 1) == false);
    server.answer(Header{.xid = 1, .invalidate = handle(memory.segment), .writes = {{memory.segment}}}.with(
        test_call(1, TestService::kSource, {64})));
    EXPECT_TRUE(has_pattern(memory.bytes, 1));
    EXPECT_EQ(server.log.all(OpKind::PostSend).back().with_invalidate, feature);
  }
}

TEST(V2ClientInvalidation, V2_129_the_handle_of_another_call_ends_the_connection) {
  ReadClient lab;
  const Bytes first = lab.read(4096, 16);
  const Bytes second = lab.read(4096, 16);
  lab.peer->send(read_reply(word_at(first, 0), first, 16, 16), static_cast<rdma::Rkey>(word_at(second, 9)));
  lab.settle();
  EXPECT_FALSE(lab.connection->is_open());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::InvalidationError);
  for (const Finished& finished : lab.finished) EXPECT_NE(finished.status, CallStatus::Ok);
}

// --- K: reverse calls at the client

LabOptions reverse_client(rpcrdma::v2::ReverseSupport level) {
  LabOptions options = Client::defaults();
  options.connection.credit_grant = 8;
  options.connection.version2.parameters.reverse = level;
  return options;
}

TEST(V2Reverse, V2_026_V2_134_inline_calls_are_served_and_xids_are_two_spaces) {
  Client lab(reverse_client(rpcrdma::v2::ReverseSupport::Inline));
  EXPECT_EQ(word_at(lab.sent()[0], 20), 1u);
  lab.confirm();
  const auto forward = lab.submit_null();
  lab.settle();
  lab.answer(null_call(*forward));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_TRUE(is_success(lab.sent()[0], *forward));
  EXPECT_TRUE(lab.finished.empty());
  lab.answer(success(*forward));
  EXPECT_EQ(lab.finished.size(), 1u);
  // In parts.
  const Bytes payload = test_call(5, 0);
  lab.peer->send(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(16)));
  lab.peer->send(Header{.xid = 5, .flags = kMore}.with(std::span(payload).subspan(16, 8)));
  lab.answer(Header{.xid = 5}.with(std::span(payload).subspan(24)));
  EXPECT_TRUE(is_success(lab.sent().at(0), 5));
}

TEST(V2Reverse, V2_134_chunks_at_level_inline_are_refused) {
  Client lab(reverse_client(rpcrdma::v2::ReverseSupport::Inline));
  lab.confirm();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead | rdma::kRemoteWrite);
  lab.answer(Header{.xid = 1, .reads = {{44, memory.segment}}}.with(test_call(1, TestService::kSink, {64})));
  EXPECT_TRUE(is_error(lab.sent().at(0), 1, 5));
  EXPECT_EQ(word_at(lab.sent()[0], 6), 0u);
  lab.answer(Header{.xid = 2, .writes = {{memory.segment}}}.with(test_call(2, TestService::kSource, {64})));
  EXPECT_TRUE(is_error(lab.sent().at(0), 2, 9));
  EXPECT_EQ(word_at(lab.sent()[0], 6), 0u);
  lab.answer(Header{.xid = 3, .reply = {{memory.segment}}}.with(test_call(3, TestService::kList, {5000})));
  EXPECT_EQ(lab.sent().size(), 2u);  // continued: the Reply chunk is not used
  lab.answer(null_call(4));
  EXPECT_TRUE(is_success(lab.sent().at(0), 4));
}

TEST(V2Reverse, V2_137_what_a_silent_server_takes_is_seen_from_each_of_its_calls) {
  Client lab(reverse_client(rpcrdma::v2::ReverseSupport::General));
  lab.confirm();  // a grant announces no properties
  const auto sink = lab.peer->expose(16384, rdma::kRemoteWrite);
  for (std::uint32_t xid = 1; xid < 7; xid += 3) {
    std::fill(sink.bytes.begin(), sink.bytes.end(), std::byte{0});
    lab.log.clear();
    lab.answer(
        Header{.xid = xid, .writes = {{sink.segment}}}.with(test_call(xid, TestService::kSource, {64})));
    ASSERT_EQ(lab.sent().size(), 1u);
    EXPECT_EQ(word_at(lab.sent()[0], 10), 64u);
    EXPECT_TRUE(has_pattern(sink.bytes.first(64), 1));
    EXPECT_EQ(lab.log.count(OpKind::PostWrite), 1u);
    // Without lists a short result is inline, and a long one is continued.
    lab.log.clear();
    lab.answer(Header{.xid = xid + 1}.with(test_call(xid + 1, TestService::kSource, {64})));
    ASSERT_EQ(lab.sent().size(), 1u);
    EXPECT_TRUE(is_success(lab.sent()[0], xid + 1));
    EXPECT_TRUE(has_pattern(std::span(lab.sent()[0]).subspan(60 + 8, 64), 1));
    lab.answer(Header{.xid = xid + 2}.with(test_call(xid + 2, TestService::kList, {5000})));
    EXPECT_EQ(lab.sent().size(), 2u);
    for (const Bytes& part : lab.sent()) EXPECT_EQ(word_at(part, 3), kMsg);
    EXPECT_EQ(lab.log.count(OpKind::PostWrite) + lab.log.count(OpKind::PostRead), 0u);
  }
}

TEST(V2Reverse, V2_057_V2_133_calls_at_level_none_get_an_error_and_no_more) {
  LabOptions options = Client::defaults();
  options.connection.credit_grant = 0;
  Client lab(options);
  EXPECT_EQ(word_at(lab.sent()[0], 20), 0u);
  lab.confirm();
  lab.answer(null_call(1));
  ASSERT_EQ(lab.sent().size(), 1u);
  EXPECT_TRUE(is_error(lab.sent()[0], 1, 10));
  const auto xid = lab.submit_null();
  lab.settle();
  lab.answer(success(*xid));
  EXPECT_EQ(lab.finished.size(), 1u);
}

TEST(V2Reverse, V2_131_V2_135_V2_138_at_level_general_chunks_work_against_the_flow) {
  Client lab(reverse_client(rpcrdma::v2::ReverseSupport::General));
  EXPECT_EQ(word_at(lab.sent()[0], 20), 2u);
  lab.confirm();
  const auto source = lab.peer->expose(64, rdma::kRemoteRead);
  const auto sink = lab.peer->expose(16384, rdma::kRemoteWrite);
  fill_pattern(source.bytes, 5);
  lab.answer(
      Header{.xid = 1, .reads = {{44, source.segment}}}.with(test_call(1, TestService::kSink, {64, 1})));
  EXPECT_TRUE(is_success(lab.sent().at(0), 1));
  EXPECT_TRUE(has_pattern(lab.service->last_data, 5));
  lab.log.clear();
  lab.answer(Header{
      .xid = 2, .invalidate = static_cast<std::uint32_t>(sink.segment.handle), .writes = {{sink.segment}}}
                 .with(test_call(2, TestService::kSource, {64})));
  EXPECT_TRUE(has_pattern(sink.bytes.first(64), 1));
  EXPECT_TRUE(lab.log.all(OpKind::PostSend).at(0).with_invalidate);
  const Bytes payload = test_call(3, TestService::kList, {9000});
  const auto call = lab.peer->expose(payload.size(), rdma::kRemoteRead);
  std::copy(payload.begin(), payload.end(), call.bytes.begin());
  const auto reply = lab.peer->expose(16384, rdma::kRemoteWrite);
  lab.answer(
      Header{.xid = 3, .type = kNoMsg, .reads = {{0, call.segment}}, .reply = {{reply.segment}}}.bytes());
  EXPECT_EQ(word_at(lab.sent().at(0), 3), kNoMsg);
  EXPECT_EQ(word_at(reply.bytes, 6), 9000u);
}

}  // namespace
}  // namespace sluice::conformance::v2
