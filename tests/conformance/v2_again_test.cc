// SPDX-License-Identifier: Apache-2.0
//
// Version 2: repeated events on a connection, and state that must not pass from a connection to the next one
// with its number.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"
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

/// The call has been refused and fenced to be replanned when its caller gives it up and the connection ends.
TEST(V2Again, V2_105_a_call_that_is_given_up_before_it_is_sent_again_ends_with_its_connection) {
  for (const bool expires : {false, true}) {
    ReadClient lab;
    const Bytes call = lab.read(1u << 20, 0, repeatable(), 65536);
    lab.peer->send(error(word_at(call, 0), 8, {1, 1u << 20}));
    for (int turn = 0; turn < 50 && lab.engine->counters().calls_replanned == 0; ++turn) {
      lab.peer->poll();
      lab.engine->poll(lab.now_ns += 1000);
    }
    ASSERT_EQ(lab.engine->counters().calls_replanned, 1u);  // its invalidation is posted
    ASSERT_TRUE(lab.requester->cancel(static_cast<rpc::Xid>(word_at(call, 0))));
    EXPECT_TRUE(lab.finished.empty());
    lab.connection->close(rpcrdma::CloseReason::TransportError);
    lab.settle();
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Cancelled);
    if (expires) lab.requester->expire(~std::uint64_t{0});
    lab.disconnect();
    lab.connect();
    lab.peer->inbox.clear();
    lab.peer->send(grant(200));
    lab.settle();
    EXPECT_TRUE(lab.sent().empty());
    EXPECT_EQ(lab.finished.size(), 1u);
  }
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
  // The Send of the first set has not completed, so another set has to wait.
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

/// Opens a further connection of the client that is never established.
rpcrdma::Connection& dial_in_vain(Client& lab) {
  rpcrdma::Connection& dialed = *lab.engine->free_connection();
  dialed.open(lab.device->create_queue_pair(lab.engine->queue_pair_limits()), lab.options.connection,
              PeerAddress::from_ipv4(10, 0, 0, 1), lab.requester.get());
  EXPECT_TRUE(dialed.negotiating());
  dialed.close(rpcrdma::CloseReason::PeerClosed);
  lab.settle();
  while (lab.engine->take_closed() != nullptr) {
  }
  return dialed;
}

TEST(V2Again, V2_015_a_refused_connection_says_nothing_of_the_versions_of_a_server) {
  Client lab;
  lab.confirm();
  lab.disconnect();
  EXPECT_EQ(dial_in_vain(lab).state(), rpcrdma::Connection::State::Closed);
  lab.connect();
  EXPECT_EQ(lab.connection->version(), 2u);
  EXPECT_TRUE(lab.connection->negotiating());
}

TEST(V2Again, V2_015_a_first_message_that_did_not_arrive_says_nothing_either) {
  for (const bool delivered : {true, false}) {
    LabOptions options = Client::defaults();
    options.raw_posts_receives = delivered;
    Client lab(options);
    EXPECT_TRUE(lab.connection->negotiating());
    EXPECT_EQ(lab.peer->inbox.size(), delivered ? 1u : 0u);
    lab.disconnect();
    lab.connect();
    EXPECT_EQ(lab.connection->version(), delivered ? 1u : 2u);
  }
}

TEST(V2Again, V2_015_a_call_may_be_the_first_message_that_arrives) {
  LabOptions options = Client::defaults();
  options.connection.version2.greeting = rpcrdma::Greeting::Call;
  Client lab(options);
  lab.submit_null();
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 1u);
  lab.disconnect();
  lab.connect();
  EXPECT_EQ(lab.connection->version(), 1u);
}

TEST(V2Again, V2_015_a_server_at_another_port_is_another_server) {
  Client lab;
  lab.disconnect();  // version 2 was not answered
  lab.options.connection.server_port = 20050;
  lab.connect();
  EXPECT_EQ(lab.connection->version(), 2u);
  lab.confirm();
  lab.disconnect();
  lab.options.connection.server_port = 0;
  lab.connect();
  EXPECT_EQ(lab.connection->version(), 1u);
}

/// Connects to a server of version 1 and returns the first call that it receives.
Bytes sent_again_to_version_1(Client& lab) {
  lab.disconnect();
  lab.connect();
  lab.answer(words({word_at(lab.sent().at(0), 0), 2, 32, 4, 1, 1, 1}));
  EXPECT_EQ(lab.connection->version(), 1u);
  EXPECT_EQ(lab.sent().size(), 1u);
  return lab.sent().empty() ? Bytes{} : lab.sent()[0];
}

TEST(V2Again, V2_114_V2_014_arguments_that_are_in_the_payload_stay_there_in_version_1) {
  for (const std::uint32_t bytes : {201u, 1001u}) {
    Client lab;
    lab.confirm();
    const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
    fill_pattern(memory.bytes, 3);
    const rdma::Sge piece{memory.bytes.data(), bytes, memory.lkey};
    const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
    const Bytes payload = test_call(0, TestService::kSink, {bytes, 99});
    const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    lab.answer(error(*xid, 5, {0}));
    ASSERT_EQ(lab.sent().size(), 1u);
    Bytes expected = test_call(*xid, TestService::kSink, {bytes});
    expected.resize(44 + xdr::padded(bytes));
    fill_pattern(std::span(expected).subspan(44, bytes), 3);
    append(expected, words({99}));

    const Bytes again = sent_again_to_version_1(lab);
    const Offer offer = offer_in(again);
    if (bytes < 1000) {
      Bytes whole = plain_header(*xid, lab.options.connection.credits_requested);
      append(whole, expected);
      EXPECT_EQ(again, whole);
    } else {
      EXPECT_EQ(word_at(again, 3), kNoMsg);
      ASSERT_EQ(offer.reads.size(), 1u);
      ASSERT_EQ(offer.reads[0].target.length, expected.size());
      const auto whole = lab.peer->read_remote(offer.reads[0].target, expected.size());
      lab.settle();
      EXPECT_TRUE(std::equal(whole.begin(), whole.end(), expected.begin(), expected.end()));
    }
    lab.answer(ClientLab::success(*xid, 32));
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Ok);
  }
}

/// Connects to a server of version 2 and returns the first message that it receives.
Bytes sent_again_to_version_2(Client& lab) {
  lab.disconnect();
  lab.connect();
  lab.answer(grant(200));
  EXPECT_FALSE(lab.sent().empty());
  return lab.sent().empty() ? Bytes{} : lab.sent()[0];
}

TEST(V2Again, V2_114_a_call_that_waited_to_be_sent_as_a_whole_goes_to_the_next_server_in_chunks) {
  Client lab;
  lab.answer(grant(1));
  const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
  const rdma::Sge piece{memory.bytes.data(), 1000, memory.lkey};
  const rpcrdma::ReadItem item{rpcrdma::Position{44}, {&piece, 1}};
  const Bytes payload = test_call(0, TestService::kSink, {1000, 99});
  const auto xid = lab.submit({.payload = payload, .reads = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  lab.answer(error(*xid, 5, {0}));
  EXPECT_TRUE(lab.sent().empty());  // no credit is left
  const Bytes again = sent_again_to_version_2(lab);
  EXPECT_EQ(word_at(again, 3), kMsg);
  EXPECT_EQ(word_at(again, 7), 44u);  // Position
}

TEST(V2Again, V2_117_a_limit_of_segments_is_that_of_the_server_that_has_said_it) {
  ReadClient lab;
  const rdma::Sge piece{lab.memory.bytes.data(), 4096, lab.memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  const auto xid = lab.submit({.payload = name_call(20000), .writes = {&item, 1}, .max_reply_bytes = 64});
  lab.settle();
  lab.answer(error(*xid, 7, {1}));
  EXPECT_EQ(lab.sent().size(), 5u);  // continued
  EXPECT_EQ(word_at(sent_again_to_version_2(lab), 3), kNoMsg);
}

TEST(V2Again, V2_116_V2_014_write_chunks_that_one_server_refused_are_offered_to_the_next) {
  for (const bool version_1 : {true, false}) {
    ReadClient lab;
    const std::uint32_t xid = word_at(lab.read(4096, 1000), 0);
    lab.answer(error(xid, 6, {1}));
    ASSERT_EQ(lab.sent().size(), 1u);
    if (version_1) {
      Offer offer = offer_in(sent_again_to_version_1(lab));
      ASSERT_EQ(offer.writes.size(), 1u);
      EXPECT_FALSE(offer.reply);
      offer.writes[0][0].length = 1000;
      lab.answer(RawCall{.xid = xid, .writes = offer.writes}.with(words({xid, 1, 0, 0, 0, 0, 0, 1000})));
    } else {
      sent_again_to_version_2(lab);
      lab.answer(error(xid, 6, {1}));  // refused again: it is sent without chunks again
      ASSERT_EQ(lab.sent().size(), 1u);
      EXPECT_EQ(word_at(lab.sent()[0], 7), 0u);
      EXPECT_EQ(word_at(lab.sent()[0], 8), 1u);
      lab.answer(Header{.xid = xid, .flags = kResponse}.with(words({xid, 1, 0, 0, 0, 0, 0, 0})));
    }
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, rpcrdma::CallStatus::Ok);
    if (version_1) {
      EXPECT_EQ(lab.finished[0].items.at(0).where, rpcrdma::ItemResult::Where::Placed);
    }
  }
}

}  // namespace
}  // namespace sluice::conformance::v2
