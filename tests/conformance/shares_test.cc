// SPDX-License-Identifier: Apache-2.0
//
// Memory that connections share: a connection without progress holds at most its share, and at most for the
// progress timeout.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/second_peer.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CloseReason;

constexpr std::uint64_t kShareSecondNs = 1'000'000'000;

LabOptions shared() {
  LabOptions options;
  options.engine.max_connections = 4;
  options.engine.small_buffer_bytes = 16u << 10;
  options.connection.progress_timeout_ns = 30 * kShareSecondNs;
  return options;
}

/// Sends a LIST that needs memory for its results, with a Reply chunk for them.
void list(RawPeer& peer, std::uint32_t xid, std::uint32_t bytes) {
  const auto memory = peer.expose(bytes + 1024, rdma::kRemoteWrite);
  peer.send(RawCall{.xid = xid, .reply = std::vector{memory.segment}}.with(
      test_call(xid, TestService::kList, {bytes})));
}

/// Advances the clock of the server only: the lab's own peer is not polled and receives nothing.
void pass_server(ServerLab& lab, std::uint64_t ns) {
  for (const std::uint64_t end = lab.now_ns + ns; lab.now_ns < end;)
    lab.engine->poll(lab.now_ns += 5'000'000);
}

/// Requests more memory than exists, and receives none of the replies.
void hoard(ServerLab& lab, RawPeer& peer) {
  for (std::uint32_t xid = 1; xid <= 60; ++xid) {
    list(peer, xid, 9000);
    peer.poll();
  }
  for (int i = 0; i < 100; ++i) lab.turn();
}

TEST(Shares, replies_that_nobody_takes_leave_each_other_client_a_buffer) {
  ServerLab lab(shared());
  SecondClient second(lab, "second");
  SecondClient third(lab, "third");
  SecondClient victim(lab, "victim");
  for (RawPeer* peer : {lab.peer.get(), &second.peer(), &third.peer()}) hoard(lab, *peer);
  const std::uint32_t kept = lab.options.engine.max_connections - 3;  // for the victim and absent clients
  ASSERT_EQ(lab.engine->reply_memory().available(), lab.options.engine.reply_buffers + kept);
  EXPECT_GT(lab.connection->shared_bytes(), lab.options.engine.small_buffer_bytes);
  EXPECT_EQ(victim.connection->shared_bytes(), 0u);
  list(victim.peer(), 0x99, 9000);
  victim.turns();
  EXPECT_EQ(victim.peer().inbox.size(), 1u);
}

TEST(Shares, large_buffers_that_one_client_holds_are_at_most_half) {
  LabOptions options = shared();
  options.engine.reply_buffers = 4;
  ServerLab lab(options);
  for (std::uint32_t xid = 1; xid <= 8; ++xid) {
    list(*lab.peer, xid, 60'000);
    lab.peer->poll();
  }
  for (int i = 0; i < 100; ++i) lab.turn();
  SecondClient second(lab);
  for (std::uint32_t xid = 0x90; xid < 0x92; ++xid) list(second.peer(), xid, 60'000);
  second.turns();
  EXPECT_EQ(second.peer().inbox.size(), 2u);
}

TEST(Progress, a_reply_that_waits_for_room_costs_nothing_until_there_is_some) {
  LabOptions options = shared();
  options.engine.capacity.send_depth = 8;
  ServerLab lab(options);
  for (std::uint32_t xid = 1; xid <= 20; ++xid) {
    lab.peer->send(RawCall{.xid = xid}.with(test_call(xid, TestService::kNull)));
    lab.peer->poll();
  }
  for (int i = 0; i < 100; ++i) lab.turn();
  const std::uint64_t waits = lab.engine->counters().waits_send_queue;
  ASSERT_GT(waits, 0u);
  for (int i = 0; i < 1000; ++i) lab.turn();
  EXPECT_EQ(lab.engine->counters().waits_send_queue, waits);
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 20u);
}

TEST(Progress, a_reply_that_is_not_taken_ends_its_connection) {
  ServerLab lab(shared());
  pass_server(lab, 100 * kShareSecondNs);
  list(*lab.peer, 1, 9000);
  lab.peer->poll();
  pass_server(lab, 29 * kShareSecondNs);
  EXPECT_TRUE(lab.connection->is_open());
  pass_server(lab, 2 * kShareSecondNs);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::NoProgress);
  EXPECT_EQ(lab.engine->counters().stalled_calls, 1u);
  EXPECT_EQ(lab.service->releases, 1u);
}

TEST(Progress, reads_that_are_not_answered_end_their_connection) {
  ServerLab lab(shared());
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ReadsDone;
  };
  const auto memory = lab.peer->expose(64, rdma::kRemoteRead);
  lab.peer->send(RawCall{.xid = 1, .reads = {{.position = 44, .segment = memory.segment}}}.with(
      test_call(1, TestService::kSink, {64})));
  lab.peer->poll();
  pass_server(lab, 31 * kShareSecondNs);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::NoProgress);
  lab.device->hold = nullptr;
}

TEST(Progress, the_time_of_the_service_is_its_own) {
  ServerLab lab(shared());
  lab.peer->send(RawCall{.xid = 1}.with(test_call(1, TestService::kLater)));
  lab.peer->poll();
  pass_server(lab, 1000 * kShareSecondNs);
  EXPECT_TRUE(lab.connection->is_open());
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

TEST(Progress, calls_that_go_on_are_not_stalled) {
  ServerLab lab(shared());
  for (std::uint32_t xid = 1; xid < 10; ++xid) {
    pass_server(lab, 10 * kShareSecondNs);
    EXPECT_TRUE(lab.alive(xid));
  }
  EXPECT_EQ(lab.engine->counters().stalled_calls, 0u);
}

}  // namespace
}  // namespace sluice::conformance
