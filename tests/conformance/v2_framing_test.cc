// SPDX-License-Identifier: Apache-2.0
//
// Version 2 at the responder: version negotiation, XID, flags and header types. Headers are written by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

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
  // Word 3 is not 4, so the message is not mistaken for an error.
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
    // Fewer than 20 bytes are too few in version 2, fewer than 16 in any version.
    EXPECT_TRUE(lab.ask(std::span(call).first(bytes)).empty()) << bytes;
  }
  EXPECT_EQ(lab.counters().bad_fragment, 16u);
  lab.peer->send(grant(20));  // the grants of the dropped messages did not count
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Version, V2_011_V2_019_V2_046_messages_of_4096_bytes_are_served_from_the_second_on) {
  Server lab;
  lab.hello();
  Bytes name = test_call(0x51, TestService::kName, {4096 - 36 - 44});
  name.resize(4096 - 36);
  EXPECT_TRUE(is_success(lab.answer(Header{.xid = 0x51}.with(name)), 0x51));
  // No answer exceeds this length before the peer has sent its properties.
  lab.ask(Header{.xid = 0x52}.with(test_call(0x52, TestService::kList, {4096 - 36 - 28})));
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_EQ(lab.answers()[0].size(), 4096u);
  lab.ask(Header{.xid = 0x53}.with(test_call(0x53, TestService::kList, {4096 - 36 - 24})));
  EXPECT_EQ(lab.answers().size(), 2u);
}

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
  // The version is checked before the type.
  EXPECT_EQ(word_at(lab.answer(Header{.xid = 1, .version = 7, .type = 9}.bytes()), 4), 1u);
  // The type is checked before the flags.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 2, .type = 9, .flags = 0x40}.bytes()), 2, 3));
  // The flags are checked before the lists.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 3, .flags = 0x40}.then({0, 5, 0, 0})), 3, 4));
  // The lists are checked before the payload.
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 4}.then({0, 5, 0, 0, 99})), 4, 2));
}

}  // namespace
}  // namespace sluice::conformance::v2
