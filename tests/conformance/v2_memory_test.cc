// SPDX-License-Identifier: Apache-2.0
//
// Version 2: which items are reduced, which memory is exposed and for how long, and security flavors.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/conformance/second_peer.h"
#include "tests/conformance/v2_lab.h"

namespace sluice::conformance::v2 {
namespace {

using rpcrdma::CallStatus;
using rpcrdma::Segment;

Bytes gss_call(std::uint32_t procedure, std::uint32_t token_bytes = 400) {
  Bytes out = words({0, 0, 2, kTestProgram, 1, procedure, 6, token_bytes});
  Bytes body(xdr::padded(token_bytes));
  fill_pattern(body, 6);
  append(out, body);
  append(out, words({6, token_bytes}));
  append(out, body);
  return out;
}

// --- Memory of continued messages

/// Sends a continued message of `flags` with this payload.
void send_in_parts(RawPeer& peer, std::uint32_t xid, std::uint32_t flags, const Bytes& payload,
                   const std::function<void()>& settle) {
  constexpr std::size_t kPartBytes = 2000;
  for (std::size_t at = 0; at < payload.size(); at += kPartBytes) {
    const std::size_t bytes = std::min(kPartBytes, payload.size() - at);
    const bool last = at + bytes == payload.size();
    peer.send(Header{.xid = xid, .credit = 0x00400010, .flags = flags | (last ? 0 : kMore)}.with(
        std::span(payload).subspan(at, bytes)));
    settle();
  }
}

Bytes reply_of(std::uint32_t xid, std::size_t bytes) {
  Bytes reply = words({xid, 1, 0, 0, 0, 0});
  reply.resize(bytes);
  return reply;
}

TEST(V2Memory, V2_092_a_continued_reply_to_no_call_gives_its_memory_back) {
  for (const std::size_t bytes : {8000u, 20000u}) {  // a small buffer and a large one
    LabOptions options = Server::defaults();
    options.engine.small_buffer_bytes = 16384;
    Server lab(options);
    lab.hello();
    const auto& memory = lab.engine->assembly_memory();
    ASSERT_EQ(memory.available(), memory.buffers());
    for (std::uint32_t xid = 0x5001; xid < 0x5004; ++xid)
      send_in_parts(*lab.peer, xid, kResponse, reply_of(xid, bytes), [&] { lab.settle(); });
    EXPECT_EQ(lab.counters().unknown_xid, 3u);
    EXPECT_EQ(memory.available(), memory.buffers()) << bytes;
    EXPECT_TRUE(lab.alive2());
  }
}

TEST(V2Memory, V2_092_replies_to_no_call_take_no_memory_from_other_connections) {
  LabOptions options = Server::defaults();
  options.engine.small_buffer_bytes = 16384;
  options.engine.assembly_buffers = 2;  // fewer than connections
  Server lab(options);
  lab.hello();
  for (const char* const name : {"one", "two", "three"}) {
    SecondClient client(lab, name);
    client.send(Header{.xid = 1, .credit = 0x00400100, .type = kConnProp}.then({0}));
    send_in_parts(client.peer(), 0x5001, kResponse, reply_of(0x5001, 20000), [&] { client.turns(); });
    client.disconnect();
  }
  lab.peer->inbox.clear();
  Bytes call = test_call(0x77, TestService::kName, {20000 - 44});
  call.resize(20000);
  send_in_parts(*lab.peer, 0x77, 0, call, [&] { lab.settle(); });
  ASSERT_EQ(lab.answers().size(), 1u);
  EXPECT_TRUE(is_success(lab.answers()[0], 0x77));
}

// --- Items that the requester reduces

TEST(V2Reduction, V2_069_a_long_call_is_made_when_it_is_asked_for) {
  Client lab;
  lab.confirm();
  const auto xid = lab.submit({.payload = test_call(0, 0), .max_reply_bytes = 64, .as_long_call = true});
  lab.settle();
  const Bytes call = lab.sent().at(0);
  EXPECT_EQ(word_at(call, 3), kNoMsg);
  EXPECT_EQ(call.size(), 60u);
  EXPECT_EQ(word_at(call, 7), 0u);
  EXPECT_EQ(word_at(call, 9), 40u);
  lab.answer(success(*xid));
  EXPECT_EQ(lab.finished.at(0).status, CallStatus::Ok);
  // Our responder accepts it.
  Server server;
  server.hello();
  const Bytes payload = test_call(9, 0);
  const auto memory = server.peer->expose(payload.size(), rdma::kRemoteRead);
  std::copy(payload.begin(), payload.end(), memory.bytes.begin());
  EXPECT_TRUE(
      is_success(server.answer(Header{.xid = 9, .type = kNoMsg, .reads = {{0, memory.segment}}}.bytes()), 9));
}

TEST(V2Reduction, V2_071_V2_072_V2_073_V2_074_counts_and_discriminators_stay_and_round_up_goes) {
  Client lab;
  lab.confirm();
  const rdma::MemoryRegion memory = lab.device->allocate_memory(8192);
  const rdma::Sge first{memory.bytes.data(), 5, memory.lkey};
  const rdma::Sge second{memory.bytes.data() + 64, 4097, memory.lkey};
  // TWO_SINKS: count 5, [data], word between, count 4097, [data].
  const rpcrdma::ReadItem items[] = {{rpcrdma::Position{44}, {&first, 1}},
                                     {rpcrdma::Position{60}, {&second, 1}}};
  const Bytes payload = test_call(0, TestService::kTwoSinks, {5, 77, 4097});
  lab.submit({.payload = payload, .reads = items, .max_reply_bytes = 64});
  lab.settle();
  const Bytes call = lab.sent().at(0);
  EXPECT_EQ(word_at(call, 7), 44u);
  EXPECT_EQ(word_at(call, 9), 5u);  // length: without round-up
  EXPECT_EQ(word_at(call, 13), 60u);
  EXPECT_EQ(word_at(call, 15), 4097u);
  const std::size_t at = (36 + 48) / 4 + 10;
  EXPECT_EQ(word_at(call, at), 5u);
  EXPECT_EQ(word_at(call, at + 1), 77u);
  EXPECT_EQ(word_at(call, at + 2), 4097u);
  EXPECT_EQ(call.size(), 36u + 48 + 52);
  // A call has no chunk if its caller names no item, independent of the contents.
  lab.peer->inbox.clear();
  lab.submit({.payload = test_call(0, TestService::kName, {0}), .max_reply_bytes = 64});
  lab.settle();
  EXPECT_EQ(lab.sent().at(0).size(), 80u);
}

TEST(V2Reduction, V2_149_V2_151_protected_calls_may_be_long) {
  Client lab;
  lab.confirm();
  // Integrity or privacy: the caller names no items; large tokens and bodies are continued or long.
  Bytes payload = gss_call(TestService::kName);
  payload.resize(payload.size() + 6000);
  lab.submit({.payload = payload, .max_reply_bytes = 65536 + 400});
  lab.settle();
  const auto parts = lab.sent();
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(word_at(parts[1], 6), 0u);  // no Read chunk
  EXPECT_EQ(word_at(parts[1], 7), 0u);  // no Write chunk
  EXPECT_EQ(word_at(parts[1], 8), 1u);  // Reply chunk, with the verifier counted in
  EXPECT_GE(word_at(parts[1], 11), 65536u + 400);
  // Items are eligible with authentication alone.
  const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
  const rdma::Sge piece{memory.bytes.data(), 4096, memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  lab.peer->inbox.clear();
  lab.submit({.payload = gss_call(TestService::kSource), .writes = {&item, 1}, .max_reply_bytes = 500});
  lab.settle();
  EXPECT_EQ(word_at(lab.sent().at(0), 7), 1u);
  // The responder carries credentials of any flavor, also in continued calls.
  Server server;
  server.hello();
  Bytes call = gss_call(TestService::kNull);
  xdr::store_u32(call.data(), 5);
  server.peer->inbox.clear();
  server.peer->send(Header{.xid = 5, .flags = kMore}.with(std::span(call).first(300)));
  server.peer->send(Header{.xid = 5}.with(std::span(call).subspan(300)));
  server.settle();
  EXPECT_TRUE(is_success(server.answers().at(0), 5));
}

// --- Exposed memory

TEST(V2Memory, V2_143_V2_144_V2_145_handles_are_closed_before_the_caller_goes_on) {
  LabOptions options = Client::defaults();
  options.requester.remote_invalidation = false;
  Client lab(options);
  lab.confirm();
  const rdma::MemoryRegion memory = lab.device->allocate_memory(4096);
  const rdma::Sge piece{memory.bytes.data(), 64, memory.lkey};
  const rpcrdma::WriteItem item{.pieces = {&piece, 1}};
  std::size_t invalidated = 0;
  lab.on_reply = [&](const rpcrdma::Reply&) { invalidated = lab.log.count(OpKind::InvalidateDone); };
  std::set<std::uint32_t> handles;
  std::uint32_t previous = 0;
  std::uint32_t steps_of_one = 0;
  rpcrdma::Segment last;
  for (std::size_t i = 0; i < 50; ++i) {
    lab.peer->inbox.clear();
    const bool cancel = i % 5 == 4;
    const auto xid =
        lab.submit({.payload = test_call(0, 2, {16}), .writes = {&item, 1}, .max_reply_bytes = 64});
    lab.settle();
    const Bytes call = lab.sent().at(0);
    const std::uint32_t handle = word_at(call, 9);
    handles.insert(handle);
    steps_of_one += handle == previous + 1;
    previous = handle;
    last = {static_cast<rdma::Rkey>(handle), 64, std::uint64_t{word_at(call, 11)} << 32 | word_at(call, 12)};
    if (cancel)
      EXPECT_TRUE(lab.requester->cancel(static_cast<rpc::Xid>(*xid)));
    else
      lab.peer->send(
          Header{.xid = *xid, .flags = kResponse, .writes = {{last}}}.with(words({*xid, 1, 0, 0, 0, 0})));
    lab.settle();
    ASSERT_EQ(lab.finished.size(), i + 1);
    EXPECT_EQ(invalidated, i + 1);
    EXPECT_EQ(lab.finished.back().status, cancel ? CallStatus::Cancelled : CallStatus::Ok);
  }
  EXPECT_EQ(handles.size(), 50u);
  EXPECT_LT(steps_of_one, 5u);
  lab.peer->write_remote(last, Bytes(64, std::byte{0x66}));
  lab.settle();
  EXPECT_EQ(lab.peer->first_error, rdma::WcStatus::RemoteAccessError);
  EXPECT_NE(memory.bytes[0], std::byte{0x66});
}

TEST(V2Memory, V2_141_a_handle_of_nobody_or_of_an_earlier_connection_ends_the_offender) {
  Server lab;
  lab.hello();
  const auto old = lab.peer->expose(64, rdma::kRemoteWrite);
  const Segment nowhere{rdma::Rkey{0x12345678}, 64, 0x1000};
  const Bytes message =
      Header{.xid = 0x60, .reads = {{44, nowhere}}}.with(test_call(0x60, TestService::kSink, {64}));
  EXPECT_TRUE(lab.ask(message).empty());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
  lab.reconnect();
  lab.hello();
  // The retransmission of that call does not end a further connection.
  EXPECT_TRUE(is_error(lab.answer(message), 0x60, 10));
  EXPECT_TRUE(lab.ask(Header{.xid = 0x61, .writes = {{old.segment}}}.with(
                          test_call(0x61, TestService::kSource, {64})))
                  .empty());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::RemoteAccess);
  lab.reconnect();
  lab.hello();
  EXPECT_TRUE(lab.alive2());
}

TEST(V2Memory, V2_045_more_read_chunks_than_the_device_reads_at_once_are_all_served) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteRead);
  fill_pattern(memory.bytes, 3);
  for (std::uint32_t xid = 1; xid <= 32; ++xid)
    lab.peer->send(Header{.xid = xid, .reads = {{44, memory.segment}}}.with(
        test_call(xid, TestService::kSink, {4096, 1})));
  lab.settle();
  const auto answers = lab.answers();
  ASSERT_EQ(answers.size(), 32u);
  for (const Bytes& answer : answers) EXPECT_TRUE(is_success(answer, word_at(answer, 0)));
  EXPECT_FALSE(lab.peer->failed);
}

// --- Ends

TEST(V2Ends, V2_124_a_connection_whose_reply_cannot_be_sent_is_closed) {
  LabOptions options = Server::defaults();
  options.raw_receive_bytes = 40;  // fits a grant, but no reply
  options.connection.version2.announce = false;
  Server lab(options);
  lab.peer->send(null_call(1, 0x00400010));
  lab.settle();
  EXPECT_FALSE(lab.connection->is_open());
  EXPECT_EQ(lab.connection->close_reason(), rpcrdma::CloseReason::TransportError);
  EXPECT_EQ(lab.counters().connection_errors, 1u);
}

TEST(V2Ends, V2_154_programs_share_a_connection_and_unknown_ones_reduce_nothing) {
  Server lab;
  lab.hello();
  const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
  EXPECT_TRUE(lab.alive2(1));
  EXPECT_TRUE(is_success(lab.answer(Header{.xid = 2}.with(test_call(2, 0, {}, kTestProgram + 1))), 2));
  const Bytes unknown = lab.answer(
      Header{.xid = 3, .writes = {{memory.segment}}}.with(test_call(3, 2, {64}, kTestProgram + 77)));
  EXPECT_EQ(word_at(unknown, 10), 0u);      // nothing written
  EXPECT_EQ(word_at(unknown, 15 + 5), 1u);  // PROG_UNAVAIL
}

}  // namespace
}  // namespace sluice::conformance::v2
