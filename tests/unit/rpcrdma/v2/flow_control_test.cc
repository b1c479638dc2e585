// SPDX-License-Identifier: Apache-2.0
//
// Credit arithmetic and the sequence of parts of version 2, step by step.
#include <gtest/gtest.h>

#include "dataplane/rpcrdma/connection.h"

namespace sluice::rpcrdma::v2 {
namespace {

using Arrival = FlowControl::Arrival;

FlowControl opened(std::uint32_t window, bool client = false) {
  FlowControl flow;
  flow.open(window, client);
  return flow;
}

TEST(FlowControl, V2_036_a_window_is_two_or_more_and_what_a_credit_word_can_say) {
  for (const auto& [asked, given] :
       {std::pair{0u, 2u}, {1u, 2u}, {2u, 2u}, {3u, 3u}, {65534u, 65534u}, {65535u, 65534u}, {~0u, 65534u}}) {
    EXPECT_EQ(opened(asked).window(), given);
    FlowControl flow = opened(10);
    flow.set_window(asked);
    EXPECT_EQ(flow.window(), given);
    EXPECT_EQ(flow.most_receives(), given + 1);
  }
}

TEST(FlowControl, V2_034_V2_035_each_end_begins_with_one_credit) {
  FlowControl flow = opened(8);
  EXPECT_EQ(flow.balance(), 1);
  EXPECT_EQ(flow.unused(), 1);
  EXPECT_EQ(flow.peer_limit(), 0u);
  flow.on_send({5, 8});
  EXPECT_EQ(flow.balance(), 0);
  EXPECT_EQ(flow.unused(), 6);
  EXPECT_TRUE(flow.on_credits({3, 9}));
  EXPECT_EQ(flow.balance(), 3);
  EXPECT_EQ(flow.peer_limit(), 9u);
  flow.open(4, false);
  EXPECT_EQ(flow.balance(), 1);
  EXPECT_EQ(flow.unused(), 1);
  EXPECT_EQ(flow.peer_limit(), 0u);
}

TEST(FlowControl, V2_039_V2_043_one_message_beyond_the_credits_is_the_reserve) {
  FlowControl flow = opened(8);
  EXPECT_EQ(flow.on_receive(), Arrival::Credited);
  EXPECT_EQ(flow.unused(), 0);
  EXPECT_EQ(flow.on_receive(), Arrival::Reserve);
  EXPECT_EQ(flow.on_receive(), Arrival::Overrun);
  EXPECT_EQ(flow.on_receive(), Arrival::Overrun);
  EXPECT_EQ(flow.unused(), -3);
}

TEST(FlowControl, V2_043_no_more_credits_count_than_can_be_counted) {
  FlowControl flow = opened(8);
  EXPECT_TRUE(flow.on_credits({65534, 1}));
  EXPECT_EQ(flow.balance(), 65535);
  EXPECT_FALSE(flow.on_credits({1, 1}));
  EXPECT_EQ(flow.balance(), 65535);
  flow.on_send({});
  EXPECT_TRUE(flow.on_credits({1, 1}));
  EXPECT_FALSE(flow.on_credits({2, 1}));
  EXPECT_EQ(flow.balance(), 65535);
}

/// The single step counts the same as both steps together, or nothing.
TEST(FlowControl, V2_039_V2_043_a_message_in_order_is_counted_in_one_step) {
  FlowControl flow = opened(10);
  EXPECT_FALSE(flow.on_credited_message({4, 10})) << "the first";
  EXPECT_EQ(flow.on_receive(), Arrival::Credited);
  EXPECT_TRUE(flow.on_credits({4, 10}));
  EXPECT_FALSE(flow.on_credited_message({4, 10})) << "no credit for it";
  flow.on_send({2, 10});
  EXPECT_FALSE(flow.on_credited_message({4, 9})) << "another limit";
  EXPECT_FALSE(flow.on_credited_message({4, 0})) << "a limit of zero is counted";
  EXPECT_FALSE(flow.on_credited_message({65535, 10})) << "more than can be counted";
  EXPECT_EQ(flow.unused(), 2);
  EXPECT_EQ(flow.balance(), 4);
  EXPECT_EQ(flow.peer_limit(), 10);
  EXPECT_TRUE(flow.on_credited_message({3, 10}));
  EXPECT_EQ(flow.unused(), 1);
  EXPECT_EQ(flow.balance(), 7);
}

TEST(FlowControl, V2_038_what_is_offered_has_a_receive_behind_it_and_one_is_kept) {
  FlowControl flow = opened(8);
  // The peer has one credit from the beginning.
  EXPECT_EQ(flow.offer(9), (CreditWord{7, 8}));
  EXPECT_EQ(flow.offer(100), (CreditWord{7, 8}));
  EXPECT_EQ(flow.offer(8).granted(), 6u);
  EXPECT_EQ(flow.offer(3).granted(), 1u);
  EXPECT_EQ(flow.offer(2).granted(), 0u);
  EXPECT_EQ(flow.offer(0).granted(), 0u);
  flow.on_send({7, 8});
  EXPECT_EQ(flow.offer(9).granted(), 0u);
  EXPECT_EQ(flow.on_receive(), Arrival::Credited);
  EXPECT_EQ(flow.offer(8).granted(), 0u);
  EXPECT_EQ(flow.offer(9).granted(), 1u);
  FlowControl wide = opened(65534);
  EXPECT_EQ(wide.on_receive(), Arrival::Credited);
  EXPECT_EQ(wide.on_receive(), Arrival::Reserve);
  EXPECT_EQ(wide.offer(65535).granted(), 65535u) << "all of them and the reserve";
}

TEST(FlowControl, V2_042_a_grant_is_due_when_half_the_window_is_left_and_there_is_something_to_grant) {
  for (const auto& [window, mark] : {std::pair{2u, 0}, {3u, 1}, {4u, 2}, {8u, 4}, {9u, 4}}) {
    FlowControl flow = opened(window);
    EXPECT_FALSE(flow.grant_due(window + 1)) << "nothing was received yet";
    static_cast<void>(flow.on_credits({10, 1}));
    flow.on_send(flow.offer(window + 1));
    ASSERT_EQ(flow.unused(), static_cast<std::int32_t>(window));
    while (flow.unused() > mark + 1) static_cast<void>(flow.on_receive());
    EXPECT_FALSE(flow.grant_due(window + 1)) << window;
    static_cast<void>(flow.on_receive());
    ASSERT_EQ(flow.unused(), mark);
    EXPECT_TRUE(flow.grant_due(window + 1)) << window;
    EXPECT_FALSE(flow.grant_due(static_cast<std::uint32_t>(mark) + 1)) << "no Receive is behind it";
  }
}

TEST(FlowControl, V2_039_V2_042_the_reserve_is_for_one_grant) {
  FlowControl flow = opened(8);
  static_cast<void>(flow.on_receive());
  flow.on_error();  // received, but it grants no credit
  EXPECT_EQ(flow.balance(), 1);
  EXPECT_TRUE(flow.grant_due(9));
  flow.on_send({0, 8});
  EXPECT_EQ(flow.balance(), 0);
  EXPECT_TRUE(flow.grant_due(9));
  flow.on_send({0, 8});
  EXPECT_EQ(flow.balance(), -1);
  EXPECT_FALSE(flow.grant_due(9));
}

TEST(FlowControl, V2_009_V2_044_errors_before_the_first_grant_give_the_client_its_credit_back) {
  FlowControl client = opened(8, true);
  client.on_send({3, 8});
  EXPECT_EQ(client.balance(), 0);
  client.on_error();
  EXPECT_EQ(client.balance(), 1);
  static_cast<void>(client.on_credits({1, 1}));
  client.on_error();
  EXPECT_EQ(client.balance(), 2);
  // The server's arithmetic is symmetric: an error that it sends leaves the client its first credit.
  FlowControl server = opened(8);
  server.on_error();
  EXPECT_EQ(server.balance(), 1);
  static_cast<void>(server.on_receive());
  EXPECT_EQ(server.unused(), 0);
  server.on_send_error();
  EXPECT_EQ(server.unused(), 1);
  EXPECT_EQ(server.balance(), 0);
  server.on_send({0, 8});
  server.on_send_error();
  EXPECT_EQ(server.unused(), 1);
  EXPECT_EQ(server.balance(), -2);
  FlowControl other = opened(8, true);
  other.on_send_error();
  EXPECT_EQ(other.unused(), 1);
}

// --- Parts

using Step = InboundSequence::Step;

InboundSequence::Identity message(std::uint32_t xid, bool response = false,
                                  HeaderType type = HeaderType::Msg) {
  return {static_cast<rpc::Xid>(xid), type, response};
}

TEST(InboundSequence, V2_084_V2_086_parts_of_one_message) {
  InboundSequence sequence;
  EXPECT_EQ(sequence.next(message(1), false), Step::Whole);
  EXPECT_TRUE(sequence.idle());
  EXPECT_EQ(sequence.next(message(1), true), Step::First);
  EXPECT_TRUE(sequence.in_progress());
  EXPECT_FALSE(sequence.idle());
  EXPECT_EQ(sequence.current(), message(1));
  EXPECT_EQ(sequence.next(message(1), true), Step::Middle);
  EXPECT_EQ(sequence.next(message(1), false), Step::Last);
  EXPECT_TRUE(sequence.idle());
  EXPECT_EQ(sequence.next(message(1), false), Step::Whole);
}

TEST(InboundSequence, V2_086_another_xid_type_or_direction_is_another_message) {
  for (const auto& other : {message(2), message(1, true), message(1, false, HeaderType::ConnProp)}) {
    for (const bool more : {false, true}) {
      InboundSequence sequence;
      EXPECT_EQ(sequence.next(message(1), true), Step::First);
      EXPECT_EQ(sequence.next(other, more), Step::Broken);
      EXPECT_EQ(sequence.broken(), message(1));
      EXPECT_FALSE(sequence.in_progress());
      EXPECT_FALSE(sequence.idle());
      // The remainder of the first message is dropped up to its last part, and that of the other message if
      // it continues.
      EXPECT_EQ(sequence.next(message(1), true), Step::Dropped);
      EXPECT_EQ(sequence.next(message(1), false), Step::Dropped);
      if (more && other.xid != message(1).xid) {
        EXPECT_FALSE(sequence.idle());
        EXPECT_EQ(sequence.next(other, false), Step::Dropped);
      }
      if (!more) {
        EXPECT_TRUE(sequence.idle());
        EXPECT_EQ(sequence.next(other, false), Step::Whole);
      }
      EXPECT_EQ(sequence.next(message(9), true), Step::First);
    }
  }
}

TEST(InboundSequence, V2_092_two_that_were_given_up_are_remembered) {
  InboundSequence sequence;
  sequence.give_up();
  EXPECT_TRUE(sequence.idle());
  for (const std::uint32_t xid : {1u, 2u, 3u}) {
    EXPECT_EQ(sequence.next(message(xid), true), Step::First);
    sequence.give_up();
    EXPECT_FALSE(sequence.in_progress());
    EXPECT_EQ(sequence.broken(), message(xid));
  }
  EXPECT_EQ(sequence.next(message(1), false), Step::Whole) << "the oldest is forgotten";
  EXPECT_EQ(sequence.next(message(3), true), Step::Dropped);
  EXPECT_EQ(sequence.next(message(3, true), false), Step::Whole) << "a response is another message";
  EXPECT_EQ(sequence.next(message(2), false), Step::Dropped);
  EXPECT_FALSE(sequence.idle());
  EXPECT_EQ(sequence.next(message(3), false), Step::Dropped);
  EXPECT_TRUE(sequence.idle());
}

// --- Parameters that both ends agree on

TEST(Agreement, V2_047_V2_065_values_at_their_bounds_and_beyond) {
  const Parameters own{.max_send_bytes = 8192};
  const auto with = [](auto&& change) {
    Parameters peer;
    change(peer);
    return peer;
  };
  const auto expect = [&](const Parameters& peer, std::uint32_t send, std::uint32_t segment,
                          std::uint32_t segments, std::uint64_t clamped) {
    std::uint64_t count = 0;
    const Agreement agreement = agree(own, peer, &count);
    EXPECT_EQ(agreement.send_bytes, send);
    EXPECT_EQ(agreement.max_segment_bytes, segment);
    EXPECT_EQ(agreement.max_segments, segments);
    EXPECT_EQ(agreement.reverse, peer.reverse);
    EXPECT_EQ(count, clamped);
  };
  constexpr std::uint32_t kMega = 1u << 20;
  expect({}, 4096, kMega, 16, 0);
  for (const std::uint32_t bytes : {0u, 1023u})
    expect(with([&](Parameters& peer) { peer.receive_buffer_bytes = bytes; }), 1024, kMega, 16, 1);
  expect(with([](Parameters& peer) { peer.receive_buffer_bytes = 1024; }), 1024, kMega, 16, 0);
  expect(with([](Parameters& peer) { peer.receive_buffer_bytes = 8193; }), 8192, kMega, 16, 0);
  expect(with([](Parameters& peer) { peer.max_segment_bytes = 4095; }), 4096, 4096, 16, 1);
  expect(with([](Parameters& peer) { peer.max_segment_bytes = 4096; }), 4096, 4096, 16, 0);
  expect(with([](Parameters& peer) { peer.max_segment_bytes = ~0u; }), 4096, ~0u, 16, 0);
  expect(with([](Parameters& peer) { peer.max_segments = 0; }), 4096, kMega, 1, 1);
  expect(with([](Parameters& peer) { peer.max_segments = 1; }), 4096, kMega, 1, 0);
  expect(with([](Parameters& peer) { peer.reverse = ReverseSupport::None; }), 4096, kMega, 16, 0);
  // An end whose limit is below the minimum still sends the minimum that each peer receives.
  EXPECT_EQ(agree({.max_send_bytes = 512}, {}).send_bytes, 1024u);
}

}  // namespace
}  // namespace sluice::rpcrdma::v2
