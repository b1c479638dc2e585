// SPDX-License-Identifier: Apache-2.0
//
// Calls that an upstream does not answer, and whose client reconnects. No call overtakes an earlier one of
// its client, and a call that the upstream has lost is sent again.
#include <algorithm>

#include "tests/unit/gateway/tcp_upstream/forward_repeat_lab.h"

namespace sluice::tcp_upstream_test::repeated {
namespace {

TEST_F(Repeat, a_client_that_comes_back_waits_until_its_old_write_is_done) {
  conformance::RawPeer& first = connect();
  send(first, write_call(7, 1));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_call(8, 2));
  EXPECT_TRUE(comes_no_more()) << "the old data would win";
  answer(0, words({0}));
  ASSERT_TRUE(has_come(2));
  answer(1, words({0}));
  ASSERT_TRUE(replied(second, 1));
}

TEST_F(Repeat, a_write_that_comes_again_on_another_connection_waits_for_the_first) {
  conformance::RawPeer& first = connect();
  conformance::RawPeer& second = connect();
  send(first, write_call(7, 1));
  ASSERT_TRUE(has_come(1));
  send(second, write_call(7, 1));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0}));
  ASSERT_TRUE(has_come(2)) << "it may be done twice";
  answer(1, words({0}));
  ASSERT_TRUE(replied(second, 1));
}

TEST_F(Repeat, what_an_upstream_does_not_answer_holds_up_its_repetition_alone_after_a_while) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  const std::size_t connection = lab.upstream.calls[0].connection;
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, getattr(9));
  let_time_pass(lab, connection, tcp_upstream::kEarlierNs / kSecond - 2);
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  let_time_pass(lab, connection, 4);
  ASSERT_TRUE(has_come(2));
  answer(1, words({70}));
  ASSERT_TRUE(replied(second, 1));
  let_time_pass(lab, connection, 2 * gateway::kRetransmitNs / kSecond);
  EXPECT_EQ(lab.upstream.calls.size(), 2u) << "nobody waits for it";
  leave(second);
  conformance::RawPeer& third = connect();
  send(third, mkdir(7));
  let_time_pass(lab, connection, 1);
  EXPECT_TRUE(lab.upstream.open(connection));
  answer(0, words({0}));
  EXPECT_TRUE(replied(third, 1));
}

/// A server drops a call that is already in progress, and an answer on a lost connection is lost.
TEST_F(Repeat, what_an_upstream_has_forgotten_is_sent_again_to_it_when_its_client_asks_again) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  const auto sent = lab.upstream.calls[0];
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  let_time_pass(lab, sent.connection, gateway::kRetransmitNs / kSecond - 2);
  EXPECT_EQ(lab.upstream.calls.size(), 1u) << "it may be executed still";
  for (std::size_t times = 2; times < 5; ++times) {
    let_time_pass(lab, sent.connection, times == 2 ? 4 : gateway::kRetransmitNs / kSecond);
    ASSERT_EQ(lab.upstream.calls.size(), times);
    EXPECT_EQ(lab.upstream.calls.back().message, sent.message) << "byte for byte";
    EXPECT_EQ(lab.upstream.calls.back().connection, sent.connection);
  }
  EXPECT_EQ(lab.count(Counter::resent), 3u);
  EXPECT_EQ(lab.count(Counter::disconnects), 0u);
  answer(2, words({0, 0, 0, 0, 0}));
  ASSERT_TRUE(replied(second, 1));
  const std::uint64_t unmatched = lab.count(Counter::unmatched_replies);
  answer(3, words({17}));
  EXPECT_TRUE(comes_no_more());
  EXPECT_EQ(second.inbox.size(), 1u);
  EXPECT_EQ(lab.count(Counter::unmatched_replies), unmatched + 1);
}

TEST_F(Repeat, an_upstream_that_answers_nothing_has_forgotten_nothing) {
  conformance::RawPeer& first = connect();
  send(first, mkdir(7));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, mkdir(7));
  for (std::uint64_t i = 0; i < tcp_upstream::kSilenceNs / kSecond; ++i) {
    lab.pass(kSecond);
    lab.turns(10);
  }
  EXPECT_EQ(lab.count(Counter::resent), 0u);
}

/// RFC 7530, section 3.1.1: a retransmission must not use the same connection.
TEST_F(Repeat, a_forgotten_call_of_version_4_0_is_sent_again_on_the_next_connection_of_the_same_port) {
  conformance::RawPeer& first = connect();
  send(first, create(7, 0));
  ASSERT_TRUE(has_come(1));
  const auto sent = lab.upstream.calls[0];
  const auto port = lab.upstream.peer_port(sent.connection);
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, create(7, 0));
  let_time_pass(lab, sent.connection, gateway::kRetransmitNs / kSecond + 2);
  ASSERT_TRUE(has_come(2));
  EXPECT_FALSE(lab.upstream.open(sent.connection));
  EXPECT_EQ(lab.upstream.calls[1].message, sent.message);
  EXPECT_EQ(lab.upstream.peer_port(lab.upstream.calls[1].connection), port);
  answer(1, words({0, 0, 0}));
  EXPECT_TRUE(replied(second, 1));
}

TEST_F(Repeat, a_write_that_an_upstream_does_not_answer_ends_with_its_connection) {
  conformance::RawPeer& first = connect();
  send(first, write_call(7, 1));
  ASSERT_TRUE(has_come(1));
  const std::size_t connection = lab.upstream.calls[0].connection;
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_call(8, 2));
  let_time_pass(lab, connection, tcp_upstream::kEarlierNs / kSecond - 2);
  EXPECT_TRUE(lab.upstream.open(connection));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  let_time_pass(lab, connection, 4);
  ASSERT_TRUE(has_come(2));
  EXPECT_FALSE(lab.upstream.open(connection));
  EXPECT_NE(lab.upstream.calls[1].message, lab.upstream.calls[0].message);
}

/// Returns PUTFH and WRITE of version 4.0.
Bytes write_4_0(std::uint32_t xid, std::uint32_t word) {
  Bytes operations = words({22});
  append(operations, opaque(pattern(28, 1)));
  append(operations, words({38, 1, 2, 3, 4, 0, 0, 2}));
  append(operations, opaque(words({word})));
  return compound(xid, 0, operations, 2);
}
/// Returns PUTFH and SETATTR of version 4.0, with attributes of this size.
Bytes set_attributes_4_0(std::uint32_t xid, std::size_t bytes) {
  Bytes operations = words({22});
  append(operations, opaque(pattern(28, 1)));
  append(operations, words({34, 1, 2, 3, 4, 1, 1u << 12}));
  append(operations, opaque(pattern(bytes, 2)));
  return compound(xid, 0, operations, 2);
}

TEST_F(Repeat, no_write_of_version_4_0_overtakes_one_that_the_upstream_has_read) {
  conformance::RawPeer& first = connect();
  send(first, write_4_0(7, 1));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_4_0(8, 2));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0, 0, 0}));
  EXPECT_TRUE(has_come(2));
}

TEST_F(Repeat, a_write_of_version_4_0_that_is_never_answered_delays_the_next_one_for_a_limited_time) {
  conformance::RawPeer& first = connect();
  send(first, write_4_0(7, 1));
  ASSERT_TRUE(has_come(1));
  const std::size_t connection = lab.upstream.calls[0].connection;
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, write_4_0(8, 2));
  let_time_pass(lab, connection, tcp_upstream::kEarlierNs / kSecond + 2);
  ASSERT_TRUE(has_come(2));
  EXPECT_FALSE(lab.upstream.open(connection));
}

TEST_F(Repeat, a_call_of_version_4_0_that_is_too_long_to_be_kept_is_executed_once) {
  conformance::RawPeer& first = connect();
  send(first, set_attributes_4_0(7, tcp_upstream::kKeptBytes + 1000));
  ASSERT_TRUE(has_come(1));
  leave(first);
  conformance::RawPeer& second = connect();
  send(second, set_attributes_4_0(7, tcp_upstream::kKeptBytes + 1000));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0, 0, 0}));
  EXPECT_TRUE(replied(second, 1));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
}

TEST_F(Repeat, a_connection_of_a_4_0_client_stays_until_its_call_is_answered) {
  conformance::RawPeer& first = connect();
  send(first, create(7, 0));
  ASSERT_TRUE(has_come(1));
  const std::size_t own = lab.upstream.calls[0].connection;
  leave(first);
  lab.turns(50);
  EXPECT_TRUE(lab.upstream.open(own));
  conformance::RawPeer& second = connect();
  send(second, create(7, 0));
  EXPECT_TRUE(comes_no_more());
  answer(0, words({0, 0, 0}));
  ASSERT_TRUE(replied(second, 1));
  EXPECT_EQ(lab.upstream.calls.size(), 1u);
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs);
    return !lab.upstream.open(own);
  }));
}

std::size_t answered(const LabClient& client) {
  return static_cast<std::size_t>(std::count_if(client.finished.begin(), client.finished.end(),
                                                [](const auto& outcome) { return outcome.has_value(); }));
}

/// The data is partially sent to the upstream when the client disconnects. It then reconnects and writes
/// other data.
TEST(RepeatHalfSent, a_write_waits_for_an_earlier_one_whose_client_has_gone_while_it_was_sent) {
  constexpr std::uint32_t kLongBytes = 1u << 20;
  ForwardLab lab({.credits = 32, .record_buffers = 32, .shared_connections = 2, .one_host = true});
  LabClient& leaves = lab.add_client();
  LabClient& returns = lab.add_client();
  lab.upstream.answer = [](const FakeUpstream::Call& call) { return success(call.xid(), words({0})); };
  lab.call(leaves, {.payload = getattr(0), .max_reply_bytes = 64});  // its credits are granted
  lab.upstream.answer = nullptr;
  const std::uint32_t first_xid = lab.upstream.calls[0].xid() + 1;
  lab.upstream.calls.clear();
  lab.upstream.reads = false;
  const std::uint64_t sent_before = lab.count(Counter::sent_bytes);
  const LongWrite write(leaves, kLongBytes);
  // Long messages use the connections alternately. A call with a long reply before each WRITE leaves the
  // second connection for the WRITEs.
  for (int i = 0; i < 7; ++i) {
    leaves.submit({.payload = getattr(0), .max_reply_bytes = 100'000});
    leaves.submit(write.request());
    lab.turns(100);
  }
  // The WRITEs that the connection has accepted completely are answered, so the remaining ones are sent in
  // part or not at all.
  const auto whole = static_cast<std::uint32_t>((lab.count(Counter::sent_bytes) - sent_before) / kLongBytes);
  ASSERT_LT(whole, 7u);
  const std::size_t connection = 1;
  for (std::uint32_t i = 0; i < whole; ++i)
    lab.upstream.send(connection, record(success(first_xid + 2 * i + 1, words({0}))));
  ASSERT_TRUE(lab.until([&] { return answered(leaves) == whole + 1; }));
  lab.disconnect(leaves);
  returns.submit({.payload = write_call(0, 2), .max_reply_bytes = 64});
  lab.turns(500);

  lab.upstream.reads = true;
  const auto writes = [&](bool of_the_old) {
    std::vector<std::uint32_t> xids;
    for (const FakeUpstream::Call& call : lab.upstream.calls)
      if (word_at(call.message, 5) == ulb::kNfs3Write && (call.message.size() >= kLongBytes) == of_the_old)
        xids.push_back(call.xid());
    return xids;
  };
  ASSERT_TRUE(lab.until([&] { return !writes(true).empty(); }));
  for (int i = 0; i < 20; ++i) {
    lab.pass(tcp_upstream::kTickNs);
    lab.turns(20);
  }
  EXPECT_TRUE(writes(false).empty()) << "the old data would win";
  const auto asked = writes(true);
  for (std::size_t i = whole; i < asked.size(); ++i)
    lab.upstream.send(connection, record(success(asked[i], words({0}))));
  EXPECT_TRUE(lab.until([&] {
    lab.pass(tcp_upstream::kTickNs / 20);
    return writes(false).size() == 1;
  }));
}

}  // namespace
}  // namespace sluice::tcp_upstream_test::repeated
