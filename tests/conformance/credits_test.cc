// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows 2.3, 2.4 and 2.10 at the responder: credits, Receives, thresholds, lost connections.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

TEST(Credits, V1_041_V1_042_V1_051_F_16_the_grant_is_a_limit_and_stays_constant) {
  ServerLab lab;
  std::uint32_t xid = 1;
  for (int round = 0; round < 250; ++round) {
    for (int burst = 0; burst < 1 + round % 8; ++burst) {
      lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, 0)));
      ++xid;
    }
    lab.settle();
  }
  EXPECT_EQ(lab.peer->inbox.size(), xid - 1);
  for (const auto& reply : lab.peer->inbox) ASSERT_EQ(word_at(reply.bytes, 2), 64u);
}

TEST(Credits, V1_042_V1_048_the_grant_changes_at_run_time_and_never_to_zero) {
  ServerLab lab;
  const RawCall call;
  for (const std::uint32_t grant : {8u, 2u, 8u, 0u, 100000u}) {
    lab.connection->responder().set_grant(grant);
    const std::uint32_t expected = std::clamp(grant, 1u, 64u);
    EXPECT_EQ(word_at(lab.call(call.with(test_call(call.xid, 0))), 2), expected);
  }
}

TEST(Credits, V1_022_A_22_a_request_of_zero_credits_is_taken_as_one) {
  ServerLab lab;
  const RawCall call{.credits = 0};
  EXPECT_EQ(accept_stat(lab.call(call.with(test_call(call.xid, 0)))), 0u);
}

TEST(Credits, V1_047_V1_061_receives_are_there_before_the_connection_is) {
  ServerLab lab;
  EXPECT_GE(lab.log.index_of(OpKind::PostReceive), 0);
  EXPECT_EQ(lab.log.count(OpKind::PostReceive), 64u + rpcrdma::kSpareReceives);
  // The first message on the connection has 1024 bytes.
  Bytes rpc = test_call(1, TestService::kName, {952});
  rpc.resize(1024 - 28);
  lab.log.clear();
  EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 1}.with(rpc))), 0u);
}

TEST(Credits, V1_050_V1_052_F_17_a_calls_receive_is_posted_again_before_its_reply_is_sent) {
  for (const std::uint32_t grant : {1u, 32u}) {
    LabOptions options;
    options.connection.credit_grant = grant;
    ServerLab lab(options);
    std::int64_t posted = static_cast<std::int64_t>(lab.log.count(OpKind::PostReceive));
    lab.log.clear();
    std::uint32_t xid = 1;
    for (int round = 0; round < 50; ++round) {
      for (std::uint32_t i = 0; i < grant; ++i, ++xid)
        lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, 0)));
      lab.settle();
    }
    std::int64_t in_process = 0;
    for (const Op& op : lab.log.ops()) {
      if (op.kind == OpKind::PostReceive) ++posted;
      if (op.kind == OpKind::ReceiveDone) --posted, ++in_process;
      if (op.kind == OpKind::PostSend) {
        --in_process;
        ASSERT_GE(posted + in_process, static_cast<std::int64_t>(grant));
      }
    }
  }
}

TEST(Credits, V1_054_more_calls_than_granted_are_all_answered) {
  LabOptions options;
  options.connection.credit_grant = 4;
  ServerLab lab(options);
  for (std::uint32_t xid = 1; xid <= 6; ++xid)
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.settle();
  EXPECT_EQ(lab.service->held(), 4u);
  EXPECT_GE(lab.engine->counters().credit_overruns, 1u);
  lab.service->complete_later();
  lab.settle();
  lab.service->complete_later();
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 6u);
  for (const auto& reply : lab.peer->inbox) EXPECT_GE(word_at(reply.bytes, 2), 1u);
}

TEST(Credits, V1_058_a_stray_RDMA_DONE_finds_a_receive_under_full_load) {
  LabOptions options;
  options.connection.credit_grant = 8;
  ServerLab lab(options);
  for (std::uint32_t xid = 1; xid <= 8; ++xid)
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kLater)));
  lab.peer->send(words({99, 1, 32, 3}));
  lab.settle();
  EXPECT_EQ(lab.engine->counters().done_dropped, 1u);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 8u);
  EXPECT_FALSE(lab.peer->failed);
}

TEST(Credits, a_client_may_send_as_soon_as_it_has_a_reply) {
  LabOptions options;
  options.connection.credit_grant = 2;
  ServerLab lab(options);
  // Replies and new calls cross with completions: nothing is lost and no Receive is missing.
  std::uint32_t xid = 1;
  std::size_t answered = 0;
  for (; xid <= 2; ++xid) lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, 0)));
  for (int turn = 0; turn < 5000 && answered < 1000; ++turn) {
    lab.peer->poll();
    while (answered < lab.peer->inbox.size()) {
      ++answered;
      lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, 0)));
      ++xid;
    }
    lab.turn();
  }
  EXPECT_GE(answered, 1000u);
  EXPECT_EQ(lab.engine->counters().credit_overruns, 0u);
}

TEST(Credits, V1_061_V1_068_F_18_thresholds_of_1024_4096_and_65536) {
  for (const std::uint32_t threshold : {1024u, 4096u, 65536u - 1024u}) {
    LabOptions options;
    options.engine.capacity.receive_bytes = threshold;
    options.engine.capacity.reply_buffer_bytes = 2 * threshold;
    options.connection.receive_inline_bytes = threshold;
    options.connection.send_inline_bytes = threshold;
    options.raw_receive_bytes = threshold;
    ServerLab lab(options);
    Bytes rpc = test_call(1, TestService::kName, {threshold - 28 - 44});
    rpc.resize(threshold - 28);
    EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 1}.with(rpc))), 0u) << threshold;
    const Bytes reply =
        lab.call(RawCall{.xid = 2}.with(test_call(2, TestService::kList, {threshold - 28 - 28})));
    EXPECT_EQ(reply.size(), threshold);
    const RawCall too_long{.xid = 3};
    EXPECT_TRUE(
        is_err_chunk(lab.call(too_long.with(test_call(3, TestService::kList, {threshold - 28 - 27}))), 3));
  }
}

TEST(Credits, V1_063_thresholds_differ_by_direction) {
  LabOptions options;
  options.connection.receive_inline_bytes = 4096;
  options.connection.send_inline_bytes = 1024;
  ServerLab lab(options);
  Bytes rpc = test_call(1, TestService::kName, {4000});
  rpc.resize(44 + 4000);
  EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 1}.with(rpc))), 0u);
  EXPECT_TRUE(is_err_chunk(lab.call(RawCall{.xid = 2}.with(test_call(2, TestService::kList, {2000}))), 2));
}

TEST(Credits, V1_068_two_programs_share_a_connection) {
  ServerLab lab;
  EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 1}.with(test_call(1, 0)))), 0u);
  EXPECT_EQ(accept_stat(lab.call(RawCall{.xid = 2}.with(test_call(2, 0, {}, kTestProgram + 1)))), 0u);
}

// --- Lost connections

TEST(Reconnect, V1_059_V1_156_V1_173_a_new_connection_has_fresh_receives) {
  ServerLab lab;
  for (int i = 0; i < 5; ++i) {
    lab.log.clear();
    lab.reconnect();
    EXPECT_EQ(lab.log.count(OpKind::PostReceive), 64u + rpcrdma::kSpareReceives);
    EXPECT_TRUE(lab.alive());
  }
}

TEST(Reconnect, V1_154_a_reply_that_is_ready_after_the_loss_is_discarded) {
  ServerLab lab;
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  lab.peer->send(RawCall{.xid = 1, .writes = {}, .reply = std::vector{memory.segment}}.with(
      test_call(1, TestService::kLater)));
  lab.settle();
  ASSERT_EQ(lab.service->held(), 1u);
  lab.peer->owned_qp.reset();
  lab.settle();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Draining);
  lab.log.clear();
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.log.count(OpKind::PostSend) + lab.log.count(OpKind::PostWrite), 0u);
  EXPECT_EQ(lab.service->releases, 1u);
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
}

TEST(Reconnect, V1_039_V1_145_a_bad_handle_ends_one_connection_and_its_retransmission_none) {
  ServerLab lab;
  const rpcrdma::Segment nowhere{rdma::Rkey{0x12345678}, 64, 0x1000};
  const Bytes message =
      RawCall{.xid = 0x6000, .reads = {{44, nowhere}}}.with(test_call(0x6000, TestService::kSink, {64}));
  EXPECT_TRUE(lab.exchange(message).empty());
  EXPECT_NE(lab.connection->state(), rpcrdma::Connection::State::Open);
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
  lab.reconnect();
  EXPECT_TRUE(is_err_chunk(lab.call(message), 0x6000));
  EXPECT_EQ(lab.engine->counters().failed_transfer_refused, 1u);
  EXPECT_TRUE(lab.alive());
  EXPECT_EQ(lab.connection->responder().busy_slots(), 0u);
}

TEST(Reconnect, V1_039_a_call_whose_XID_failed_long_ago_is_a_call_like_others) {
  ServerLab lab;
  const rpcrdma::Segment nowhere{rdma::Rkey{0x12345678}, 64, 0x1000};
  lab.exchange(
      RawCall{.xid = 0x6000, .reads = {{44, nowhere}}}.with(test_call(0x6000, TestService::kSink, {64})));
  ASSERT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
  lab.reconnect();
  lab.now_ns += rpcrdma::FailedTransfers::kLifetimeNs;
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  const Bytes answer = lab.call(RawCall{.xid = 0x6000, .reads = {{44, memory.segment}}}.with(
      test_call(0x6000, TestService::kSink, {64})));
  EXPECT_EQ(word_at(answer, 3), 0u);
  EXPECT_EQ(accept_stat(answer), 0u);
}

TEST(Reconnect, V1_145_V1_147_handles_of_another_connection_or_direction_are_refused) {
  ServerLab lab;
  const auto writable = lab.peer->expose(64, rdma::kRemoteWrite);
  const Bytes wrong_way =
      RawCall{.xid = 1, .reads = {{44, writable.segment}}}.with(test_call(1, TestService::kSink, {64}));
  EXPECT_TRUE(lab.exchange(wrong_way).empty());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
  lab.reconnect();
  // The handle belongs to the old connection.
  const Bytes old_handle =
      RawCall{.xid = 2, .writes = {{writable.segment}}}.with(test_call(2, TestService::kSource, {64}));
  EXPECT_TRUE(lab.exchange(old_handle).empty());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
  lab.reconnect();
  EXPECT_TRUE(lab.alive());
}

TEST(Reconnect, other_connections_notice_nothing) {
  ServerLab lab;
  RawPeer other(*lab.raw_device, 1024, 16);
  auto qp = other.make_queue_pair();
  auto& raw_cm = *lab.raw_device->connection_manager();
  ASSERT_TRUE(raw_cm.connect(*qp, kPort, {}));
  rdma::CmEvent events[4];
  auto& cm = *lab.device->connection_manager();
  rpcrdma::Connection* second = nullptr;
  for (int i = 0; i < 20; ++i) {
    const std::size_t count = cm.poll_events(events);
    for (const auto& event : std::span(events, count)) {
      if (event.type != rdma::CmEventType::ConnectRequest) continue;
      second = lab.engine->free_connection();
      auto server_qp = lab.device->create_queue_pair(lab.engine->queue_pair_limits());
      auto& ref = *server_qp;
      second->open(std::move(server_qp), lab.options.connection, event.peer_address, nullptr);
      cm.accept(event.id, ref, {});
    }
    raw_cm.poll_events(events);
  }
  ASSERT_NE(second, nullptr);
  // A bad handle ends the first connection while the service executes a call of the second.
  other.send(RawCall{.xid = 9}.with(test_call(9, TestService::kLater)));
  for (int i = 0; i < 50; ++i) lab.turn();
  ASSERT_EQ(lab.service->held(), 1u);
  const rpcrdma::Segment nowhere{rdma::Rkey{0x12345678}, 64, 0x1000};
  lab.exchange(RawCall{.xid = 1, .reads = {{44, nowhere}}}.with(test_call(1, TestService::kSink, {64})));
  EXPECT_NE(lab.connection->state(), rpcrdma::Connection::State::Open);
  EXPECT_EQ(second->state(), rpcrdma::Connection::State::Open);
  lab.service->complete_later();
  for (int i = 0; i < 50; ++i) {
    lab.turn();
    lab.peer->poll();  // one device reports the completions of both raw queue pairs
  }
  EXPECT_EQ(lab.engine->counters().replies_sent, 1u);
  qp.reset();
}

}  // namespace
}  // namespace sluice::conformance
