// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the responder: temporary or permanent lack of memory, messages that just fit, and adjacent
// work requests of several calls. Suites of these names also run with cross-reactor calls.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"
#include "tests/conformance/safety_lab.h"

namespace sluice::conformance {
namespace {

using Segments = std::vector<rpcrdma::Segment>;

constexpr std::uint32_t kSystemErr = 5;

TEST(WriteChunks, a_shortage_of_reply_memory_is_a_queue) {
  LabOptions options;
  options.engine.reply_buffers = 1;
  ServerLab lab(options);
  for (std::uint32_t xid = 1; xid <= 4; ++xid) {
    const auto memory = lab.peer->expose(16384, rdma::kRemoteWrite);
    lab.peer->send(RawCall{.xid = xid, .reply = Segments{memory.segment}}.with(
        test_call(xid, TestService::kList, {9000})));
  }
  for (int i = 0; i < 10; ++i) lab.turn();
  // The first call holds the buffer until its Send has completed, which requires the client to receive it.
  EXPECT_EQ(lab.engine->reply_memory().available(), 0u);
  EXPECT_GE(lab.engine->counters().waits_reply_memory, 3u);
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 4u);
  for (std::uint32_t xid = 1; xid <= 4; ++xid) {
    EXPECT_EQ(word_at(lab.peer->inbox[xid - 1].bytes, 0), xid);
    EXPECT_EQ(word_at(lab.peer->inbox[xid - 1].bytes, 9), 9028u);
  }
  EXPECT_EQ(lab.engine->reply_memory().available(), 1u);
}

TEST(WriteChunks, results_as_long_as_the_largest_buffer_and_longer) {
  LabOptions options;
  options.engine.reply_buffer_bytes = 12000;
  ServerLab lab(options);
  const auto memory = lab.peer->expose(16384, rdma::kRemoteWrite);
  // 24 bytes of RPC header and a count word.
  const RawCall call{.reply = Segments{memory.segment}};
  const Bytes longest = lab.call(call.with(test_call(call.xid, TestService::kList, {12000 - 28})));
  EXPECT_EQ(word_at(longest, 3), 1u);
  EXPECT_EQ(word_at(longest, 9), 12000u);
  EXPECT_TRUE(
      std::equal(memory.bytes.begin() + 28, memory.bytes.begin() + 12000, lab.service->source().begin()));
  const Bytes longer = lab.call(call.with(test_call(call.xid, TestService::kList, {12000 - 24})));
  EXPECT_EQ(word_at(longer, 3), 0u);
  EXPECT_EQ(word_at(longer, 9), 0u);
  EXPECT_EQ(word_at(longer, 12 + 5), kSystemErr);
  EXPECT_EQ(lab.engine->reply_memory().available(), options.engine.reply_buffers);
  EXPECT_TRUE(lab.alive());
}

TEST(WriteChunks, V1_120_V1_126_a_reply_as_long_as_its_chunk_and_longer) {
  ServerLab lab;
  const auto memory = lab.peer->expose(2100, rdma::kRemoteWrite);
  const RawCall call{.reply = Segments{part(memory.segment, 0, 1000), part(memory.segment, 1000, 1028)}};
  const Bytes exact = lab.call(call.with(test_call(call.xid, TestService::kList, {2000})));
  EXPECT_EQ(word_at(exact, 3), 1u);
  EXPECT_EQ(word_at(exact, 9), 1000u);
  EXPECT_EQ(word_at(exact, 13), 1028u);
  EXPECT_TRUE(is_err_chunk(lab.call(call.with(test_call(call.xid, TestService::kList, {2001}))), call.xid));
}

TEST(WriteChunks, V1_107_a_result_as_long_as_its_chunk) {
  ServerLab lab;
  const auto memory = lab.peer->expose(2000, rdma::kRemoteWrite);
  const RawCall call{.writes = {{part(memory.segment, 0, 1000), part(memory.segment, 1000, 999)}}};
  const Bytes exact = lab.call(call.with(test_call(call.xid, TestService::kSource, {1999})));
  EXPECT_EQ(word_at(exact, 8), 1000u);
  EXPECT_EQ(word_at(exact, 12), 999u);
  EXPECT_TRUE(std::equal(memory.bytes.begin(), memory.bytes.begin() + 1999, lab.service->source().begin()));
}

TEST(WriteChunks, a_returned_header_as_long_as_the_reply_buffer_leaves_room) {
  // 28 bytes, two chunks of 8 and segments of 16, and 32 for the longest RPC error.
  for (const std::uint32_t buffer : {28u + 8 + 64 + 32, 28u + 8 + 64 + 28}) {
    LabOptions options;
    options.engine.capacity.reply_buffer_bytes = buffer;
    ServerLab lab(options);
    const auto memory = lab.peer->expose(64, rdma::kRemoteWrite);
    const RawCall call{.writes = {Segments(4, part(memory.segment, 0, 16))}};
    const Bytes answer = lab.call(call.with(test_call(call.xid, 0, {}, kTestProgram + 1)));
    if (buffer == 132)
      EXPECT_EQ(answer.size(), 28u + 8 + 64 + 24);
    else
      EXPECT_TRUE(is_err_chunk(answer, call.xid));
    EXPECT_EQ(lab.lenient->executed.size(), buffer == 132 ? 1u : 0u);
  }
}

TEST(LongCalls, as_long_as_the_largest_buffer_and_longer) {
  LabOptions options;
  options.engine.call_buffer_bytes = 8192;
  ServerLab lab(options);
  for (const std::uint32_t bytes : {8192u, 8196u}) {
    Bytes rpc = test_call(0x4005, TestService::kName, {bytes - 44});
    rpc.resize(bytes);
    const auto memory = lab.peer->expose(bytes, rdma::kRemoteRead);
    std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
    const RawCall call{.xid = 0x4005, .proc = 1, .reads = {{0, memory.segment}}};
    const Bytes answer = lab.call(call.header());
    if (bytes == 8192)
      EXPECT_EQ(accept_stat(answer), 0u);
    else
      EXPECT_TRUE(is_err_chunk(answer, 0x4005));
  }
}

TEST(LongCalls, V1_116_a_call_that_is_refused_is_not_executed) {
  ServerLab lab;
  const auto data = lab.peer->expose(64, rdma::kRemoteRead);
  const Bytes rpc = test_call(0x4003, TestService::kName, {64});
  const auto memory = lab.peer->expose(rpc.size(), rdma::kRemoteRead);
  std::copy(rpc.begin(), rpc.end(), memory.bytes.begin());
  const RawCall call{.xid = 0x4003, .proc = 1, .reads = {{0, memory.segment}, {44, data.segment}}};
  EXPECT_TRUE(is_err_chunk(lab.call(call.header()), 0x4003));
  EXPECT_TRUE(lab.service->executed.empty());
  EXPECT_EQ(lab.service->releases, 0u);
  EXPECT_TRUE(lab.alive());
  EXPECT_EQ(lab.engine->call_memory().available(), lab.options.engine.call_buffers);
}

// --- Several calls in one iteration

TEST(ReadChunks, V1_086_arguments_of_two_calls_that_lie_next_to_each_other) {
  ServerLab lab;
  const auto memory = lab.peer->expose(8192, rdma::kRemoteRead);
  fill_pattern(memory.bytes, 9);
  for (const std::uint32_t half : {0u, 1u}) {
    const RawCall call{.xid = 0x100 + half, .reads = {{44, part(memory.segment, 4096 * half, 4096)}}};
    lab.peer->send(call.with(test_call(call.xid, TestService::kSink, {4096, half})));
  }
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), 2u);
  for (const std::uint32_t half : {0u, 1u}) {
    EXPECT_EQ(word_at(lab.peer->inbox[half].bytes, 0), 0x100 + half);
    EXPECT_EQ(word_at(lab.peer->inbox[half].bytes, 13), 4096u);
    EXPECT_EQ(word_at(lab.peer->inbox[half].bytes, 15), half);
  }
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 2u);
  EXPECT_TRUE(
      std::equal(lab.service->last_data.begin(), lab.service->last_data.end(), memory.bytes.begin() + 4096));
}

TEST(ReadChunks, reads_that_wait_for_the_send_queue_are_counted_once) {
  constexpr std::uint32_t kCalls = 5;
  constexpr std::uint32_t kBytes = 400;
  LabOptions options;
  options.engine.capacity.send_depth = 8;
  ServerLab lab(options);
  const auto memory = lab.peer->expose(8192, rdma::kRemoteRead);
  for (std::uint32_t xid = 1; xid <= kCalls; ++xid) {
    RawCall call{.xid = xid};
    for (std::uint32_t i = 0; i < 4; ++i)
      call.reads.push_back({44, part(memory.segment, (4 * xid + i) * 200, kBytes / 4)});
    lab.peer->send(call.with(test_call(xid, TestService::kSink, {kBytes, xid})));
  }
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), kCalls);
  EXPECT_GT(lab.engine->counters().waits_send_queue, 0u);
  EXPECT_EQ(lab.engine->counters().rdma_reads, 4 * kCalls);
  EXPECT_EQ(lab.engine->counters().rdma_read_bytes, kCalls * kBytes);
}

TEST(WriteChunks, V1_094_a_result_that_goes_next_to_the_argument_of_another_call) {
  ServerLab lab;
  const auto memory = lab.peer->expose(8192, rdma::kRemoteRead | rdma::kRemoteWrite);
  fill_pattern(memory.bytes, 9);
  const RawCall argument{.xid = 0x100, .reads = {{44, part(memory.segment, 0, 4096)}}};
  const RawCall result{.xid = 0x101, .writes = {{part(memory.segment, 4096, 4096)}}};
  lab.peer->send(argument.with(test_call(argument.xid, TestService::kSink, {4096, 1})));
  lab.peer->send(result.with(test_call(result.xid, TestService::kSource, {4096})));
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 2u);
  EXPECT_EQ(lab.log.count(OpKind::PostRead), 1u);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), 1u);
  EXPECT_TRUE(has_pattern(lab.service->last_data, 9));
  EXPECT_TRUE(std::equal(memory.bytes.begin() + 4096, memory.bytes.end(), lab.service->source().begin()));
}

TEST(WriteChunks, V1_106_no_piece_without_bytes_is_handed_to_the_driver) {
  // Some NICs interpret a length of zero as 2 GiB.
  ServerLab lab;
  lab.log.clear();
  const auto memory = lab.peer->expose(4096, rdma::kRemoteWrite);
  const auto ask = [&](const RawCall& call, std::uint32_t procedure,
                       std::initializer_list<std::uint32_t> args) {
    EXPECT_FALSE(lab.call(call.with(test_call(call.xid, procedure, args))).empty());
  };
  for (const std::uint32_t bytes : {1u, 2u, 64u}) {
    ask(RawCall{}, TestService::kPair, {bytes, bytes});  // the reply ends with data
    ask(RawCall{}, TestService::kPair, {0, bytes});
    ask(RawCall{}, TestService::kSource, {bytes});
    ask(RawCall{.reply = Segments{memory.segment}}, TestService::kPair, {bytes, bytes});
    ask(RawCall{.writes = {{memory.segment}}}, TestService::kPair, {bytes, bytes});
    ask(RawCall{.writes = {{part(memory.segment, 0, 0), memory.segment}}}, TestService::kSource, {bytes});
  }
  ask(RawCall{}, TestService::kSource, {0});
  ask(RawCall{.writes = {{memory.segment}}}, TestService::kSource, {0});
  for (const Op& op : lab.log.ops()) EXPECT_EQ(op.empty_pieces, 0u);
}

/// Limits above the capacity of the connection object, as the control plane might request, would exceed its
/// memory.
TEST(Capacity, a_connection_is_held_to_what_it_can_carry) {
  LabOptions options;
  options.engine.capacity.call_slots = 4;
  options.engine.capacity.requests = 3;
  options.engine.capacity.receive_bytes = 4096;
  options.connection.credit_grant = 1000;
  options.connection.credits_requested = 1000;
  options.connection.receive_inline_bytes = 65536;
  options.connection.max_version = 2;
  options.connection.version2.parameters.max_send_bytes = 2048;
  options.connection.client_class = 2;
  ServerLab lab(options);
  const rpcrdma::ConnectionConfig& config = lab.connection->config();
  EXPECT_EQ(lab.engine->classes_seen(), 3u);
  EXPECT_EQ(config.credit_grant, 4u);
  EXPECT_EQ(config.credits_requested, 3u);
  EXPECT_EQ(config.receive_inline_bytes, 4096u);
  EXPECT_EQ(config.max_version, 2u);
  EXPECT_EQ(lab.connection->agreement().send_bytes, 2048u);
  EXPECT_TRUE(lab.alive(5));
}

/// A version 2 peer may send 4096 bytes until another limit was announced to it.
TEST(Capacity, V2_011_with_shorter_receives_only_version_1_is_spoken) {
  LabOptions options;
  options.engine.capacity.receive_bytes = 4092;
  options.connection.max_version = 2;
  ServerLab lab(options);
  EXPECT_EQ(lab.connection->config().max_version, 1u);
  EXPECT_TRUE(lab.alive(5));
}

}  // namespace
}  // namespace sluice::conformance
