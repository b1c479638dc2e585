// SPDX-License-Identifier: Apache-2.0
//
// Requirement rows about two connections of one engine.
#include <gtest/gtest.h>

#include "tests/conformance/raw_server.h"
#include "tests/conformance/second_peer.h"

namespace sluice::conformance {
namespace {

using rpcrdma::CallStatus;

/// Builds a call that makes the server read from, or write to, this segment.
Bytes call_with(std::uint32_t xid, const rpcrdma::Segment& segment, bool reads) {
  return reads ? RawCall{.xid = xid, .reads = {{44, segment}}}.with(
                     test_call(xid, TestService::kSink, {segment.length}))
               : RawCall{.xid = xid, .writes = {{segment}}}.with(
                     test_call(xid, TestService::kSource, {segment.length}));
}

TEST(Neighbours, V1_145_a_server_reaches_no_memory_by_a_handle_of_another_client) {
  for (const bool reads : {true, false}) {
    ServerLab lab;
    SecondClient victim(lab);
    const auto memory = victim.peer().expose(64, reads ? rdma::kRemoteRead : rdma::kRemoteWrite);
    fill_pattern(memory.bytes, 9);
    // The handle is valid, but belongs to the connection of the other client.
    EXPECT_TRUE(lab.exchange(call_with(1, memory.segment, reads)).empty());
    EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
    EXPECT_TRUE(lab.service->last_data.empty());
    EXPECT_TRUE(has_pattern(memory.bytes, 9));
    EXPECT_FALSE(victim.peer().failed);
    ASSERT_TRUE(victim.connection->is_open());
    const auto answers = victim.exchange(call_with(2, memory.segment, reads));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(word_at(answers[0].bytes, 3), 0u);
    EXPECT_TRUE(has_pattern(reads ? std::span<const std::byte>(lab.service->last_data) : memory.bytes,
                            reads ? 9 : 1));
  }
}

TEST(Neighbours, V1_145_a_handle_given_to_one_server_is_refused_to_another) {
  for (const bool reads : {true, false}) {
    ClientLab lab;
    SecondServer other(lab);
    const CallerMemory memory = caller_memory(lab, 64);
    fill_pattern(memory.region.bytes, 9);
    const rdma::Sge piece = memory.piece(0, 64);
    const rpcrdma::ReadItem read{rpcrdma::Position{44}, {&piece, 1}};
    const rpcrdma::WriteItem write{{&piece, 1}};
    const Bytes payload = test_call(0, TestService::kSink, {64});
    rpcrdma::Request request{.payload = payload, .max_reply_bytes = 64};
    if (reads)
      request.reads = {&read, 1};
    else
      request.writes = {&write, 1};
    const auto xid = lab.submit(request);
    lab.settle();
    const Offer offer = offer_in(got(lab, 0));
    const rpcrdma::Segment segment = reads ? offer.reads.at(0).target : offer.writes.at(0).at(0);
    std::span<const std::byte> stolen;
    if (reads)
      stolen = other.peer().read_remote(segment, 64);
    else
      other.peer().write_remote(segment, Bytes(64, std::byte{0x66}));
    other.settle();
    EXPECT_EQ(other.peer().first_error, rdma::WcStatus::RemoteAccessError);
    EXPECT_FALSE(other.connection->is_open());
    EXPECT_TRUE(has_pattern(memory.region.bytes, 9));
    if (reads) {
      EXPECT_FALSE(has_pattern(stolen, 9));
    }
    // The handle is valid for the server to which it was sent.
    ASSERT_TRUE(lab.connection->is_open());
    if (reads)
      stolen = lab.peer->read_remote(segment, 64);
    else
      lab.peer->write_remote(segment, Bytes(64, std::byte{0x66}));
    lab.peer->send(ClientLab::success(*xid, 4));
    lab.settle();
    EXPECT_FALSE(lab.peer->failed);
    ASSERT_EQ(lab.finished.size(), 1u);
    EXPECT_EQ(lab.finished[0].status, CallStatus::Ok);
    if (reads)
      EXPECT_TRUE(has_pattern(stolen, 9));
    else
      EXPECT_EQ(memory.region.bytes[63], std::byte{0x66});
  }
}

constexpr std::uint32_t kRefused = 12;

/// Builds a call with a procedure that RPC-over-RDMA does not define.
Bytes refused_call(std::uint32_t xid) {
  return RawCall{.xid = xid, .proc = 9}.header();
}

TEST(Neighbours, a_turn_sends_few_error_messages_and_clients_that_wait_for_one_are_served_in_turn) {
  constexpr std::uint32_t kPerTurn = rpcrdma::RefusalPace::kPerTurn;
  for (const int turns_before : {0, 1}) {  // the device begins each iteration with the next queue pair
    ServerLab lab;
    SecondClient other(lab);
    for (int i = 0; i < turns_before; ++i) lab.turn();
    const rpcrdma::Counters& counters = lab.engine->counters();
    for (std::uint32_t xid = 1; xid <= kRefused; ++xid) lab.peer->send(refused_call(xid));
    other.peer().inbox.clear();
    other.peer().send(refused_call(100));
    other.peer().send(RawCall{.xid = 101}.with(test_call(101, TestService::kNull)));
    const std::uint64_t replies = counters.replies_sent;
    lab.turn();
    EXPECT_EQ(counters.err_chunk_sent, kPerTurn);
    EXPECT_EQ(counters.waits_refusal, kRefused + 1 - kPerTurn);
    EXPECT_EQ(counters.replies_sent, replies + 1) << "what is not refused waits for no error";
    for (std::uint32_t i = 1; i <= kPerTurn; ++i)
      lab.peer->send(refused_call(kRefused + i));  // these arrive last
    lab.turn();
    EXPECT_EQ(counters.err_chunk_sent, 2 * kPerTurn);
    other.peer().poll();
    EXPECT_EQ(other.peer().inbox.size(), 2u) << "the many of its neighbour are not in front of its one";
    lab.settle();
    EXPECT_EQ(lab.peer->inbox.size(), kRefused + kPerTurn);
    EXPECT_EQ(counters.err_chunk_sent, kRefused + kPerTurn + 1);
    EXPECT_TRUE(lab.alive());
  }
}

TEST(Neighbours, a_client_that_is_gone_waits_for_no_error_messages) {
  ServerLab lab;
  SecondClient other(lab);
  for (std::uint32_t xid = 1; xid <= kRefused; ++xid) other.peer().send(refused_call(xid));
  lab.turn();
  ASSERT_GT(lab.engine->counters().waits_refusal, 0u);
  const std::uint64_t sent = lab.engine->counters().err_chunk_sent;
  other.connection->close(rpcrdma::CloseReason::LocalClose);
  constexpr std::uint32_t kPerTurn = rpcrdma::RefusalPace::kPerTurn;
  for (std::uint32_t xid = 1; xid <= kPerTurn; ++xid) lab.peer->send(refused_call(xid));
  lab.turn();
  EXPECT_EQ(lab.engine->counters().err_chunk_sent, sent + kPerTurn) << "all of the turn is there for others";
  other.disconnect();
  EXPECT_EQ(lab.engine->counters().err_chunk_sent, sent + kPerTurn);
  other.connect();
  EXPECT_EQ(other.exchange(refused_call(7)).size(), 1u);
  EXPECT_TRUE(lab.alive());
}

}  // namespace
}  // namespace sluice::conformance
