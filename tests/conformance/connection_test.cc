// SPDX-License-Identifier: Apache-2.0
//
// Version 1: the grants of a connection whose limits change, and messages that arrive after a connection has
// ended.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

std::uint32_t granted(ServerLab& lab) {
  const RawCall call{.xid = 5};
  return word_at(lab.call(call.with(test_call(call.xid, TestService::kNull))), 2);
}

TEST(Connection, V1_048_a_limit_that_is_lifted_gives_back_the_whole_grant) {
  ServerLab lab;
  const std::uint32_t all = lab.options.connection.credit_grant;
  EXPECT_EQ(granted(lab), all);
  lab.connection->limit_credits(4);
  EXPECT_EQ(granted(lab), 4u);
  lab.connection->limit_credits(~std::uint32_t{0});
  EXPECT_EQ(granted(lab), all);
  // The smaller of both counts applies, in whichever order they arrive.
  lab.connection->set_credits(6);
  lab.connection->limit_credits(8);
  EXPECT_EQ(granted(lab), 6u);
  lab.connection->set_credits(10);
  EXPECT_EQ(granted(lab), 8u);
  lab.connection->limit_credits(~std::uint32_t{0});
  EXPECT_EQ(granted(lab), 10u);
}

TEST(Connection, V1_042_no_limit_takes_the_last_credit) {
  ServerLab lab;
  lab.connection->limit_credits(0);
  EXPECT_EQ(granted(lab), 1u);
}

/// A responder that accepts version 2 has two call slots at least.
TEST(Connection, V1_042_a_grant_of_one_stays_one_in_version_1_when_version_2_is_accepted) {
  LabOptions options;
  options.connection.credit_grant = 1;
  options.connection.max_version = rpcrdma::v2::kVersion;
  ServerLab lab(options);
  EXPECT_EQ(granted(lab), 1u);
  lab.connection->limit_credits(4);
  EXPECT_EQ(granted(lab), 1u);
}

TEST(Connection, V1_059_the_next_connection_grants_what_it_is_made_for) {
  ServerLab lab;
  const std::uint32_t all = lab.options.connection.credit_grant;
  rpcrdma::Connection* const place = lab.connection;
  lab.connection->set_credits(3);
  lab.connection->limit_credits(2);
  EXPECT_EQ(granted(lab), 2u);
  lab.reconnect();
  ASSERT_EQ(lab.connection, place);
  EXPECT_EQ(granted(lab), all);
  lab.connection->limit_credits(all - 1);
  EXPECT_EQ(granted(lab), all - 1);
}

TEST(Connection, V2_062_the_next_connection_is_no_hosts) {
  ServerLab lab;
  rpcrdma::Connection* const place = lab.connection;
  lab.connection->admit(HostName("a"));
  EXPECT_EQ(lab.connection->peer_host().view(), "a");
  lab.reconnect();
  ASSERT_EQ(lab.connection, place);
  EXPECT_TRUE(lab.connection->peer_host().empty());
}

/// The Receive had completed before the queue pair went to Error.
TEST(Connection, a_call_whose_completion_is_seen_after_the_end_is_not_served) {
  ServerLab lab;
  lab.device->hold = [](const rdma::WorkCompletion& wc) { return wc.opcode == rdma::WcOpcode::Receive; };
  const RawCall call{.xid = 5};
  lab.peer->send(call.with(test_call(call.xid, TestService::kNull)));
  for (int i = 0; i < 4; ++i) lab.turn();
  lab.connection->close(rpcrdma::CloseReason::LocalClose);
  lab.device->hold = nullptr;
  lab.settle();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_EQ(lab.engine->counters().messages_received, 0u);
  EXPECT_EQ(lab.engine->counters().calls_received, 0u);
  lab.reconnect();
  EXPECT_TRUE(lab.alive());
}

TEST(Progress, a_reply_may_take_this_long_to_be_taken_and_no_longer) {
  LabOptions options;
  options.connection.progress_timeout_ns = 30 * kSecond;
  options.connection.credit_grant = 1;
  ServerLab lab(options);
  const RawCall call{.xid = 5};
  lab.peer->send(call.with(test_call(call.xid, TestService::kNull)));
  lab.turn();
  ASSERT_EQ(lab.log.count(OpKind::PostSend), 1u);
  const std::uint64_t posted = lab.now_ns;
  const auto tick_at = [&](std::uint64_t ns) {
    lab.engine->poll(lab.now_ns = ns);
    lab.connection->tick();
  };
  tick_at(posted + 30 * kSecond - 1);
  EXPECT_TRUE(lab.connection->is_open());
  tick_at(posted + 31 * kSecond);  // each call slot is checked every second
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::NoProgress);
  EXPECT_EQ(lab.engine->counters().stalled_calls, 1u);
}

/// The clock of the engine stands still between two control passes of its reactor.
TEST(Progress, a_call_without_progress_is_found_however_many_connections_and_credits_there_are) {
  constexpr std::uint64_t kControlPassNs = 2'000'000;
  struct Size {
    std::uint32_t connections;
    std::uint32_t credits;
  };
  for (const Size& size : {Size{8, 1}, Size{8, 128}, Size{200, 128}, Size{1650, 1}}) {
    LabOptions options;
    options.connection.progress_timeout_ns = 30 * kSecond;
    options.connection.credit_grant = options.engine.capacity.call_slots = size.credits;
    options.server_connections = size.connections;
    options.raw_posts_receives = false;  // the peer cannot receive the reply
    ServerLab lab(options);
    lab.peer->send(RawCall{.xid = 5}.with(test_call(5, TestService::kNull)));
    const std::uint64_t begun_ns = lab.now_ns;
    const auto passed_ns = [&] { return lab.now_ns - begun_ns; };
    while (lab.connection->is_open() && passed_ns() < 40 * kSecond) {
      lab.engine->poll(lab.now_ns += kControlPassNs);
    }
    EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::NoProgress);
    EXPECT_GE(passed_ns(), 30 * kSecond);
    EXPECT_LE(passed_ns(), 32 * kSecond)
        << size.connections << " connections, " << size.credits << " credits";
  }
}

}  // namespace
}  // namespace sluice::conformance
