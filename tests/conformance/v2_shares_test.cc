// SPDX-License-Identifier: Apache-2.0
//
// Memory of continued messages, which connections share: a peer without progress holds little, and not for
// long.
#include <gtest/gtest.h>

#include "tests/conformance/second_peer.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CloseReason;

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint32_t kSmall = 16u << 10;

LabOptions shared() {
  LabOptions options = Server::defaults();
  options.engine.max_connections = 4;
  options.engine.small_buffer_bytes = kSmall;
  options.connection.progress_timeout_ns = 30 * kSecondNs;
  options.connection.credit_grant = 16;  // call slots, one of which is checked per millisecond
  return options;
}

/// Builds a NAME call of `bytes` bytes.
Bytes name_call_with_xid(std::uint32_t xid, std::uint32_t bytes) {
  Bytes payload = test_call(xid, TestService::kName, {bytes - 44});
  payload.resize(bytes);
  return payload;
}

std::vector<Bytes> in_parts(std::uint32_t xid, std::uint32_t bytes) {
  constexpr std::size_t kPart = 3000;
  const Bytes payload = name_call_with_xid(xid, bytes);
  std::vector<Bytes> parts;
  for (std::size_t at = 0; at < payload.size(); at += kPart) {
    const std::size_t part = std::min(kPart, payload.size() - at);
    const std::uint32_t flags = at + part < payload.size() ? kMore : 0;
    parts.push_back(Header{.xid = xid, .flags = flags}.with(std::span(payload).subspan(at, part)));
  }
  return parts;
}

TEST(V2Shares, V2_092_a_message_that_outgrows_a_small_buffer_goes_on_in_a_large_one) {
  for (const std::uint32_t bytes : {kSmall - 100, kSmall - 44, kSmall, kSmall + 4, 4 * kSmall}) {
    Server lab(shared());
    lab.hello();
    const std::size_t all = lab.engine->assembly_memory().available();
    Bytes answer;
    for (const Bytes& part : in_parts(7, bytes)) {
      const auto answers = lab.ask(part);
      if (!answers.empty()) answer = answers.back();
    }
    ASSERT_TRUE(is_success(answer, 7)) << bytes;
    EXPECT_EQ(word_at(answer, answer.size() / 4 - 1), bytes - 44);
    EXPECT_EQ(lab.engine->assembly_memory().available(), all);
  }
}

TEST(V2Shares, V2_095_a_message_that_trickles_ends_its_connection) {
  Server lab(shared());
  lab.hello();
  const Bytes payload = name_call_with_xid(9, 400);
  std::size_t parts = 0;
  for (; lab.connection->is_open() && parts < 20; ++parts) {
    lab.peer->send(Header{.xid = 9, .flags = kMore}.with(std::span(payload).subspan(4 * parts, 4)));
    lab.settle();
    lab.pass(4 * kSecondNs);
  }
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::SequenceTimeout);
  EXPECT_LE(parts, 8u);
  EXPECT_GE(parts, 7u);
}

TEST(V2Shares, V2_095_the_time_that_a_message_waits_for_our_memory_is_ours) {
  LabOptions options = shared();
  options.engine.assembly_buffers = 1;
  Server lab(options);
  lab.hello();
  rpcrdma::SharedMemory& memory = lab.engine->assembly_memory();
  rpcrdma::SharedMemory::Account other;
  std::byte* const taken = memory.acquire(other, memory.most_bytes());
  ASSERT_NE(taken, nullptr);
  lab.peer->inbox.clear();
  const auto parts = in_parts(7, 2 * kSmall);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) lab.peer->send(parts[i]);
  lab.settle();
  ASSERT_TRUE(lab.connection->waits_for_assembly());
  lab.pass(100 * kSecondNs);
  EXPECT_TRUE(lab.connection->is_open());
  memory.release(taken);
  lab.pass(2 * kSecondNs);
  lab.peer->send(parts.back());
  lab.settle();
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_TRUE(is_success(lab.answers()[0], 7));
}

TEST(V2Shares, V2_040_a_reply_that_is_granted_a_credit_now_and_then_goes_on) {
  Server lab(shared());
  lab.hello(1);
  lab.peer->send(Header{.xid = 5, .credit = 0x00400001}.with(test_call(5, TestService::kList, {40'000})));
  lab.settle();
  int grants = 0;
  for (; lab.connection->is_open() && lab.answers().size() < 10; ++grants) {
    lab.pass(20 * kSecondNs);
    lab.peer->send(grant(1));
    lab.settle();
  }
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_GE(grants, 6);
}

TEST(V2Shares, V2_040_a_reply_that_is_granted_nothing_ends_its_connection) {
  Server lab(shared());
  lab.hello(1);
  lab.peer->send(Header{.xid = 5, .credit = 0x00400001}.with(test_call(5, TestService::kList, {20'000})));
  lab.settle();
  for (int i = 0; i < 60 && lab.connection->is_open(); ++i) lab.pass(kSecondNs);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::NoProgress);
}

TEST(V2Shares, V2_062_a_handshake_has_memory_whatever_others_hold) {
  LabOptions options = shared();
  options.engine.assembly_buffers = 2;
  Server lab(options);
  lab.hello();
  std::vector<std::unique_ptr<SecondClient>> others;
  for (const char* name : {"second", "third"}) {
    others.push_back(std::make_unique<SecondClient>(lab, name));
    others.back()->send(Header{.xid = 1, .credit = 0x00400010u, .type = kConnProp}.then({0}));
    const auto parts = in_parts(5, 4 * kSmall);
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) others.back()->send(parts[i]);
  }
  const auto parts = in_parts(6, kSmall / 2);
  lab.peer->send(parts[0]);
  lab.settle();
  EXPECT_TRUE(lab.connection->send_host_authentication(Bytes(64))) << "while a message comes in";
  lab.settle();
  for (std::size_t i = 1; i + 1 < parts.size(); ++i) lab.peer->send(parts[i]);
  EXPECT_TRUE(is_success(lab.ask(parts.back()).at(0), 6));
}

// --- A host that has not authenticated yet

LabOptions strangers() {
  LabOptions options = shared();
  options.connection.version2.hold_calls = true;
  return options;
}

TEST(V2Strangers, V2_062_get_no_memory_for_continued_calls) {
  Server lab(strangers());
  lab.hello();
  const std::size_t all = lab.engine->assembly_memory().available();
  const auto parts = in_parts(5, 2 * kSmall);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    lab.peer->send(parts[i]);
    lab.settle();
    EXPECT_EQ(lab.engine->assembly_memory().available(), all);
  }
  lab.peer->send(parts.back());
  lab.settle();
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_TRUE(is_error(lab.answers()[0], 5, static_cast<std::uint32_t>(rpcrdma::v2::ErrorCode::System)));
  EXPECT_EQ(lab.counters().parts_before_admission, 1u);
  // A host that is admitted later has lost nothing.
  lab.connection->admit(HostName("a"));
  for (const Bytes& part : in_parts(6, 400)) lab.peer->send(part);
  lab.settle();
  EXPECT_TRUE(is_success(lab.answers().back(), 6));
}

TEST(V2Strangers, V2_062_send_only_short_sets_of_properties) {
  for (const bool held : {false, true}) {
    LabOptions options = shared();
    options.connection.version2.hold_calls = held;
    Server lab(options);
    lab.hello();
    // The set holds one unknown property of this length, in parts.
    constexpr std::uint32_t kBytes = kSmall + 4000;
    Bytes set = words({1, 0x7000'0001, kBytes});
    set.resize(set.size() + kBytes);
    for (std::size_t at = 0; at < set.size(); at += 3000) {
      const std::size_t part = std::min<std::size_t>(3000, set.size() - at);
      Bytes message =
          Header{
              .xid = 3, .credit = 0x00400010, .type = kConnProp, .flags = at + part < set.size() ? kMore : 0}
              .prefix();
      append(message, std::span(set).subspan(at, part));
      lab.peer->send(message);
      lab.settle();
    }
    EXPECT_EQ(lab.counters().call_too_long, held ? 1u : 0u);
  }
}

TEST(V2Strangers, V2_062_V2_063_an_answered_error_does_not_let_a_call_that_is_held_run) {
  Server lab(strangers());
  lab.hello();
  lab.peer->send(null_call(4));
  lab.peer->send(Header{.xid = 5}.prefix());  // the chunk lists are missing
  lab.settle();
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_TRUE(is_error(lab.answers()[0], 5, static_cast<std::uint32_t>(rpcrdma::v2::ErrorCode::BadXdr)));
  EXPECT_TRUE(lab.service->executed.empty());
  lab.connection->admit(HostName("a"));
  lab.settle();
  EXPECT_EQ(lab.service->executed.size(), 1u);
}

TEST(V2Strangers, V2_062_are_sent_away_after_a_while_even_without_a_control_plane) {
  Server lab(strangers());
  lab.hello();
  lab.peer->send(null_call(4));
  lab.pass(29 * kSecondNs);
  EXPECT_TRUE(lab.connection->is_open());
  lab.pass(2 * kSecondNs);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::NotAuthenticated);
}

TEST(V2Strangers, V2_062_have_their_time_from_the_opening_on) {
  Server lab(strangers());
  lab.pass(100 * kSecondNs);
  // Connection management has accepted the connection, and the client has not confirmed this yet.
  rpcrdma::Connection* const opening = lab.engine->free_connection();
  ASSERT_NE(opening, nullptr);
  opening->open(lab.device->create_queue_pair(lab.engine->queue_pair_limits()), lab.options.connection, {},
                nullptr);
  lab.pass(29 * kSecondNs);
  EXPECT_TRUE(opening->is_open());
  lab.pass(2 * kSecondNs);
  EXPECT_EQ(opening->close_reason(), CloseReason::NotAuthenticated);
}

TEST(V2Strangers, V2_062_who_was_admitted_stays) {
  Server lab(strangers());
  lab.hello();
  lab.pass(20 * kSecondNs);
  lab.connection->admit(HostName("a"));
  lab.pass(100 * kSecondNs);
  EXPECT_TRUE(lab.alive2());
}

}  // namespace
}  // namespace sluice::conformance::v2
