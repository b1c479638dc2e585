// SPDX-License-Identifier: Apache-2.0
//
// Version 2: what happens twice on a connection, and what a connection leaves to the next one with its
// number.
#include <gtest/gtest.h>

#include "tests/conformance/v2_client.h"

namespace sluice::conformance::v2 {
namespace {

TEST(V2Again, V2_092_those_that_find_no_memory_wait_every_time) {
  LabOptions options = Server::defaults();
  options.engine.assembly_buffers = 1;
  Server lab(options);
  lab.hello();
  auto& pool = lab.engine->assembly_memory();
  rpcrdma::SharedMemory::Account other;
  for (std::uint32_t round = 1; round <= 3; ++round) {
    std::byte* const taken = pool.acquire(other, 1);
    ASSERT_NE(taken, nullptr);
    const Bytes payload = test_call(round, 0);
    lab.peer->inbox.clear();
    lab.peer->send(Header{.xid = round, .flags = kMore}.with(std::span(payload).first(20)));
    lab.peer->send(Header{.xid = round}.with(std::span(payload).subspan(20)));
    lab.settle();
    EXPECT_TRUE(lab.answers().empty());
    EXPECT_EQ(lab.counters().waits_assembly, round);
    EXPECT_TRUE(lab.engine->messages_await_assembly());
    pool.release(taken);
    lab.settle();
    ASSERT_EQ(lab.answers().size(), 1u) << round;
    EXPECT_TRUE(is_success(lab.answers()[0], round));
    EXPECT_FALSE(lab.engine->messages_await_assembly());
  }
  lab.reconnect();
  lab.hello();
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Again, V2_062_host_authentication_goes_out_once_whatever_else_waits) {
  Server lab;
  lab.hello();
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ControlSent;
  };
  const auto sets = [&] {
    std::size_t count = 0;
    for (const Received& received : lab.peer->inbox) count += word_at(received.bytes, 3) == kConnProp ? 1 : 0;
    return count;
  };
  lab.peer->inbox.clear();
  ASSERT_TRUE(lab.connection->send_host_authentication(Bytes(64)));
  lab.settle();
  EXPECT_EQ(sets(), 1u);
  // Its Send has not completed: another set has to wait.
  EXPECT_FALSE(lab.connection->send_host_authentication(Bytes(64)));
  lab.settle();
  EXPECT_EQ(sets(), 1u);
  lab.device->hold = nullptr;
  lab.settle();
  ASSERT_TRUE(lab.connection->send_host_authentication(Bytes(64)));
  lab.settle();
  EXPECT_EQ(sets(), 2u);
}

TEST(V2Again, V2_062_host_authentication_on_its_way_is_not_sent_again_when_others_try_again) {
  Server lab;
  lab.peer->send(Header{.xid = 1, .credit = 0x00400002, .type = kConnProp}.then({0}));
  lab.settle();
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ControlSent;
  };
  lab.peer->inbox.clear();
  ASSERT_TRUE(lab.connection->send_host_authentication(Bytes(64)));
  lab.settle();
  const std::uint64_t sets = lab.counters().properties_sent;
  std::uint32_t xid = 10;
  while (lab.counters().waits_credit == 0) {  // until a reply waits for a credit
    ASSERT_LT(xid, 20u);
    lab.peer->send(null_call(++xid, 0x00400000));
    lab.settle();
  }
  const std::size_t answered = lab.answers().size();
  lab.peer->send(grant(8));
  lab.settle();
  ASSERT_EQ(lab.answers().size(), answered + 1);
  EXPECT_TRUE(is_success(lab.answers().back(), xid));
  EXPECT_EQ(lab.counters().properties_sent, sets);
  EXPECT_FALSE(lab.connection->send_host_authentication(Bytes(64)));
}

TEST(V2Again, V2_154_a_connection_waits_for_its_grants_and_properties) {
  Server lab;
  lab.device->hold = [](const rdma::WorkCompletion& wc) {
    return rpcrdma::WrId::decode(wc.wr_id).kind == rpcrdma::WrKind::ControlSent;
  };
  lab.hello();
  lab.connection->close(rpcrdma::CloseReason::LocalClose);
  for (int i = 0; i < 20; ++i) lab.turn();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Draining);
  lab.device->hold = nullptr;
  lab.settle();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
}

TEST(V2Again, V2_016_a_connection_begins_with_nothing_of_the_one_before) {
  LabOptions options = Server::defaults();
  Server lab(options);
  lab.peer->send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then({2, 2, 4, 1024, 4, 4, 1}));
  lab.settle();
  EXPECT_EQ(lab.connection->agreement().send_bytes, 1024u);
  EXPECT_TRUE(lab.connection->heard_properties());
  lab.connection->set_credits(2);
  // The connection ends in the middle of a continued call and with calls that the service has not answered.
  lab.peer->send(Header{.xid = 7, .credit = 0}.with(test_call(7, TestService::kLater)));
  const Bytes unfinished = test_call(9, 0);
  lab.ask(Header{.xid = 9, .flags = kMore}.with(std::span(unfinished).first(20)));
  lab.service->complete_later();
  lab.settle();
  rpcrdma::Connection* const place = lab.connection;
  lab.reconnect();
  ASSERT_EQ(lab.connection, place);
  EXPECT_EQ(lab.connection->version(), 0u);
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::None);
  EXPECT_FALSE(lab.connection->heard_properties());
  EXPECT_EQ(lab.connection->agreement().send_bytes, 4096u);
  EXPECT_EQ(lab.connection->agreement().max_segments, 16u);
  EXPECT_EQ(lab.connection->peer_parameters(), rpcrdma::v2::Parameters{});
  EXPECT_EQ(lab.connection->flow_control().balance(), 1);
  EXPECT_EQ(lab.connection->flow_control().window(), options.connection.credit_grant);
  // Properties are announced again, and calls of any length are answered.
  const auto inbox = lab.exchange(null_call(0x10, 0x0040003f));
  ASSERT_EQ(inbox.size(), 2u);
  EXPECT_EQ(word_at(inbox[0].bytes, 3), kConnProp);
  EXPECT_EQ(word_at(inbox[0].bytes, 2) >> 16, options.connection.credit_grant);
  EXPECT_EQ(lab.ask(Header{.xid = 3}.with(test_call(3, TestService::kList, {4000}))).size(), 1u);
  lab.reconnect();
  EXPECT_TRUE(lab.alive(5)) << "version 1 works as well";
}

}  // namespace
}  // namespace sluice::conformance::v2
