// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder, against a peer that writes its headers by hand: version, framing, credits,
// properties, errors.
#include <gtest/gtest.h>

#include "tests/conformance/v2_lab.h"

#include <algorithm>

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::Segment;

// --- A: version and framing

TEST(V2Version, V2_010_V2_058_the_first_answer_is_of_version_2_with_properties_and_a_grant) {
  Server lab;
  const auto inbox = lab.exchange(null_call(0x10, 0x0040003f));
  ASSERT_EQ(inbox.size(), 2u);
  const Bytes& properties = inbox[0].bytes;
  EXPECT_EQ(word_at(properties, 1), 2u);
  EXPECT_EQ(word_at(properties, 3), kConnProp);
  EXPECT_NE(word_at(properties, 0), 0u);
  EXPECT_EQ(word_at(properties, 4), 0u);  // V2-025
  EXPECT_LE(properties.size(), 1024u);
  EXPECT_EQ(word_at(properties, 5), 5u);
  for (std::uint32_t i = 0; i < 5; ++i) EXPECT_EQ(word_at(properties, 6 + 3 * i), i + 1);
  EXPECT_GE(word_at(properties, 2) & 0xffff, 1u);
  EXPECT_GE(word_at(properties, 2) >> 16, 2u);  // V2-036
  EXPECT_TRUE(is_success(inbox[1].bytes, 0x10));
  // Never again.
  for (std::uint32_t xid = 0x11; xid < 0x31; ++xid) EXPECT_EQ(lab.exchange(null_call(xid)).size(), 1u);
}

TEST(V2Version, V2_004_V2_012_V2_109_a_version_that_is_not_served_is_answered_in_the_form_of_RFC_8166) {
  Server lab;
  const Bytes answer = lab.answer(words({9, 3, 32, 0}));
  EXPECT_EQ(answer, words({9, 3, word_at(answer, 2), 4, 1, 1, 2}));
  Bytes garbage = words({10, 9, 0xffffffff});
  for (int i = 0; i < 50; ++i) append(garbage, words({0xA5A5A5A5u * static_cast<std::uint32_t>(i + 1)}));
  // Not an error message by chance: word 3 is no 4.
  const Bytes second = lab.answer(garbage);
  EXPECT_EQ(second, words({10, 9, word_at(second, 2), 4, 1, 1, 2}));
  lab.hello();
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Version, V2_012_a_server_limited_to_version_1_says_so) {
  LabOptions options = Server::defaults();
  options.connection.max_version = 1;
  Server lab(options);
  const Bytes to_call = lab.answer(null_call(0x21));
  EXPECT_EQ(to_call, words({0x21, 2, word_at(to_call, 2), 4, 1, 1, 1}));
  const Bytes to_properties = lab.answer(Header{.xid = 0x22, .type = kConnProp}.then({0}));
  EXPECT_EQ(to_properties, words({0x22, 2, word_at(to_properties, 2), 4, 1, 1, 1}));
  EXPECT_TRUE(lab.alive());
}

TEST(V2Version, V2_016_the_first_message_fixes_version_1) {
  Server lab;
  EXPECT_TRUE(lab.alive(0x31));
  EXPECT_EQ(lab.connection->version(), 1u);
  const Bytes answer = lab.answer(null_call(0x32));
  EXPECT_EQ(answer, words({0x32, 2, word_at(answer, 2), 4, 1, 1, 1}));
  EXPECT_TRUE(lab.alive(0x33));
}

TEST(V2Version, V2_003_V2_016_V2_018_the_first_message_fixes_version_2) {
  Server lab;
  lab.hello();
  for (std::uint32_t xid = 1; xid <= 3; ++xid) EXPECT_TRUE(lab.alive2(xid));
  Bytes old = plain_header(4, 32);
  append(old, test_call(4, 0));
  const Bytes answer = lab.answer(old);
  EXPECT_EQ(answer, words({4, 1, word_at(answer, 2), 4, 1, 2, 2}));
  EXPECT_TRUE(lab.alive2(5));
  EXPECT_EQ(lab.service->executed.size(), 4u);
  for (const Op& op : lab.log.all(OpKind::PostSend))
    if (xdr::load_u32(op.content.data() + 12) != kError) {
      EXPECT_EQ(xdr::load_u32(op.content.data() + 4), 2u);
    }
}

TEST(V2Version, V2_005_a_message_too_short_for_the_prefix_is_dropped) {
  Server lab;
  lab.hello();
  const Bytes call = null_call(0x41);
  for (std::size_t bytes = 4; bytes < 20; ++bytes) {
    // Of 16 to 19 bytes, with version 2; of fewer, with anything.
    EXPECT_TRUE(lab.ask(std::span(call).first(bytes)).empty()) << bytes;
  }
  EXPECT_EQ(lab.counters().bad_fragment, 16u);
  lab.peer->send(grant(20));  // no message of those has been granted for
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Version, V2_011_V2_019_V2_046_messages_of_4096_bytes_are_served_from_the_second_on) {
  Server lab;
  lab.hello();
  Bytes name = test_call(0x51, TestService::kName, {4096 - 36 - 44});
  name.resize(4096 - 36);
  EXPECT_TRUE(is_success(lab.answer(Header{.xid = 0x51}.with(name)), 0x51));
  // The answer to a list is not longer, without properties of the peer's.
  lab.ask(Header{.xid = 0x52}.with(test_call(0x52, TestService::kList, {4096 - 36 - 28})));
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_EQ(lab.answers()[0].size(), 4096u);
  lab.ask(Header{.xid = 0x53}.with(test_call(0x53, TestService::kList, {4096 - 36 - 24})));
  EXPECT_EQ(lab.answers().size(), 2u);
}

// --- B: XID, flags, types

TEST(V2Prefix, V2_020_V2_021_a_call_whose_xids_differ_is_not_executed) {
  Server lab;
  lab.hello();
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 5}.with(test_call(6, 0))), 5, 2));
  const Bytes payload = test_call(6, 0);
  const auto memory = lab.peer->expose(payload.size(), rdma::kRemoteRead);
  std::copy(payload.begin(), payload.end(), memory.bytes.begin());
  EXPECT_TRUE(
      is_error(lab.answer(Header{.xid = 7, .type = kNoMsg, .reads = {{0, memory.segment}}}.bytes()), 7, 2));
  EXPECT_TRUE(lab.service->executed.empty());
}

TEST(V2Prefix, V2_023_V2_112_unknown_flags_are_refused) {
  Server lab;
  lab.hello();
  for (const std::uint32_t flags : {0x4u, 0x80000000u, 0xFFFFFFFEu})
    EXPECT_TRUE(is_error(lab.answer(Header{.xid = 8, .flags = flags}.with(test_call(8, 0))), 8, 4)) << flags;
  EXPECT_EQ(lab.answers()[0].size(), 24u);
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Prefix, V2_002_V2_022_V2_024_V2_025_flags_of_all_that_is_sent) {
  Server lab;
  lab.hello();
  lab.answer(null_call(1));
  lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {20000})));
  lab.answer(Header{.xid = 3, .type = 9}.with({}));
  for (const Op& op : lab.log.all(OpKind::PostSend)) {
    ASSERT_GE(op.content.size(), 20u);
    const std::uint32_t type = word_at(op.content, 3);
    const std::uint32_t flags = word_at(op.content, 4);
    EXPECT_EQ(flags & ~3u, 0u);
    EXPECT_TRUE(type == kMsg || type == kNoMsg || type == kError || type == kConnProp);
    const bool plain = type == kConnProp || is_grant(op.content);
    EXPECT_EQ(flags & kResponse, plain ? 0u : kResponse);
  }
}

TEST(V2Prefix, V2_027_response_and_msg_type_have_to_agree) {
  Server lab;
  lab.hello();
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 9}.with(words({9, 1, 0, 0, 0, 0}))), 9, 4));
  EXPECT_TRUE(lab.ask(Header{.xid = 9, .flags = kResponse}.with(test_call(9, 0))).empty());
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 9}.with(words({9, 7, 0, 0, 0, 0}))), 9, 2));
  const Bytes payload = words({10, 1, 0, 0, 0, 0});
  const auto memory = lab.peer->expose(payload.size(), rdma::kRemoteRead);
  std::copy(payload.begin(), payload.end(), memory.bytes.begin());
  EXPECT_TRUE(
      is_error(lab.answer(Header{.xid = 10, .type = kNoMsg, .reads = {{0, memory.segment}}}.bytes()), 10, 4));
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Prefix, V2_028_V2_108_faulty_responses_are_never_answered) {
  Server lab;
  lab.hello();
  const std::size_t before = lab.log.count(OpKind::PostSend);
  for (std::uint32_t i = 0; i < 200; ++i) {
    lab.peer->send(success(0x9000 + i));
    lab.peer->send(Header{.xid = i, .type = 77, .flags = kResponse}.bytes());
    lab.peer->send(Header{.xid = i, .flags = kResponse | 0x40}.with(words({i, 1})));
    lab.peer->send(Header{.xid = i, .flags = kResponse}.then({0, 2, 0, 0}));
    lab.peer->send(error(i, 2));
    lab.peer->send(error(i, 77));
    Bytes wrong = error(i, 2);
    wrong[7] = std::byte{9};  // version 9
    lab.peer->send(wrong);
    lab.peer->send(std::span(wrong).first(16));
    lab.settle();
  }
  EXPECT_TRUE(lab.answers().empty());
  for (const Op& op : lab.log.all(OpKind::PostSend)) EXPECT_NE(word_at(op.content, 3), kError);
  EXPECT_GT(lab.log.count(OpKind::PostSend), before);  // grants
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Prefix, V2_029_V2_030_V2_111_V2_157_unknown_header_types) {
  Server lab;
  lab.hello();
  for (const std::uint32_t type : {2u, 3u, 6u, 8u, 10u, 0xFFFFFFFFu, 0x7FFF0005u}) {
    const Bytes answer = lab.answer(Header{.xid = 11, .type = type}.with(test_call(11, 0)));
    EXPECT_TRUE(is_error(answer, 11, 3)) << type;
    EXPECT_EQ(answer.size(), 24u);
  }
  EXPECT_TRUE(lab.ask(Header{.xid = 12, .type = kConnProp}.then({0})).empty());
  EXPECT_TRUE(lab.ask(grant(1)).empty());
  EXPECT_TRUE(lab.ask(error(12, 10)).empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Prefix, V2_031_of_two_faults_the_earlier_check_decides) {
  Server lab;
  lab.hello();
  // Version before type.
  EXPECT_EQ(word_at(lab.answer(Header{.xid = 1, .version = 7, .type = 9}.bytes()), 4), 1u);
  // Type before flags.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 2, .type = 9, .flags = 0x40}.bytes()), 2, 3));
  // Flags before lists.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 3, .flags = 0x40}.then({0, 5, 0, 0})), 3, 4));
  // Lists before what is in the payload.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 4}.then({0, 5, 0, 0, 99})), 4, 2));
}

// --- C: credits

TEST(V2Credits, V2_034_V2_035_V2_139_replies_go_out_as_far_as_the_client_has_granted) {
  for (const std::uint32_t limit : {0x00010000u, 0xffff0000u}) {
    Server lab;
    // The greeting and two replies: three more than the credit that the server starts with is four in all.
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
  // Of the log alone: what was granted and not used is posted, and one more.
  std::int64_t posted = 0;
  std::int64_t unused = 1;
  for (const Op& op : lab.log.ops()) {
    if (op.kind == OpKind::PostReceive) ++posted;
    if (op.kind == OpKind::ReceiveDone) --posted, --unused;
    if (op.kind != OpKind::PostSend) continue;
    if (word_at(op.content, 3) != kError) unused += word_at(op.content, 2) & 0xffff;
    ASSERT_GE(posted, unused + 1);
  }
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

// --- D: properties

TEST(V2Properties, V2_047_V2_048_thresholds_follow_from_both_ends) {
  for (const std::uint32_t theirs : {0u, 4096u, 8192u, 32768u}) {
    for (const std::uint32_t ours : {4096u, 8192u, 32768u}) {
      LabOptions options = Server::defaults();
      options.engine.capacity.receive_bytes = 32768;
      options.connection.receive_inline_bytes = 32768;
      options.connection.version2.parameters.max_send_bytes = ours;
      Server lab(options);
      const Header first{.xid = 1, .credit = 0x00400100, .type = kConnProp};
      lab.peer->send(theirs == 0 ? first.then({0}) : first.then({1, 2, 4, theirs}));
      lab.settle();
      lab.peer->inbox.clear();
      lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {100000})));
      std::size_t largest = 0;
      for (const Received& received : lab.peer->inbox) largest = std::max(largest, received.bytes.size());
      EXPECT_EQ(largest, std::min(ours, theirs == 0 ? 4096 : theirs));
      // The very next message may be as long as the Receives that were announced.
      Bytes name = test_call(3, TestService::kName, {32768 - 36 - 44});
      name.resize(32768 - 36);
      EXPECT_TRUE(is_success(lab.answer(Header{.xid = 3}.with(name)), 3));
    }
  }
}

TEST(V2Properties, V2_052_V2_053_V2_056_V2_061_unknown_ones_are_skipped_and_the_order_does_not_matter) {
  const auto after = [](std::initializer_list<std::uint32_t> body) {
    Server lab;
    lab.peer->send(Header{.xid = 1, .credit = 0x00400040, .type = kConnProp}.then(body));
    lab.settle();
    EXPECT_TRUE(lab.answers().empty());
    EXPECT_TRUE(lab.alive2());
    return lab.connection->agreement();
  };
  const auto known = after({2, 2, 4, 8192, 4, 4, 3});
  EXPECT_EQ(known.send_bytes, 8192u);
  EXPECT_EQ(known.max_segments, 3u);
  for (const auto& same : {after({3, 4, 4, 3, 0x7fff0001, 3, 0xdeadbe00, 2, 4, 8192}),
                           after({4, 0, 0, 4, 4, 3, 0xffffffff, 4, 1, 2, 4, 8192})}) {
    EXPECT_EQ(same.send_bytes, known.send_bytes);
    EXPECT_EQ(same.max_segments, known.max_segments);
  }
  const auto defaults = after({6, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0});
  EXPECT_EQ(defaults.send_bytes, 4096u);
  EXPECT_EQ(defaults.max_segment_bytes, 1048576u);
  EXPECT_EQ(defaults.max_segments, 16u);
  EXPECT_EQ(defaults.reverse, rpcrdma::v2::ReverseSupport::Inline);
  EXPECT_EQ(after({1, 5, 4, 77}).reverse, rpcrdma::v2::ReverseSupport::Inline);  // V2-061
}

TEST(V2Properties, V2_054_V2_055_V2_110_properties_that_cannot_be_parsed_are_refused_whole) {
  Server lab;
  lab.hello(200);
  for (const Bytes& bad : {Header{.xid = 7, .type = kConnProp}.then({2, 4, 4, 3, 2, 3, 0x11223300}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 2, 5, 1, 0x11000000}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 6, 8, 99, 0}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 0x7fff0001, 0xfffffff0}),
                           Header{.xid = 7, .type = kConnProp}.then({0x20000000, 2, 4, 8192}),
                           Header{.xid = 7, .type = kConnProp}.then({2, 2, 4, 8192, 2, 4, 8192}),
                           Header{.xid = 7, .type = kConnProp}.then({1, 2, 4, 8192, 0}),
                           Header{.xid = 7, .type = kConnProp}.prefix()}) {
    EXPECT_TRUE(is_error(lab.answer(bad), 7, 2));
    EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
  }
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Properties, V2_059_V2_060_later_sets_change_nothing) {
  Server lab;
  lab.hello();
  EXPECT_TRUE(lab.ask(Header{.xid = 8, .type = kConnProp}.then({1, 2, 4, 65536})).empty());
  EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
  EXPECT_EQ(lab.counters().late_properties, 1u);
  for (int i = 0; i < 50; ++i)
    EXPECT_TRUE(lab.ask(Header{.xid = 9, .type = kConnProp}.then({1, 0x7fff0001, 0})).empty());
  EXPECT_EQ(lab.engine->counters().calls_received, 0u);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Properties, V2_064_split_at_each_position_they_are_the_same) {
  const auto body = words({2, 2, 4, 8192, 4, 4, 3});
  for (std::size_t at = 4; at < body.size(); at += 4) {
    Server lab;
    Bytes first = Header{.xid = 3, .credit = 0x00400040, .type = kConnProp, .flags = kMore}.prefix();
    append(first, std::span(body).first(at));
    Bytes second = Header{.xid = 3, .type = kConnProp}.prefix();
    append(second, std::span(body).subspan(at));
    lab.peer->send(first);
    lab.settle();
    EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
    lab.peer->send(second);
    lab.settle();
    EXPECT_TRUE(lab.answers().empty());
    EXPECT_EQ(lab.connection->agreement().send_bytes, 8192u);
    EXPECT_EQ(lab.connection->agreement().max_segments, 3u);
    EXPECT_TRUE(lab.alive2());
  }
  Server lab;
  lab.hello();
  lab.peer->send(Header{.xid = 3, .type = kConnProp, .flags = kMore}.then({1, 2}));
  const auto answers = lab.ask(Header{.xid = 4, .type = kConnProp}.then({4, 8192}));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_TRUE(is_error(answers[0], 3, 4));
  EXPECT_TRUE(is_error(answers[1], 4, 4));
}

TEST(V2Properties, V2_065_values_out_of_range_are_clamped) {
  const auto send_bytes = [](std::uint32_t value) {
    Server lab;
    lab.peer->send(Header{.xid = 1, .credit = 0x00400040, .type = kConnProp}.then({1, 2, 4, value}));
    lab.settle();
    EXPECT_TRUE(lab.alive2());
    return lab.connection->agreement().send_bytes;
  };
  const std::uint32_t lab_limit = Server().connection->own_parameters().max_send_bytes;
  EXPECT_EQ(send_bytes(0), 1024u);
  EXPECT_EQ(send_bytes(17), 1024u);
  EXPECT_EQ(send_bytes(0xffffffff), lab_limit);
  Server lab;
  lab.peer->send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then(
      {4, 2, 4, 1, 3, 4, 1, 4, 4, 0, 5, 4, 9}));
  lab.settle();
  lab.peer->inbox.clear();
  lab.ask(Header{.xid = 2}.with(test_call(2, TestService::kList, {20000})));
  EXPECT_GT(lab.answers().size(), 19u);
  EXPECT_TRUE(lab.alive2());
}

// --- E, F: messages and chunks

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
  // And lists without a position-zero chunk in a NOMSG (D2-34).
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
    // With its round-up it is too long, and no Read is posted for it when that can be seen.
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
  // PAIR with no first result: the one chunk takes the second, the other is unused.
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
  EXPECT_TRUE(lab.service->executed.empty());
}

// --- I: errors

TEST(V2Errors, V2_110_headers_that_cannot_be_parsed) {
  Server lab;
  lab.hello();
  std::uint32_t errors = 0;
  const auto memory = lab.peer->expose(4096, rdma::kRemoteRead);
  const Header call{.xid = 40,
                    .invalidate = 1,
                    .reads = {{0, memory.segment}},
                    .writes = {{memory.segment}},
                    .reply = {{memory.segment}}};
  const Bytes header = call.bytes();
  for (std::size_t bytes = 20; bytes <= header.size(); bytes += 4) {
    const Bytes answer = lab.answer(std::span(header).first(bytes));
    EXPECT_TRUE(is_error(answer, 40, 2)) << bytes;
    EXPECT_EQ(answer.size(), 24u);
    ++errors;
  }
  for (const Bytes& bad :
       {Header{.xid = 40}.then({0, 2, 0, 0, 1}), Header{.xid = 40}.then({0, 0xffffffff, 0, 0, 1}),
        Header{.xid = 40}.then({0, 0, 1, 0x10000000, 1, 1, 1, 1, 0, 0}),
        Header{.xid = 40}.then({0, 0, 0, 3, 1, 1, 1, 1})})
    EXPECT_TRUE(is_error(lab.answer(bad), 40, 2));
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Errors, V2_113_more_read_chunks_than_are_taken) {
  for (const std::uint32_t limit : {0u, 1u}) {
    LabOptions options = Server::defaults();
    options.connection.version2.max_read_chunks = limit;
    Server lab(options);
    lab.hello();
    const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
    const Bytes answer = lab.answer(
        Header{.xid = 1, .reads = {{44, part(memory.segment, 0, 8)}, {60, part(memory.segment, 8, 8)}}}.with(
            test_call(1, TestService::kTwoSinks, {8, 7, 8})));
    EXPECT_TRUE(is_error(answer, 1, 5));
    EXPECT_EQ(answer.size(), 28u);
    EXPECT_EQ(word_at(answer, 6), limit);
    EXPECT_TRUE(lab.service->executed.empty());
  }
}

TEST(V2Errors, V2_115_more_write_chunks_than_are_filled) {
  for (const std::uint32_t limit : {0u, 1u}) {
    LabOptions options = Server::defaults();
    options.connection.version2.max_write_chunks = limit;
    Server lab(options);
    lab.hello();
    const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
    const Bytes answer = lab.answer(Header{.xid = 1, .writes = {{memory.segment}, {memory.segment}}}.with(
        test_call(1, TestService::kPair, {8, 8})));
    EXPECT_TRUE(is_error(answer, 1, limit == 0 ? 9 : 6));
    EXPECT_EQ(word_at(answer, 6), limit);
    EXPECT_TRUE(lab.service->executed.empty());
  }
}

TEST(V2Errors, V2_117_more_segments_than_were_announced) {
  LabOptions options = Server::defaults();
  options.connection.version2.parameters.max_segments = 16;
  Server lab(options);
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  Header one_list{.xid = 1};
  for (std::uint32_t i = 0; i < 17; ++i) one_list.reads.push_back({44, part(memory.segment, i, 1)});
  const Bytes first = lab.answer(one_list.with(test_call(1, TestService::kSink, {17})));
  EXPECT_TRUE(is_error(first, 1, 7));
  EXPECT_EQ(word_at(first, 6), 16u);
  Header two_lists{.xid = 2, .writes = {{}}};
  for (std::uint32_t i = 0; i < 9; ++i) two_lists.reads.push_back({44, part(memory.segment, i, 1)});
  for (std::uint32_t i = 0; i < 8; ++i) two_lists.writes[0].push_back(part(memory.segment, i, 1));
  EXPECT_TRUE(is_error(lab.answer(two_lists.with(test_call(2, TestService::kSink, {9}))), 2, 7));
  // Far beyond all limits as well.
  Header many{.xid = 3};
  for (std::uint32_t i = 0; i < 165; ++i) many.reads.push_back({44, part(memory.segment, 0, 1)});
  const Bytes third = lab.answer(many.with(test_call(3, TestService::kSink, {165})));
  EXPECT_TRUE(is_error(third, 3, 7));
  EXPECT_EQ(word_at(third, 6), 16u);
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Errors, V2_123_bad_arguments_are_the_matter_of_rpc) {
  Server lab;
  lab.hello();
  EXPECT_EQ(accept_stat(lab.answer(Header{.xid = 1}.with(test_call(1, TestService::kSource)))), 4u);
}

}  // namespace
}  // namespace sluice::conformance::v2
