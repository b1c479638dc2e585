// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the responder: the calls of one iteration together need more work requests than are posted in
// one batch, or than fit the driver's send queue. Suites of these names also run with cross-reactor calls.
#include <gtest/gtest.h>

#include "tests/conformance/raw_call.h"

namespace sluice::conformance {
namespace {

using rpcrdma::SendStage;
using Segments = std::vector<rpcrdma::Segment>;

/// Each call takes a work request for each of its segments, and a Send.
constexpr std::uint32_t kSegments = 100;
constexpr std::uint32_t kBytes = 4 * kSegments;
constexpr std::uint32_t kMoreThanOneStage = SendStage::kMaxWrs / kSegments + 1;

LabOptions wide() {
  LabOptions options;
  options.connection.send_inline_bytes = options.raw_receive_bytes = 4096;
  options.engine.call_buffers = 64;
  options.engine.call_buffer_bytes = 4096;
  return options;
}

/// Returns pieces of four bytes with gaps between them, so that each takes a separate work request.
Segments scattered(const rpcrdma::Segment& whole) {
  Segments segments;
  for (std::uint32_t i = 0; i < kSegments; ++i) segments.push_back(part(whole, 8 * i, 4));
  return segments;
}

void send_reading_call(ServerLab& lab, std::uint32_t xid) {
  const auto memory = lab.peer->expose(8 * kSegments, rdma::kRemoteRead);
  fill_pattern(memory.bytes, xid);
  RawCall call{.xid = xid};
  for (const rpcrdma::Segment& segment : scattered(memory.segment)) call.reads.push_back({44, segment});
  lab.peer->send(call.with(test_call(xid, TestService::kSink, {kBytes, xid})));
}

std::span<std::byte> send_writing_call(ServerLab& lab, std::uint32_t xid) {
  const auto memory = lab.peer->expose(8 * kSegments, rdma::kRemoteWrite);
  lab.peer->send(RawCall{.xid = xid, .writes = {scattered(memory.segment)}}.with(
      test_call(xid, TestService::kSource, {kBytes})));
  return memory.bytes;
}

bool has_source(ServerLab& lab, std::span<const std::byte> scattered_bytes) {
  for (std::uint32_t i = 0; i < kBytes; ++i)
    if (scattered_bytes[i / 4 * 8 + i % 4] != lab.service->source()[i]) return false;
  return true;
}

TEST(ReadChunks, V1_086_RDMA_Reads_that_fit_no_more_beside_others_are_posted_once_in_the_same_turn) {
  ServerLab lab(wide());
  for (std::uint32_t xid = 1; xid <= kMoreThanOneStage; ++xid) send_reading_call(lab, xid);
  lab.log.clear();
  lab.turn();
  EXPECT_EQ(lab.log.count(OpKind::PostRead), kMoreThanOneStage * kSegments);
  EXPECT_EQ(lab.engine->counters().rdma_reads, kMoreThanOneStage * kSegments);
  EXPECT_EQ(lab.engine->counters().waits_send_queue, 0u);
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), kMoreThanOneStage);
  EXPECT_EQ(lab.log.count(OpKind::PostRead), kMoreThanOneStage * kSegments);
  for (std::uint32_t i = 0; i < kBytes; ++i)
    ASSERT_EQ(lab.service->last_data[i], pattern_byte(kMoreThanOneStage, i / 4 * 8 + i % 4));
}

TEST(WriteChunks, V1_094_RDMA_Writes_that_fit_no_more_beside_others_are_posted_once_in_the_same_turn) {
  ServerLab lab(wide());
  std::vector<std::span<std::byte>> results;
  for (std::uint32_t xid = 1; xid <= kMoreThanOneStage; ++xid) results.push_back(send_writing_call(lab, xid));
  lab.log.clear();
  for (int i = 0; i < 4; ++i) lab.turn();
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), kMoreThanOneStage * kSegments);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), kMoreThanOneStage);
  EXPECT_EQ(lab.engine->counters().rdma_writes, kMoreThanOneStage * kSegments);
  EXPECT_EQ(lab.engine->counters().waits_send_queue, 0u);
  lab.settle();
  ASSERT_EQ(lab.peer->inbox.size(), kMoreThanOneStage);
  for (const auto& result : results) EXPECT_TRUE(has_source(lab, result));
}

/// The send queue has room for ten of these calls. Each of the others waits until all of its work requests
/// fit.
TEST(ReadChunks, V1_086_calls_whose_RDMA_Reads_find_no_room_in_the_send_queue_wait_in_order) {
  ServerLab lab(wide());
  constexpr std::uint32_t kCalls = 25;
  const std::uint32_t at_once = lab.options.engine.capacity.send_depth / kSegments;
  for (std::uint32_t xid = 1; xid <= kCalls; ++xid) send_reading_call(lab, xid);
  lab.log.clear();
  lab.turn();
  EXPECT_EQ(lab.log.count(OpKind::PostRead), at_once * kSegments);
  EXPECT_EQ(lab.engine->counters().waits_send_queue, kCalls - at_once);
  lab.settle(2000);
  EXPECT_EQ(lab.log.count(OpKind::PostRead), kCalls * kSegments);
  EXPECT_EQ(lab.engine->counters().rdma_reads, kCalls * kSegments);
  EXPECT_EQ(lab.engine->counters().rdma_read_bytes, kCalls * kBytes) << "not once for each attempt";
  ASSERT_EQ(lab.peer->inbox.size(), kCalls);
  for (std::uint32_t xid = 1; xid <= kCalls; ++xid)
    EXPECT_EQ(word_at(lab.peer->inbox[xid - 1].bytes, 0), xid);
}

TEST(WriteChunks, V1_094_replies_that_find_no_room_in_the_send_queue_wait_in_order) {
  ServerLab lab(wide());
  constexpr std::uint32_t kCalls = 25;
  const std::uint32_t at_once = lab.options.engine.capacity.send_depth / (kSegments + 1);
  std::vector<std::span<std::byte>> results;
  for (std::uint32_t xid = 1; xid <= kCalls; ++xid) results.push_back(send_writing_call(lab, xid));
  lab.log.clear();
  for (int i = 0; i < 4; ++i) lab.turn();
  EXPECT_EQ(lab.log.count(OpKind::PostSend), at_once);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), at_once * kSegments);
  lab.settle(2000);
  EXPECT_EQ(lab.log.count(OpKind::PostSend), kCalls);
  EXPECT_EQ(lab.log.count(OpKind::PostWrite), kCalls * kSegments);
  EXPECT_EQ(lab.engine->counters().rdma_write_bytes, kCalls * kBytes);
  ASSERT_EQ(lab.peer->inbox.size(), kCalls);
  for (std::uint32_t xid = 1; xid <= kCalls; ++xid) {
    EXPECT_EQ(word_at(lab.peer->inbox[xid - 1].bytes, 0), xid);
    EXPECT_TRUE(has_source(lab, results[xid - 1]));
  }
}

}  // namespace
}  // namespace sluice::conformance
