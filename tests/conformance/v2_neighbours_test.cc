// SPDX-License-Identifier: Apache-2.0
//
// Version 2 rows about two connections of one engine.
#include <gtest/gtest.h>

#include "tests/conformance/second_peer.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;
using rpcrdma::Segment;

/// Begins version 2 on the second connection and grants the server the credits that it needs.
void greet(SecondClient& client, std::uint16_t credits = 256) {
  client.exchange(Header{.xid = 1, .credit = 0x00400000u | credits, .type = kConnProp}.then({0}));
  client.peer().inbox.clear();
}
/// Returns the received messages except properties and grants.
std::vector<Bytes> answers(SecondClient& client) {
  std::vector<Bytes> result;
  for (const Received& received : client.peer().inbox)
    if (!is_grant(received.bytes) && word_at(received.bytes, 3) != kConnProp)
      result.push_back(received.bytes);
  return result;
}
std::vector<Bytes> ask(SecondClient& client, std::span<const std::byte> message) {
  client.exchange(message);
  return answers(client);
}

void expect_version(const std::vector<Received>& messages, std::uint32_t version) {
  for (const Received& message : messages) EXPECT_EQ(word_at(message.bytes, 1), version);
}

TEST(V2Neighbours, V2_016_each_connection_keeps_the_version_of_its_first_message) {
  LabOptions options = Server::defaults();
  options.engine.callers = 2;
  options.engine.capacity.requests = 8;
  options.connection.credits_requested = 8;
  Server lab(options);
  SecondClient old(lab);
  const auto done = [](void* context, std::span<const std::byte> reply) noexcept {
    *static_cast<std::size_t*>(context) = reply.size();
  };
  // The messages are answers, errors, and calls of the server.
  lab.exchange(null_call(1, 0x00400100));
  EXPECT_EQ(old.exchange(plain_header(1, 32)).size(), 1u);  // no payload: ERR_CHUNK
  EXPECT_TRUE(is_err_chunk(old.peer().inbox.at(0).bytes, 1));
  EXPECT_EQ(lab.connection->version(), 2u);
  EXPECT_EQ(old.connection->version(), 1u);
  ASSERT_EQ(lab.peer->inbox.size(), 2u);
  EXPECT_TRUE(is_success(lab.peer->inbox[1].bytes, 1));
  expect_version(lab.peer->inbox, 2);
  for (std::uint32_t round = 0; round < 3; ++round) {
    const std::uint32_t xid = 0x100 + 16 * round;
    EXPECT_TRUE(lab.alive2(xid));
    expect_version(lab.peer->inbox, 2);
    EXPECT_EQ(old.exchange(RawCall{.xid = xid}.with(test_call(xid, 0))).at(0).bytes.size(), 52u);
    expect_version(old.peer().inbox, 1);
    EXPECT_TRUE(is_error(lab.answer(Header{.xid = xid + 1}.bytes()), xid + 1, 2));
    expect_version(lab.peer->inbox, 2);
    EXPECT_TRUE(is_err_chunk(old.exchange(RawCall{.xid = xid + 1}.header()).at(0).bytes, xid + 1));
    expect_version(old.peer().inbox, 1);
    lab.peer->inbox.clear();
    old.peer().inbox.clear();
    std::size_t replies[2] = {};
    ASSERT_TRUE(lab.connection->call_back(test_call(0, 0), done, &replies[0]));
    ASSERT_TRUE(old.connection->call_back(test_call(0, 0), done, &replies[1]));
    old.settle();
    ASSERT_EQ(lab.answers().size(), 1u);
    EXPECT_EQ(lab.answers()[0].size(), 36u + 40);
    ASSERT_EQ(old.peer().inbox.size(), 1u);
    EXPECT_EQ(old.peer().inbox[0].bytes.size(), 28u + 40);
    expect_version(lab.peer->inbox, 2);
    expect_version(old.peer().inbox, 1);
    lab.peer->send(success(word_at(lab.answers()[0], 0)));
    old.peer().send(ClientLab::success(word_at(old.peer().inbox[0].bytes, 0), 4));
    old.settle();
    EXPECT_EQ(replies[0], 24u);
    EXPECT_EQ(replies[1], 24u);
  }
}

TEST(V2Neighbours, V2_043_nobody_else_notices_that_a_peer_is_cut_off) {
  LabOptions options = Server::defaults();
  options.connection.credit_grant = 4;
  Server lab(options);
  lab.hello();
  SecondClient other(lab);
  greet(other);
  EXPECT_TRUE(ask(other, Header{.xid = 0x20}.with(test_call(0x20, TestService::kLater))).empty());
  for (std::uint32_t xid = 1; xid <= 6; ++xid)
    lab.peer->send(Header{.xid = xid}.with(test_call(xid, TestService::kLater)));
  other.settle();
  EXPECT_FALSE(lab.connection->is_open());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::CreditOverrun);
  EXPECT_EQ(lab.counters().credit_overruns, 1u);
  ASSERT_TRUE(other.connection->is_open());
  // The call that the service held is answered, and so are new calls.
  lab.service->complete_later();
  other.settle();
  ASSERT_EQ(answers(other).size(), 1u);
  EXPECT_TRUE(is_success(answers(other)[0], 0x20));
  for (std::uint32_t xid = 0x30; xid < 0x40; ++xid) {
    const auto replies = ask(other, null_call(xid));
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_TRUE(is_success(replies[0], xid));
  }
  EXPECT_EQ(lab.counters().credit_overruns, 1u);
}

TEST(V2Neighbours, V2_142_a_live_handle_of_another_connection_ends_the_server_that_uses_it) {
  Client lab;
  lab.confirm();
  SecondServer other(lab);
  other.peer().send(grant(200));
  other.settle();
  const rdma::MemoryRegion memory = lab.device->allocate_memory(64);
  fill_pattern(memory.bytes, 9);
  const rdma::Sge piece{memory.bytes.data(), 64, memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  const auto xid = lab.submit(
      {.payload = test_call(0, TestService::kSource, {64}), .writes = {&item, 1}, .max_reply_bytes = 64},
      {64});
  lab.settle();
  const Bytes call = lab.sent().at(0);
  const Segment live{static_cast<rdma::Rkey>(word_at(call, 9)), 64,
                     std::uint64_t{word_at(call, 11)} << 32 | word_at(call, 12)};
  other.peer().write_remote(live, Bytes(64, std::byte{0x66}));
  other.settle();
  EXPECT_EQ(other.peer().first_error, rdma::WcStatus::RemoteAccessError);
  EXPECT_FALSE(other.connection->is_open());
  EXPECT_TRUE(has_pattern(memory.bytes, 9));
  ASSERT_TRUE(lab.connection->is_open());
  lab.peer->write_remote(live, Bytes(64, std::byte{0x55}));
  lab.answer(
      Header{.xid = *xid, .flags = kResponse, .writes = {{live}}}.with(words({*xid, 1, 0, 0, 0, 0, 0, 64})));
  ASSERT_EQ(lab.finished.size(), 1u);
  EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
  EXPECT_EQ(lab.finished[0].items.at(0).where, rpcrdma::ItemResult::Where::Placed);
  EXPECT_EQ(memory.bytes[0], std::byte{0x55});
}

TEST(V2Neighbours, V2_142_a_live_handle_of_another_connection_ends_the_client_that_names_it) {
  for (const bool reads : {true, false}) {
    Server lab;
    lab.hello();
    SecondClient victim(lab);
    greet(victim);
    const auto memory = victim.peer().expose(64, reads ? rdma::kRemoteRead : rdma::kRemoteWrite);
    fill_pattern(memory.bytes, 9);
    const auto call = [&](std::uint32_t xid) {
      return reads ? Header{.xid = xid, .reads = {{44, memory.segment}}}.with(
                         test_call(xid, TestService::kSink, {64}))
                   : Header{.xid = xid, .writes = {{memory.segment}}}.with(
                         test_call(xid, TestService::kSource, {64}));
    };
    EXPECT_TRUE(lab.ask(call(0x60)).empty());
    EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
    EXPECT_TRUE(has_pattern(memory.bytes, 9));
    EXPECT_TRUE(lab.service->last_data.empty());
    ASSERT_TRUE(victim.connection->is_open());
    const auto replies = ask(victim, call(0x61));
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(word_at(replies[0], 3), kMsg);
    EXPECT_TRUE(has_pattern(reads ? std::span<const std::byte>(lab.service->last_data) : memory.bytes,
                            reads ? 9 : 1));
  }
}

/// Sends calls with all kinds of chunks, corrupted at random.
class Vandal {
 public:
  explicit Vandal(Server& lab) : lab_(lab) { begin(); }
  void send_fault() {
    if (!lab_.connection->is_open()) begin();
    const std::uint32_t xid = 0x5000 + random() % 8;
    Bytes bad;
    switch (random() % 4) {
      case 0:
        bad = Header{.xid = xid}.with(test_call(xid, TestService::kName, {8, 1, 2}));
        break;
      case 1:
        bad = Header{.xid = xid, .reads = {{44, memory_.segment}}}.with(
            test_call(xid, TestService::kSink, {64}));
        break;
      case 2:
        bad = Header{.xid = xid, .writes = {{memory_.segment}}, .reply = {{memory_.segment}}}.with(
            test_call(xid, TestService::kList, {9000}));
        break;
      case 3:
        bad = Header{.xid = xid, .flags = kMore}.with(words({xid, 0}));
        break;
    }
    for (std::uint32_t n = random() % 4; n > 0; --n)
      bad[12 + random() % (bad.size() - 12)] = static_cast<std::byte>(random());
    lab_.peer->send(bad);
    if (lab_.peer->inbox.size() > 256) lab_.peer->inbox.clear();
  }

 private:
  void begin() {
    if (!lab_.connection->is_open()) lab_.reconnect();
    lab_.hello();
    memory_ = lab_.peer->expose(64, rdma::kRemoteRead | rdma::kRemoteWrite);
  }
  std::uint32_t random() { return (seed_ = seed_ * 1664525 + 1013904223) >> 8; }

  Server& lab_;
  Exposed memory_;
  std::uint32_t seed_ = 1;
};

TEST(V2Neighbours, V2_148_one_peer_with_nothing_but_faults_does_not_disturb_another) {
  Server lab;
  SecondClient other(lab);
  greet(other);
  Vandal vandal(lab);
  const auto memory = [&engine = *lab.engine] {
    return std::array{engine.call_memory().available(), engine.reply_memory().available(),
                      engine.assembly_memory().available()};
  };
  const auto at_rest = memory();
  std::uint32_t faults = 0;
  for (std::uint32_t xid = 0x100; xid < 0x100 + 500; ++xid) {
    other.peer().inbox.clear();
    other.peer().send(null_call(xid));
    int turns = 0;
    for (; answers(other).empty() && turns < 20; ++turns) {
      for (int i = 0; i < 4; ++i, ++faults) vandal.send_fault();
      lab.log.clear();
      lab.engine->poll(lab.now_ns += 1000);
      ASSERT_LE(lab.log.ops().size(), 4 * rpcrdma::kCompletionsPerTurn);  // work of one iteration
      lab.peer->poll();
      other.peer().poll();
    }
    ASSERT_EQ(answers(other).size(), 1u) << "after " << turns << " turns and " << faults << " faults";
    EXPECT_TRUE(is_success(answers(other)[0], xid));
  }
  EXPECT_GT(faults, 2000u);
  EXPECT_GT(lab.counters().v2_errors_sent, 100u);
  // The memory of the client's continued message is released with its connection.
  lab.reconnect();
  lab.hello();
  EXPECT_EQ(memory(), at_rest);
  EXPECT_TRUE(other.connection->is_open());
  EXPECT_EQ(other.connection->responder().busy_slots(), 0u);
}

}  // namespace
}  // namespace sluice::conformance::v2
