// SPDX-License-Identifier: Apache-2.0
//
// A connection that ends at the responder leaves nothing behind: none of its completions, queue entries or
// buffers affects other connections or the next one with its number.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/safety_lab.h"
#include "tests/conformance/second_peer.h"

namespace sluice::conformance {
namespace {

Bytes later_call(std::uint32_t xid) {
  return RawCall{.xid = xid}.with(test_call(xid, TestService::kLater));
}

/// Checks that every call slot of a new connection is usable: none was left in a queue of the previous one.
void expect_all_slots(ServerLab& lab, SecondClient& client) {
  constexpr std::uint32_t kCalls = 8;
  const std::size_t before = lab.service->held();
  for (std::uint32_t i = 0; i < kCalls; ++i) client.peer().send(later_call(0x900 + i));
  client.turns();
  EXPECT_EQ(lab.service->held(), before + kCalls);
  lab.service->complete_later();
  client.turns();
}

// --- Completions

TEST(SafetyResponder, V1_154_V1_156_completions_of_an_earlier_connection_mean_nothing_to_the_next) {
  ServerLab lab;
  ASSERT_TRUE(lab.alive());
  const auto receive = lab.log.all(OpKind::PostReceive).front();
  const auto reply = lab.log.all(OpKind::PostSend).front();
  rpcrdma::Connection* const place = lab.connection;
  lab.reconnect();
  ASSERT_EQ(lab.connection, place);
  ASSERT_TRUE(lab.alive());
  const std::uint64_t received = lab.engine->counters().messages_received;
  const std::size_t executed = lab.service->executed.size();
  lab.peer->inbox.clear();

  // The buffer still holds a call, which must not be executed again.
  lab.connection->on_completion({.wr_id = receive.wr_id, .byte_len = 68, .opcode = rdma::WcOpcode::Receive});
  lab.connection->on_completion({.wr_id = reply.wr_id, .opcode = rdma::WcOpcode::Send});
  lab.settle();
  EXPECT_EQ(lab.engine->counters().messages_received, received);
  EXPECT_EQ(lab.service->executed.size(), executed);
  EXPECT_TRUE(lab.peer->inbox.empty());
  EXPECT_TRUE(lab.connection->responder().quiescent());

  for (const rdma::WcStatus status : {rdma::WcStatus::WrFlushError, rdma::WcStatus::RemoteAccessError})
    lab.connection->on_completion({.wr_id = receive.wr_id, .status = status});
  EXPECT_TRUE(lab.connection->is_open());
  EXPECT_TRUE(lab.alive());
  lab.reconnect();  // no work of the old connection remains
  EXPECT_TRUE(lab.alive());
}

/// Only the last of several replies staged together has a completion. A reply that fails has a separate one.
TEST(SafetyResponder, V1_154_replies_that_share_a_completion_all_end_with_their_connection) {
  constexpr std::uint32_t kCalls = 12;
  for (const std::uint32_t received : {0u, 5u}) {
    LabOptions options;
    options.raw_receives = 5;
    ServerLab lab(options);
    for (std::uint32_t i = 0; i < kCalls; ++i) lab.peer->send(later_call(1 + i));
    lab.settle();
    ASSERT_EQ(lab.service->held(), kCalls);
    lab.service->complete_later();
    lab.turn();
    if (received > 0) lab.peer->poll();
    ASSERT_EQ(lab.peer->inbox.size(), received);
    lab.turn();
    EXPECT_EQ(lab.service->releases, 0u) << "no completion has come";
    lab.reconnect();
    EXPECT_EQ(lab.service->releases, kCalls);
    EXPECT_TRUE(lab.engine->memory_balanced());
    EXPECT_TRUE(lab.alive());
  }
}

// --- Queues of the connections of a reactor

TEST(SafetyResponder, closing_takes_calls_out_of_the_queue_for_call_memory) {
  LabOptions options;
  options.engine.call_buffers = 1;
  ServerLab lab(options);
  send_long_call(*lab.peer, test_call(1, TestService::kLater));
  lab.settle();
  ASSERT_EQ(lab.service->held(), 1u);
  SecondClient second(lab);
  for (const std::uint32_t xid : {2u, 3u}) send_long_call(second.peer(), test_call(xid, TestService::kLater));
  second.turns();
  ASSERT_EQ(lab.engine->counters().waits_call_memory, 2u);
  ASSERT_TRUE(lab.engine->calls_await_memory());

  second.disconnect();
  EXPECT_FALSE(lab.engine->calls_await_memory());
  second.connect();
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.engine->call_memory().available(), 1u);
  expect_all_slots(lab, second);
}

TEST(SafetyResponder, closing_takes_calls_out_of_the_queue_for_reply_memory) {
  LabOptions options;
  options.engine.reply_buffers = 1;
  ServerLab lab(options);
  const auto list_call = [](RawPeer& peer, std::uint32_t xid) {
    const auto memory = peer.expose(16384, rdma::kRemoteWrite);
    peer.send(RawCall{.xid = xid, .reply = std::vector{memory.segment}}.with(
        test_call(xid, TestService::kList, {9000})));
    peer.poll();
  };
  // The reply's Send does not complete while its client does not receive.
  list_call(*lab.peer, 1);
  for (int i = 0; i < 20; ++i) lab.turn();
  ASSERT_EQ(lab.engine->reply_memory().available(), 0u);
  SecondClient second(lab);
  for (const std::uint32_t xid : {2u, 3u}) list_call(second.peer(), xid);
  second.turns();
  ASSERT_EQ(lab.engine->counters().waits_reply_memory, 2u);
  ASSERT_TRUE(lab.engine->replies_await_memory());

  second.disconnect();
  EXPECT_FALSE(lab.engine->replies_await_memory());
  EXPECT_EQ(lab.service->releases, 2u);
  second.connect();
  lab.settle();
  EXPECT_EQ(lab.engine->reply_memory().available(), 1u);
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
  expect_all_slots(lab, second);
}

}  // namespace
}  // namespace sluice::conformance
