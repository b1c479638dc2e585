// SPDX-License-Identifier: Apache-2.0
//
// Version 2: when a connection is closed because its peer makes no progress, to the nanosecond, and which
// events restart these timers. The test controls the clock.
#include <gtest/gtest.h>

#include "tests/conformance/v2_client.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CloseReason;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kIdle = 5 * kSecond;
constexpr std::uint64_t kInAll = 30 * kSecond;

/// Sets the clock, then runs a poll, all timers of the connection, and another poll for the work that they
/// have staged.
template <typename Lab>
void turn_at(Lab& lab, std::uint64_t ns) {
  lab.now_ns = ns;
  lab.engine->poll(ns);
  for (std::uint32_t slot = 0; slot < lab.options.connection.credit_grant + 2; ++slot) lab.connection->tick();
  lab.engine->poll(ns);
}

LabOptions limited() {
  LabOptions options = Server::defaults();
  options.connection.progress_timeout_ns = kInAll;
  options.connection.version2.sequence_idle_ns = kIdle;
  return options;
}

/// Sends a part and returns the time of its arrival.
std::uint64_t send_part(Server& lab, std::uint32_t xid, std::uint32_t flags,
                        std::span<const std::byte> part) {
  const std::uint64_t before = lab.counters().parts_received;
  lab.peer->send(Header{.xid = xid, .flags = flags}.with(part));
  lab.turn();
  EXPECT_EQ(lab.counters().parts_received, before + 1);
  return lab.now_ns;
}

const Bytes kPart = words({1, 2});

TEST(V2Timers, V2_095_the_next_part_of_a_message_may_take_this_long_and_no_longer) {
  Server lab(limited());
  lab.hello();
  const std::uint64_t first = send_part(lab, 5, kMore, kPart);
  turn_at(lab, first + kIdle);
  EXPECT_TRUE(lab.connection->is_open());
  const std::uint64_t second = send_part(lab, 5, kMore, kPart);
  turn_at(lab, second + kIdle);
  EXPECT_TRUE(lab.connection->is_open()) << "each part starts it again";
  turn_at(lab, second + kIdle + 1);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::SequenceTimeout);
  EXPECT_EQ(lab.counters().broken_sequences, 1u);
}

TEST(V2Timers, V2_095_all_parts_of_a_message_may_take_this_long_and_no_longer) {
  Server lab(limited());
  lab.hello();
  const std::uint64_t first = send_part(lab, 5, kMore, kPart);
  for (std::uint64_t after = kIdle; after < kInAll; after += kIdle) {
    turn_at(lab, first + after - 1000);
    ASSERT_EQ(send_part(lab, 5, kMore, kPart), first + after);
  }
  turn_at(lab, first + kInAll);
  EXPECT_TRUE(lab.connection->is_open());
  turn_at(lab, first + kInAll + 1);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::SequenceTimeout);
}

TEST(V2Timers, V2_095_the_time_of_a_message_in_parts_begins_with_its_own_first_part) {
  Server lab(limited());
  lab.hello();
  turn_at(lab, 10 * kInAll);
  for (std::uint32_t xid = 5; xid < 8; ++xid) {
    const Bytes payload = test_call(xid, TestService::kNull);
    const std::uint64_t first = send_part(lab, xid, kMore, std::span(payload).first(20));
    turn_at(lab, first + kIdle);
    ASSERT_TRUE(lab.connection->is_open()) << "what came before it is over";
    lab.peer->inbox.clear();
    send_part(lab, xid, 0, std::span(payload).subspan(20));
    lab.settle();
    ASSERT_TRUE(is_success(lab.answers().at(0), xid));
    turn_at(lab, lab.now_ns + 2 * kInAll);
    ASSERT_TRUE(lab.connection->is_open()) << "between messages there is none";
  }
}

/// The engine's first poll, at 1001 ns, starts the timer.
TEST(V2Timers, V2_015_the_first_answer_may_take_this_long_and_no_longer) {
  LabOptions options = Client::defaults();
  options.connection.version2.first_answer_ns = kSecond;
  Client lab(options);
  constexpr std::uint64_t kAsked = 1001;
  turn_at(lab, kAsked + kSecond);
  EXPECT_TRUE(lab.connection->is_open());
  turn_at(lab, kAsked + kSecond + 1);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::NoAnswer);
}

TEST(V2Timers, V2_015_an_answer_ends_the_wait_for_it) {
  LabOptions options = Client::defaults();
  options.connection.version2.first_answer_ns = kSecond;
  Client lab(options);
  lab.confirm();
  turn_at(lab, 100 * kSecond);
  EXPECT_TRUE(lab.connection->is_open());
}

TEST(V2Timers, V2_040_keep_alive_is_after_a_silence_of_ours) {
  LabOptions options = Client::defaults();
  options.connection.version2.keep_alive_ns = kSecond;
  Client lab(options);
  lab.confirm();
  turn_at(lab, 10 * kSecond);
  lab.log.clear();
  ASSERT_TRUE(lab.submit_null());
  turn_at(lab, 10 * kSecond);
  turn_at(lab, 11 * kSecond);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), 1u) << "the call";
  turn_at(lab, 11 * kSecond + 1);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), 2u);
  EXPECT_TRUE(is_grant(lab.log.all(OpKind::PostSend).back().content));
}

TEST(V2Timers, V2_040_no_keep_alive_where_none_is_wanted_or_no_credit_is_left) {
  for (const std::uint64_t keep_alive_ns : {std::uint64_t{0}, kSecond}) {
    LabOptions options = Client::defaults();
    options.connection.version2.keep_alive_ns = keep_alive_ns;
    Client lab(options);
    lab.confirm(1);
    lab.submit_null();
    lab.settle();
    if (keep_alive_ns == 0) lab.confirm(8);
    lab.log.clear();
    turn_at(lab, 100 * kSecond);
    turn_at(lab, 200 * kSecond);
    EXPECT_EQ(lab.log.count(OpKind::PostSend), 0u) << keep_alive_ns;
  }
}

/// A client that sends messages but grants nothing is treated as a silent one.
TEST(V2Timers, V2_035_a_reply_that_may_not_go_on_ends_its_connection_whatever_else_is_said) {
  Server lab(limited());
  lab.hello(1);
  lab.peer->send(Header{.xid = 5, .credit = 0x00400000}.with(test_call(5, TestService::kList, {20'000})));
  lab.turn();
  lab.turn();
  ASSERT_EQ(lab.counters().parts_sent, 1u) << "the only credit";
  const std::uint64_t sent = lab.now_ns;
  std::uint64_t waits = lab.counters().waits_credit;
  for (std::uint64_t after = kSecond; after < kInAll; after += 10 * kSecond) {
    lab.peer->send(grant(0));
    turn_at(lab, sent + after);
    lab.peer->poll();
    EXPECT_TRUE(lab.connection->is_open());
    EXPECT_GT(lab.counters().waits_credit, waits) << "it has been asked again";
    waits = lab.counters().waits_credit;
  }
  turn_at(lab, sent + kInAll);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::NoProgress);
  EXPECT_EQ(lab.counters().stalled_calls, 1u);
}

}  // namespace
}  // namespace sluice::conformance::v2
