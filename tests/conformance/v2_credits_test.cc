// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: credits, grants and the limits of both.
#include <gtest/gtest.h>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

/// Checks by the log that a Receive is posted for each granted, unused credit, and one more.
void expect_receives_behind_credits(const OpLog& log) {
  std::int64_t posted = 0;
  std::int64_t unused = 1;
  for (const Op& op : log.ops()) {
    if (op.kind == OpKind::PostReceive) ++posted;
    if (op.kind == OpKind::ReceiveDone) --posted, --unused;
    if (op.kind != OpKind::PostSend) continue;
    if (word_at(op.content, 3) != kError) unused += word_at(op.content, 2) & 0xffff;
    ASSERT_GE(posted, unused + 1);
  }
}

TEST(V2Credits, V2_034_V2_035_V2_139_replies_go_out_as_far_as_the_client_has_granted) {
  for (const std::uint32_t limit : {0x00010000u, 0xffff0000u}) {
    Server lab;
    // The server begins with one credit; with three more it can send the greeting and three replies.
    lab.peer->send(Header{.xid = 1, .credit = limit | 3, .type = kConnProp}.then({0}));
    lab.settle();
    for (std::uint32_t xid = 10; xid < 20; ++xid) lab.peer->send(null_call(xid, limit));
    lab.settle();
    EXPECT_EQ(lab.answers().size(), 3u);
    lab.peer->send(grant(4));
    lab.settle();
    EXPECT_EQ(lab.answers().size(), 7u);
    lab.peer->send(grant(10));
    lab.settle();
    EXPECT_EQ(lab.answers().size(), 10u);
    EXPECT_FALSE(lab.peer->failed);
  }
}

/// Only the credits can wake the replies: no Send is outstanding whose completion would do so, and the call
/// that brings the credits is not answered yet.
TEST(V2Credits, V2_034_replies_that_wait_go_out_with_the_credits_of_a_call) {
  Server lab;
  lab.hello(1);  // the greeting, and one reply
  for (std::uint32_t xid = 10; xid < 13; ++xid) lab.peer->send(null_call(xid, 0x00400000));
  lab.settle();
  ASSERT_EQ(lab.answers().size(), 1u);
  lab.peer->send(Header{.xid = 20, .credit = 0x00400002}.with(test_call(20, TestService::kLater)));
  lab.settle();
  EXPECT_EQ(lab.service->held(), 1u);
  EXPECT_EQ(lab.answers().size(), 3u);
}

TEST(V2Credits, V2_037_the_window_changes_while_calls_are_in_flight) {
  Server lab;
  lab.hello();
  for (std::uint32_t xid = 1; xid <= 40; ++xid)
    lab.peer->send(Header{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.settle();
  lab.connection->set_credits(8);
  EXPECT_EQ(lab.service->held(), 40u);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.answers().size(), 40u);
  std::uint32_t xid = 100;
  const auto in_rounds = [&](int rounds) {
    Bytes last;
    for (int i = 0; i < rounds; ++i, ++xid) last = lab.answer(null_call(xid));
    return word_at(last, 2) >> 16;
  };
  EXPECT_EQ(in_rounds(64), 8u);
  EXPECT_EQ(lab.connection->flow_control().most_receives(), 9u);
  EXPECT_LE(lab.connection->flow_control().unused(), 8);
  lab.connection->set_credits(64);
  EXPECT_EQ(in_rounds(64), 64u);
  lab.settle();
  EXPECT_GT(lab.connection->flow_control().unused(), 8);
}

TEST(V2Credits, V2_038_no_grant_goes_out_before_its_receive_is_posted) {
  Server lab;
  lab.hello();
  std::uint32_t xid = 1;
  for (int round = 0; round < 60; ++round) {
    for (int i = 0; i < 20; ++i, ++xid)
      lab.peer->send(Header{.xid = xid, .credit = 0x00400004}.with(
          test_call(xid, xid % 5 == 0 ? TestService::kList : TestService::kNull, {9000})));
    lab.settle();
  }
  expect_receives_behind_credits(lab.log);
  EXPECT_FALSE(lab.peer->failed);
}

/// Calls hold their Receives while the window shrinks. Receives beyond the window are kept back when they are
/// returned, and no reply may grant a credit for one of them.
TEST(V2Credits, V2_037_V2_038_no_credit_stands_for_a_receive_that_a_smaller_window_keeps) {
  Server lab;
  lab.hello();
  std::uint32_t xid = 1;
  for (const std::uint32_t window : {8u, 64u, 3u, 40u, 1u}) {
    const std::int32_t credits = lab.connection->flow_control().unused();
    ASSERT_GT(credits, 0);
    for (std::int32_t i = 0; i < credits; ++i, ++xid)
      lab.peer->send(Header{.xid = xid}.with(test_call(xid, TestService::kLater)));
    lab.settle();
    lab.connection->set_credits(window);
    for (; lab.service->held() > 0; lab.settle()) lab.service->complete_oldest();
    for (int i = 0; i < 64; ++i, ++xid) EXPECT_TRUE(lab.alive2(xid));
  }
  expect_receives_behind_credits(lab.log);
  EXPECT_FALSE(lab.peer->failed);
}

TEST(V2Credits, V2_039_a_grant_is_taken_beyond_all_credits) {
  LabOptions options = Server::defaults();
  options.connection.credit_grant = 4;
  Server lab(options);
  lab.hello(1);  // the greeting and one answer
  const std::int32_t unused = lab.connection->flow_control().unused();
  for (std::int32_t i = 0; i < unused; ++i)
    lab.peer->send(null_call(0x100u + static_cast<std::uint32_t>(i), 0x00400000));
  lab.settle();
  lab.peer->send(grant(16));
  lab.settle();
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_EQ(lab.answers().size(), static_cast<std::size_t>(unused));
}

TEST(V2Credits, V2_043_a_peer_that_sends_more_than_it_was_granted_is_cut_off) {
  LabOptions options = Server::defaults();
  options.connection.credit_grant = 4;
  Server lab(options);
  lab.hello();
  for (std::uint32_t xid = 1; xid <= 6; ++xid)
    lab.peer->send(Header{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.settle();
  EXPECT_FALSE(lab.connection->is_open());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::CreditOverrun);
  EXPECT_EQ(lab.counters().credit_overruns, 1u);
  lab.service->complete_later();
  lab.reconnect();
  lab.hello();
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Credits, V2_043_grants_are_capped) {
  Server lab;
  lab.hello();
  for (int i = 0; i < 2000; ++i) {
    lab.peer->send(grant(65535));
    if (i % 16 == 0) lab.settle();
  }
  lab.settle();
  EXPECT_LE(lab.connection->flow_control().balance(), 65535);
  EXPECT_GT(lab.counters().grants_capped, 1000u);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Credits, V2_041_a_grant_is_known_by_its_empty_lists_alone) {
  Server lab;
  lab.hello(0);
  std::int32_t balance = lab.connection->flow_control().balance();
  for (const Header& header :
       {Header{.xid = 0, .credit = 0x00400003, .type = kNoMsg},
        Header{.xid = 0x55, .credit = 0x00400003, .type = kNoMsg},
        Header{.xid = 0, .credit = 0x00400003, .type = kNoMsg, .invalidate = 5},
        Header{.xid = 0x55, .credit = 0x00400003, .type = kNoMsg, .flags = kResponse}}) {
    EXPECT_TRUE(lab.ask(header.bytes()).empty());
    balance += 3;
    EXPECT_EQ(lab.connection->flow_control().balance(), balance);
  }
  EXPECT_EQ(lab.engine->counters().calls_received, 0u);
}

TEST(V2Credits, V2_009_V2_044_V2_106_errors_grant_nothing) {
  Server lab;
  lab.hello();
  const std::int32_t unused = lab.connection->flow_control().unused();
  const Bytes answer = lab.answer(Header{.xid = 0x61, .type = 9}.bytes());
  EXPECT_EQ(word_at(answer, 2), 0x00400000u);
  EXPECT_EQ(word_at(answer, 1), 2u);
  EXPECT_EQ(lab.connection->flow_control().unused(), unused - 1);
  const std::int32_t balance = lab.connection->flow_control().balance();
  lab.peer->send(Header{.xid = 5, .credit = 0x004003e8, .type = kError, .flags = kResponse}.then({2}));
  lab.settle();
  EXPECT_EQ(lab.connection->flow_control().balance(), balance);
}

}  // namespace
}  // namespace sluice::conformance::v2
