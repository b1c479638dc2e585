// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the requester: a call that just fits a limit is sent, and one that exceeds it by one is not.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

constexpr std::uint32_t kHeader = 28;

/// Returns true if the call was sent, false if it ended immediately as too large.
bool is_sent(ClientLab& lab, const rpcrdma::Request& request) {
  lab.peer->inbox.clear();
  lab.finished.clear();
  const auto xid = lab.submit(request);
  EXPECT_TRUE(xid);
  lab.settle();
  if (lab.peer->inbox.size() == 1) {
    EXPECT_TRUE(lab.finished.empty());
    lab.peer->send(ClientLab::success(*xid, 4));
    lab.settle();
    EXPECT_EQ(lab.finished.size(), 1u);
    return true;
  }
  EXPECT_TRUE(lab.peer->inbox.empty());
  EXPECT_EQ(lab.finished.size(), 1u);
  if (lab.finished.size() == 1) {
    EXPECT_EQ(lab.finished[0].status, CallStatus::TooLarge);
  }
  return false;
}

TEST(RequesterLimits, V1_067_a_header_as_long_as_the_room_for_it) {
  for (const std::uint32_t segments : {10u, 11u}) {
    LabOptions options;
    options.requester.inline_bytes = kHeader + 8 + 10 * 16;
    options.requester.max_segment_bytes = 64;
    ClientLab lab(options);
    const CallerMemory memory = caller_memory(lab, 4096);
    const rdma::Sge piece = memory.piece(0, segments * 64);
    const rpcrdma::WriteItem item{{&piece, 1}};
    const bool sent = is_sent(lab, {.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
    EXPECT_EQ(sent, segments == 10) << segments;
  }
}

TEST(RequesterLimits, V1_067_a_header_as_long_as_the_threshold) {
  // A position-zero chunk of one segment takes 24 bytes more.
  for (const std::uint32_t segments : {58u, 59u}) {
    LabOptions options;
    options.requester.max_segment_bytes = 64;
    options.connection.send_inline_bytes = kHeader + 8 + 58 * 16 + 24;
    ClientLab lab(options);
    const CallerMemory memory = caller_memory(lab, 4096);
    const rdma::Sge piece = memory.piece(0, segments * 64);
    const rpcrdma::WriteItem item{{&piece, 1}};
    const Bytes payload = rpc_call(0, kTestProgram, 1, 0);
    const bool sent =
        is_sent(lab, {.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64, .as_long_call = true});
    EXPECT_EQ(sent, segments == 58) << segments;
  }
}

TEST(RequesterLimits, V1_067_as_many_segments_as_a_request_can_have) {
  constexpr auto kMost = static_cast<std::uint32_t>(rpcrdma::kMaxRequestSegments);
  for (const std::uint32_t windows : {kMost, kMost - 1, 512u}) {
    for (const std::uint32_t segments : {kMost - 1, kMost, kMost + 1}) {
      LabOptions options;
      options.requester.max_segment_bytes = 64;
      options.requester.windows = windows;
      options.connection.send_inline_bytes = 4096;
      options.raw_receive_bytes = 4096;
      ClientLab lab(options);
      const CallerMemory memory = caller_memory(lab, (kMost + 1) * 64);
      const rdma::Sge piece = memory.piece(0, segments * 64);
      const rpcrdma::WriteItem item{{&piece, 1}};
      const bool sent = is_sent(lab, {.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64});
      EXPECT_EQ(sent, segments <= std::min(kMost, windows))
          << segments << " segments, " << windows << " windows";
    }
  }
}

TEST(RequesterLimits, segments_are_as_long_as_they_may_be) {
  for (const std::uint32_t bytes : {127u, 128u, 129u}) {
    LabOptions options;
    options.requester.max_segment_bytes = 64;
    ClientLab lab(options);
    const CallerMemory memory = caller_memory(lab, 4096);
    const rdma::Sge piece = memory.piece(0, bytes);
    const rpcrdma::WriteItem write{{&piece, 1}};
    const rpcrdma::ReadItem read{rpcrdma::Position{44}, {&piece, 1}};
    Bytes payload = test_call(0, TestService::kSink, {bytes});
    lab.submit({.payload = payload,
                .reads = {&read, 1},
                .writes = {&write, 1},
                .max_reply_bytes = bytes,
                .as_long_call = true,
                .offer_reply_chunk = true});
    lab.settle();
    const Offer offer = offer_in(got(lab, 0));
    const auto expect_lengths = [&](auto&& length_of, std::size_t count, std::uint32_t total) {
      ASSERT_EQ(count, (total + 63) / 64);
      for (std::size_t i = 0; i + 1 < count; ++i) EXPECT_EQ(length_of(i), 64u);
      EXPECT_EQ(length_of(count - 1), total - 64 * (count - 1));
    };
    ASSERT_EQ(offer.reads.size(), 1 + (bytes + 63) / 64);
    EXPECT_EQ(offer.reads[0].position, rpcrdma::Position{0});
    EXPECT_EQ(offer.reads[0].target.length, 44u);
    expect_lengths([&](std::size_t i) { return offer.reads[i + 1].target.length; }, offer.reads.size() - 1,
                   bytes);
    expect_lengths([&](std::size_t i) { return offer.writes.at(0)[i].length; }, offer.writes.at(0).size(),
                   bytes);
    expect_lengths([&](std::size_t i) { return (*offer.reply)[i].length; }, offer.reply->size(), bytes);
  }
}

TEST(RequesterLimits, V1_118_long_calls_and_replies_as_long_as_their_buffers) {
  LabOptions options;
  options.requester.long_buffers = 2;
  options.requester.long_buffer_bytes = 8192;
  ClientLab lab(options);
  for (const std::uint32_t bytes : {8188u, 8192u, 8196u}) {
    const bool sent = is_sent(lab, {.payload = null_call(), .max_reply_bytes = bytes});
    EXPECT_EQ(sent, bytes <= 8192) << bytes;
    Bytes payload = null_call();
    payload.resize(bytes);
    const bool sent_long = is_sent(lab, {.payload = payload, .max_reply_bytes = 64});
    EXPECT_EQ(sent_long, bytes <= 8192) << bytes;
  }
}

TEST(RequesterLimits, a_payload_that_needs_a_long_buffer_is_not_taken_without_one) {
  LabOptions options;
  options.requester.long_buffers = 1;
  options.requester.inline_bytes = 2048;
  ClientLab lab(options);
  Bytes payload = null_call();
  payload.resize(2052);
  ASSERT_TRUE(lab.submit({.payload = payload, .max_reply_bytes = 64}));
  EXPECT_FALSE(lab.submit({.payload = payload, .max_reply_bytes = 64}));
  payload.resize(2048);
  EXPECT_TRUE(lab.submit({.payload = payload, .max_reply_bytes = 64}));
}

TEST(RequesterLimits, items_and_pieces_of_a_request) {
  LabOptions options;
  options.connection.send_inline_bytes = 4096;
  options.raw_receive_bytes = 4096;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 65536);
  std::vector<rdma::Sge> pieces;
  for (std::uint32_t i = 0; i < 40; ++i) pieces.push_back(memory.piece(i * 1024, 16));
  const auto all = std::span<const rdma::Sge>(pieces);
  const Bytes payload = null_call();
  constexpr std::size_t kPieces = rpcrdma::kMaxRequestPieces;
  for (const std::size_t count : {kPieces, kPieces + 1}) {
    const rpcrdma::WriteItem write{all.first(count)};
    const bool sent = is_sent(lab, {.payload = payload, .writes = {&write, 1}, .max_reply_bytes = 64});
    EXPECT_EQ(sent, count == kPieces);
    // The pieces are in two items, one of each kind.
    const rpcrdma::WriteItem rest{all.first(count - 20)};
    const rpcrdma::ReadItem read{rpcrdma::Position{40}, all.first(20)};
    const bool both =
        is_sent(lab, {.payload = payload, .reads = {&read, 1}, .writes = {&rest, 1}, .max_reply_bytes = 64});
    EXPECT_EQ(both, count == kPieces);
  }
  std::vector<rpcrdma::ReadItem> reads(rpcrdma::kMaxReadItems + 1, {rpcrdma::Position{40}, all.first(1)});
  std::vector<rpcrdma::WriteItem> writes(rpcrdma::kMaxWriteItems + 1, {.pieces = all.first(1)});
  for (const std::size_t more : {0u, 1u}) {
    const rpcrdma::Request reading{.payload = payload,
                                   .reads = std::span(reads).first(rpcrdma::kMaxReadItems + more),
                                   .max_reply_bytes = 64};
    EXPECT_EQ(is_sent(lab, reading), more == 0);
    const rpcrdma::Request writing{.payload = payload,
                                   .writes = std::span(writes).first(rpcrdma::kMaxWriteItems + more),
                                   .max_reply_bytes = 64};
    EXPECT_EQ(is_sent(lab, writing), more == 0);
  }
  const bool sent = is_sent(lab, {.payload = std::span(payload).first(36), .max_reply_bytes = 64});
  EXPECT_FALSE(sent);
  EXPECT_EQ(lab.requester->free_requests(), options.requester.requests);
}

TEST(RequesterLimits, bounce_buffers_hold_what_just_fits_them) {
  LabOptions options;
  options.requester.single_segment_chunks = true;
  options.requester.bounce_buffers = 1;
  options.requester.bounce_buffer_bytes = 256;
  ClientLab lab(options);
  const CallerMemory memory = caller_memory(lab, 4096);
  for (const std::uint32_t bytes : {59u, 60u, 61u, 64u}) {
    // The call has an argument of 196 bytes or less, round-up included, and a result.
    const rdma::Sge argument[] = {memory.piece(0, 100), memory.piece(512, 93)};
    const rdma::Sge result[] = {memory.piece(1024, 16), memory.piece(2048, bytes - 16)};
    const rpcrdma::ReadItem read{rpcrdma::Position{40}, argument};
    const rpcrdma::WriteItem write{result};
    const bool sent = is_sent(
        lab, {.payload = null_call(), .reads = {&read, 1}, .writes = {&write, 1}, .max_reply_bytes = 64});
    EXPECT_EQ(sent, bytes <= 60) << bytes;
  }
}

// --- Replies

/// A denied reply is the shortest possible reply: 20 bytes.
TEST(RequesterLimits, V1_036_the_shortest_reply_and_less) {
  for (const bool in_chunk : {false, true}) {
    for (const std::size_t count : {5u, 4u}) {
      ClientLab lab;
      const Bytes payload = null_call();
      const auto xid = lab.submit({.payload = payload, .max_reply_bytes = 64, .offer_reply_chunk = in_chunk});
      lab.settle();
      Bytes reply = words({*xid, 1, 1, 1, 5});
      reply.resize(4 * count);
      if (in_chunk) {
        auto chunk = *offer_in(got(lab, 0)).reply;
        lab.peer->write_remote(chunk[0], reply);
        chunk[0].length = static_cast<std::uint32_t>(reply.size());
        lab.peer->send(RawCall{.xid = *xid, .credits = 4, .proc = 1, .reply = chunk}.header());
      } else {
        lab.peer->send(RawCall{.xid = *xid, .credits = 4}.with(reply));
      }
      lab.settle();
      ASSERT_EQ(lab.finished.size(), 1u);
      EXPECT_EQ(lab.finished[0].status, count == 5 ? CallStatus::Ok : CallStatus::UnusableReply);
      EXPECT_EQ(lab.finished[0].message, count == 5 ? reply : Bytes{});
    }
  }
}

TEST(RequesterLimits, V1_142_a_call_times_out_at_its_deadline_and_not_before) {
  ClientLab lab;
  const Bytes payload = null_call();
  lab.submit({.payload = payload, .max_reply_bytes = 64, .deadline_ns = 5000});
  const auto xid = lab.submit_null();  // finds no credit
  lab.settle();
  lab.requester->expire(4999);
  EXPECT_TRUE(lab.finished.empty());
  lab.requester->expire(5000);
  lab.settle();
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::TimedOut);
  lab.requester->expire(~std::uint64_t{0});
  EXPECT_EQ(lab.finished.size(), 1u);
  EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
}

// --- Reverse calls

TEST(RequesterLimits, V1_167_V1_168_a_reverse_call_has_no_chunks_however_long_its_reply) {
  LabOptions options;
  options.engine.capacity.requests = 4;
  options.connection.credits_requested = 4;
  ServerLab lab(options);
  rpcrdma::Requester callbacks(lab.engine->requester_context(), *lab.device,
                               {.requests = 4, .inline_bytes = 1024, .windows = 8, .reverse = true});
  lab.requester_for_next_connection = &callbacks;
  lab.reconnect();
  const Bytes payload = rpc_call(0, 0x40000000, 1, 0);
  const auto xid = callbacks.submit({.payload = payload, .max_reply_bytes = 100000});
  ASSERT_TRUE(xid);
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  const auto number = static_cast<std::uint32_t>(*xid);
  const RawCall expected{.xid = number, .credits = 4};
  EXPECT_EQ(lab.peer->inbox[0].bytes, expected.with(rpc_call(number, 0x40000000, 1, 0)));
  EXPECT_EQ(lab.log.count(OpKind::Bind), 0u);
  lab.peer->send(ClientLab::success(number, 4));
  lab.settle();
  EXPECT_EQ(callbacks.outstanding(), 0u);
  lab.peer->owned_qp.reset();
  lab.settle();
}

TEST(RequesterLimits, its_number_of_requests_is_a_power_of_two) {
  ClientLab lab;
  const auto make = [&](std::uint32_t requests) {
    const rpcrdma::RequesterConfig config{.requests = requests, .inline_bytes = 64, .windows = 0};
    rpcrdma::Requester(lab.engine->requester_context(), *lab.device, config);
  };
  EXPECT_NO_THROW(make(1));
  EXPECT_NO_THROW(make(rpcrdma::kMaxCredits));
  EXPECT_THROW(make(3), SetupError);
  EXPECT_THROW(make(2 * rpcrdma::kMaxCredits), SetupError);
}

}  // namespace
}  // namespace sluice::conformance
