// SPDX-License-Identifier: Apache-2.0
//
// Version 2: memory of continued messages, which is released when they are refused or their connection ends.
#include <gtest/gtest.h>

#include "tests/conformance/safety_lab.h"
#include "tests/conformance/second_peer.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CloseReason;

// --- Memory of continued messages

std::size_t free_assemblies(ServerLab& lab) {
  return lab.engine->assembly_memory().available();
}

/// Sends a NULL call in two parts.
void send_in_parts(RawPeer& peer, std::uint32_t xid) {
  const Bytes payload = test_call(xid, TestService::kNull);
  peer.send(Header{.xid = xid, .flags = kMore}.with(std::span(payload).first(20)));
  peer.send(Header{.xid = xid}.with(std::span(payload).subspan(20)));
}

TEST(SafetyV2Close, V2_095_a_continued_call_that_waits_for_a_slot_gives_back_its_memory) {
  LabOptions options = Server::defaults();
  // There are more Receives than call slots: for two calls, and for replies to reverse calls.
  options.connection.credit_grant = 2;
  options.engine.capacity.requests = 32;
  options.connection.credits_requested = 32;
  Server lab(options);
  lab.hello();
  const std::size_t all = free_assemblies(lab);
  for (const std::uint32_t xid : {5u, 6u})
    lab.ask(Header{.xid = xid}.with(test_call(xid, TestService::kLater)));
  ASSERT_EQ(lab.service->held(), 2u);
  send_in_parts(*lab.peer, 7);
  lab.settle();
  ASSERT_EQ(lab.counters().waits_call_slot, 1u);
  ASSERT_EQ(free_assemblies(lab), all - 1);
  lab.peer->owned_qp.reset();
  lab.settle();
  ASSERT_FALSE(lab.connection->is_open());
  EXPECT_EQ(free_assemblies(lab), all);
  lab.service->complete_later();
  lab.settle();
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
  EXPECT_EQ(free_assemblies(lab), all);
}

TEST(SafetyV2Close, V2_095_closing_takes_a_connection_out_of_the_queue_for_assembly_memory) {
  LabOptions options = Server::defaults();
  options.engine.assembly_buffers = 1;
  options.raw_receives = 64;
  options.raw_receive_bytes = 4096;
  Server lab(options);
  lab.hello();
  const Bytes payload = test_call(5, TestService::kNull);
  lab.ask(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(20)));
  ASSERT_EQ(free_assemblies(lab), 0u);

  const auto hello = [](SecondClient& client) {
    client.send(Header{.xid = 1, .credit = 0x00400010u, .type = kConnProp}.then({0}));
    client.peer().inbox.clear();
  };
  SecondClient second(lab);
  SecondClient third(lab, "third");
  hello(third);
  // The loop runs more often than there are connections.
  for (std::uint32_t i = 0; i < lab.options.engine.max_connections + 2; ++i) {
    hello(second);
    send_in_parts(second.peer(), 6);
    second.turns();
    ASSERT_TRUE(second.connection->waits_for_assembly());
    if (i == 0) {
      send_in_parts(third.peer(), 8);
      third.turns();
      ASSERT_TRUE(third.connection->waits_for_assembly());
      // The second client leaves the front of the queue; the third stays in it.
      second.disconnect();
      ASSERT_TRUE(lab.engine->messages_await_assembly());
      EXPECT_TRUE(third.connection->waits_for_assembly());
      third.disconnect();
      third.connect();
      hello(third);
    } else {
      second.disconnect();
    }
    ASSERT_FALSE(lab.engine->messages_await_assembly()) << "after " << i + 1 << " connections";
    second.connect();
  }
  send_in_parts(third.peer(), 9);
  third.turns();
  EXPECT_TRUE(third.peer().inbox.empty());
  EXPECT_TRUE(is_success(lab.answer(Header{.xid = 5}.with(std::span(payload).subspan(20))), 5));
  third.turns();
  bool answered = false;
  for (const Received& received : third.peer().inbox) answered = answered || is_success(received.bytes, 9);
  EXPECT_TRUE(answered);
  EXPECT_EQ(free_assemblies(lab), 1u);
}

TEST(SafetyV2Close, V2_062_host_authentication_on_its_way_gives_back_its_memory) {
  struct Case {
    std::uint16_t credits;  ///< of the server after its greeting
    std::size_t octets;
    std::size_t posted;  ///< Sends outstanding when the connection ends
  };
  // The three states of the property set: waiting for its first credit; posted; its second part waiting for a
  // credit.
  for (const Case& some : {Case{0, 64, 0}, Case{1, 64, 1}, Case{1, 6000, 1}}) {
    Server lab;
    lab.hello(some.credits);
    const std::size_t all = free_assemblies(lab);
    lab.log.clear();
    ASSERT_TRUE(lab.connection->send_host_authentication(Bytes(some.octets)));
    lab.turn();
    ASSERT_EQ(lab.log.count(OpKind::PostSend), some.posted);
    ASSERT_EQ(free_assemblies(lab), all - 1);
    lab.connection->close(CloseReason::LocalClose);
    // The driver owns the buffer until the Sends are flushed.
    EXPECT_EQ(free_assemblies(lab), some.posted > 0 ? all - 1 : all);
    lab.settle();
    EXPECT_EQ(free_assemblies(lab), all) << some.octets << " octets with " << some.credits << " credits";
    EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
    lab.reconnect();
    lab.hello(16);
    EXPECT_TRUE(lab.connection->send_host_authentication(Bytes(64)));
  }
}

TEST(SafetyV2Close, V2_095_V2_098_a_continued_reply_keeps_its_memory_until_its_parts_are_flushed) {
  Server lab;
  lab.hello(1);
  auto& pool = lab.engine->reply_memory();
  const std::size_t all = pool.available();
  lab.log.clear();
  lab.peer->send(Header{.xid = 5, .credit = 0x00400000}.with(test_call(5, TestService::kList, {12000})));
  lab.peer->poll();
  for (int i = 0; i < 4; ++i) lab.turn();
  // The second part of the reply waits for a credit; the first was sent to a client that does not receive.
  ASSERT_EQ(lab.log.count(OpKind::PostSend), 1u);
  ASSERT_EQ(pool.available(), all - 1);
  ASSERT_EQ(lab.service->releases, 0u);
  lab.connection->close(CloseReason::LocalClose);
  EXPECT_EQ(pool.available(), all - 1);
  EXPECT_EQ(lab.service->releases, 0u);
  lab.settle();
  EXPECT_EQ(pool.available(), all);
  EXPECT_EQ(lab.service->releases, 1u);
  EXPECT_EQ(lab.connection->state(), rpcrdma::Connection::State::Closed);
}

// --- Refusals

/// Checks that the next continued message gets memory, and that the memory holds nothing of an earlier
/// message.
void expect_room_for_parts(Server& lab, std::size_t all) {
  EXPECT_EQ(free_assemblies(lab), all);
  lab.peer->inbox.clear();
  send_in_parts(*lab.peer, 0x700);
  lab.settle();
  const auto answers = lab.answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(is_success(answers[0], 0x700));
  EXPECT_EQ(free_assemblies(lab), all);
}

TEST(SafetyV2Parts, V2_083_V2_092_a_continued_call_whose_chunks_are_refused_gives_back_its_memory) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  const rpcrdma::Segment wraps{memory.segment.handle, 2, ~std::uint64_t{0}};
  const std::size_t all = free_assemblies(lab);
  const Bytes payload = test_call(5, TestService::kSource, {64});
  lab.ask(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(20)));
  ASSERT_EQ(free_assemblies(lab), all - 1);
  const Bytes last = Header{.xid = 5, .writes = {{wraps}}}.with(std::span(payload).subspan(20));
  EXPECT_TRUE(is_error(lab.answer(last), 5, 2));
  expect_room_for_parts(lab, all);
}

TEST(SafetyV2Parts, V2_020_V2_092_a_continued_call_with_another_xid_inside_gives_back_its_memory) {
  Server lab;
  lab.hello();
  const std::size_t all = free_assemblies(lab);
  const Bytes payload = test_call(6, TestService::kNull);
  lab.ask(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(20)));
  EXPECT_TRUE(is_error(lab.answer(Header{.xid = 5}.with(std::span(payload).subspan(20))), 5, 2));
  expect_room_for_parts(lab, all);
}

TEST(SafetyV2Parts, V2_088_V2_092_a_part_that_is_refused_gives_back_the_memory_of_those_before_it) {
  for (const bool first : {true, false}) {
    Server lab;
    lab.hello();
    const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
    const std::size_t all = free_assemblies(lab);
    const Bytes payload = test_call(5, TestService::kNull);
    std::size_t at = 0;
    if (!first) {
      lab.ask(Header{.xid = 5, .flags = kMore}.with(std::span(payload).first(20)));
      at = 20;
    }
    // Only the last part has chunks.
    const Bytes part = Header{.xid = 5, .flags = kMore, .writes = {{memory.segment}}}.with(
        std::span(payload).subspan(at, 8));
    EXPECT_TRUE(is_error(lab.answer(part), 5, 4));
    EXPECT_EQ(free_assemblies(lab), all);
    EXPECT_TRUE(lab.ask(Header{.xid = 5}.with(std::span(payload).subspan(at + 8))).empty());
    expect_room_for_parts(lab, all);
  }
}

// --- Replies

/// Builds a reply in two parts, without results.
void reply_in_parts(Client& lab, std::uint32_t xid, rdma::Rkey invalidate = {}) {
  lab.peer->send(Header{.xid = xid, .flags = kResponse | kMore}.with(words({xid, 1, 0})));
  lab.peer->send(Header{.xid = xid, .flags = kResponse}.with(words({0, 0, 0})), invalidate);
  lab.settle();
}

TEST(SafetyV2Parts, V2_084_V2_145_a_continued_reply_to_a_call_that_was_given_up_gives_back_its_memory) {
  Client lab;
  lab.confirm();
  auto& pool = lab.engine->assembly_memory();
  const std::size_t all = pool.available();
  for (int i = 0; i < 2; ++i) {
    const auto xid = lab.submit_null();
    lab.settle();
    EXPECT_TRUE(lab.requester->cancel(rpc::Xid{*xid}));
    lab.settle();
    reply_in_parts(lab, *xid);
    EXPECT_EQ(pool.available(), all);
  }
  EXPECT_EQ(lab.engine->counters().unknown_xid, 2u);
  const auto xid = lab.submit_null();
  lab.settle();
  reply_in_parts(lab, *xid);
  EXPECT_EQ(lab.finished.back().status, rpcrdma::CallStatus::Ok);
  EXPECT_EQ(pool.available(), all);
}

TEST(SafetyV2Parts, V2_129_a_continued_reply_that_invalidates_a_foreign_handle_gives_back_its_memory) {
  Client lab;
  lab.confirm();
  auto& pool = lab.engine->assembly_memory();
  const std::size_t all = pool.available();
  const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
  const rdma::Sge piece{memory.bytes.data(), 64, memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  const Bytes payload = test_call(0, TestService::kSource, {64});
  lab.submit({.payload = payload, .writes = {&item, 1}, .max_reply_bytes = 64});
  const auto other = lab.submit_null();
  lab.settle();
  const auto named = static_cast<rdma::Rkey>(word_at(lab.sent().at(0), 5));
  reply_in_parts(lab, *other, named);
  EXPECT_EQ(lab.connection->close_reason(), CloseReason::InvalidationError);
  EXPECT_EQ(pool.available(), all);
}

// --- Properties

TEST(SafetyV2Parts, V2_064_properties_that_wait_for_their_judge_give_back_their_memory) {
  struct Verdict {
    int refusals = 3;
    int asked = 0;
  };
  for (const bool close : {false, true}) {
    Server lab;
    Verdict verdict;
    lab.connection->set_property_sink(
        [](void* context, rpcrdma::Connection&, std::span<const std::byte>, bool) noexcept {
          auto& asked = *static_cast<Verdict*>(context);
          ++asked.asked;
          return asked.refusals-- <= 0;
        },
        &verdict);
    const std::size_t all = free_assemblies(lab);
    const auto part = [&](std::uint32_t flags, std::initializer_list<std::uint32_t> body) {
      lab.peer->send(Header{.xid = 9, .credit = 0x00400040u, .type = kConnProp, .flags = flags}.then(body));
    };
    part(kMore, {1, 2});
    part(0, {4, 8192});
    lab.turn();
    lab.peer->poll();
    for (int i = 0; i < 10 && verdict.asked == 0; ++i) lab.turn(), lab.peer->poll();
    ASSERT_EQ(verdict.asked, 1);
    EXPECT_EQ(free_assemblies(lab), all - 1);
    if (close)
      lab.connection->close(CloseReason::LocalClose);
    else
      lab.pass(20'000'000);
    lab.settle();
    EXPECT_EQ(free_assemblies(lab), all);
    EXPECT_EQ(lab.counters().properties_received, close ? 0u : 1u);
    if (close) continue;
    EXPECT_EQ(verdict.asked, 4);
    EXPECT_EQ(lab.connection->peer_parameters().receive_buffer_bytes, 8192u);
    lab.peer->inbox.clear();
    expect_room_for_parts(lab, all);
  }
}

}  // namespace
}  // namespace sluice::conformance::v2
