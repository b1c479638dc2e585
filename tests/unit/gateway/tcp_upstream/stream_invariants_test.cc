// SPDX-License-Identifier: Apache-2.0
//
// Invariants of both directions of a TCP connection: a caller that breaks a precondition is detected.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "dataplane/tcp/record_stream.h"
#include "dataplane/tcp/streams.h"
#include "tests/unit/base/counted_invariants.h"

namespace sluice::tcp {
namespace {

class StreamInvariants : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kAbortOnInvariant) GTEST_SKIP() << "A release build does not evaluate them.";
  }
  CountedInvariants counted;
};

TEST_F(StreamInvariants, no_more_is_sent_than_was_queued) {
  SendQueue queue;
  const std::array<std::byte, 10> bytes{};
  queue.copy(bytes);
  const auto ignore = [](void*) {};
  queue.sent(4, ignore);
  queue.sent(6, ignore);
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 0u);
  EXPECT_EQ(counted.failed(Invariant::ring_index), 0u);
  queue.copy(bytes);
  queue.sent(11, ignore);
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 1u);
}

TEST_F(StreamInvariants, no_more_is_copied_than_the_ring_holds) {
  SendQueue queue;
  const std::vector<std::byte> bytes(kSendRingBytes);
  queue.copy(bytes);
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 0u);
  queue.copy(std::span(bytes).first(1));
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 1u);
}

TEST_F(StreamInvariants, no_more_pieces_are_queued_than_there_are_entries) {
  SendQueue queue;
  const std::array<std::byte, 8> bytes{};
  int owner = 0;
  for (std::uint32_t i = 0; i < kMaxSendPieces; ++i) queue.refer(bytes, &owner);
  EXPECT_EQ(counted.failed(Invariant::ring_index), 0u);
  queue.refer(bytes, &owner);
  EXPECT_EQ(counted.failed(Invariant::ring_index), 1u);
}

TEST_F(StreamInvariants, lent_memory_is_taken_before_more_is_lent_or_the_stream_is_reset) {
  std::array<std::byte, 64> buffer{};
  std::array<std::byte, 64> memory{};
  RecordStream stream(buffer, sizeof memory);
  stream.lend(memory.data());
  EXPECT_EQ(counted.failed(Invariant::pool_balance), 0u);
  stream.lend(memory.data());
  EXPECT_EQ(counted.failed(Invariant::pool_balance), 1u);
  stream.reset();
  EXPECT_EQ(counted.failed(Invariant::pool_balance), 2u);
}

TEST_F(StreamInvariants, no_more_is_received_than_there_is_room) {
  std::array<std::byte, 64> buffer{};
  RecordStream stream(buffer, 64);
  stream.received(sizeof buffer);
  EXPECT_EQ(stream.next(), RecordStream::Step::NeedBytes) << "empty fragments";
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 0u);
  stream.received(1);
  stream.next();
  EXPECT_EQ(counted.failed(Invariant::buffer_bounds), 1u);
}

TEST_F(StreamInvariants, a_receiver_has_one_request_and_no_result_without_one) {
  Uring uring(kReceiveOperations);
  alignas(8) int target = 0;
  StreamReceiver receiver(uring, &target);
  receiver.on_received({});
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 1u);
  receiver.on_received_again({});
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 2u);
  std::array<std::byte, 8> room{};
  receiver.receive_all(-1, room);
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 2u);
  receiver.receive_all(-1, room);
  EXPECT_EQ(counted.failed(Invariant::gateway_state), 3u);
}

TEST_F(StreamInvariants, a_target_leaves_the_bits_of_the_kind_free) {
  Uring uring(kReceiveOperations);
  alignas(8) std::array<char, 16> target{};
  uring.await_end(target.data(), -1);
  EXPECT_EQ(counted.failed(Invariant::table_index), 0u);
  uring.await_end(target.data() + 1, -1);
  EXPECT_EQ(counted.failed(Invariant::table_index), 1u);
}

}  // namespace
}  // namespace sluice::tcp
