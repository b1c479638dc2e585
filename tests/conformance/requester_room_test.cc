// SPDX-License-Identifier: Apache-2.0
//
// Version 1 at the requester: the replies of one iteration require more invalidations of chunk memory than
// are posted in one batch, or than fit the driver's send queue.
#include <gtest/gtest.h>

#include <array>

#include "tests/conformance/raw_server.h"

namespace sluice::conformance {
namespace {

using rpcrdma::SendStage;

constexpr std::uint32_t kPieces = 30;
constexpr std::uint32_t kPieceBytes = 64;
constexpr std::uint32_t kAtOnce = SendStage::kMaxWrs / kPieces;
constexpr std::uint32_t kCalls = kAtOnce + 5;

struct ManyWindows : ClientLab {
  static LabOptions with(std::uint32_t send_depth) {
    LabOptions options;
    options.engine.capacity.send_depth = send_depth;
    options.connection.credits_requested = options.requester.credits_requested = 64;
    options.requester.windows = 2048;
    return options;
  }
  explicit ManyWindows(std::uint32_t send_depth)
      : ClientLab(with(send_depth)), memory(caller_memory(*this, kPieces * kPieceBytes * 2)) {
    const auto first = submit_null();
    settle();
    peer->send(success(*first, 64));
    settle();
    EXPECT_EQ(finished.size(), 1u);
    finished.clear();
    peer->inbox.clear();
    on_reply = [this](const rpcrdma::Reply&) {
      invalidated_at_completion.push_back(log.count(OpKind::InvalidateDone));
    };
  }
  /// Submits calls with a window for each of many pieces, then delivers the replies to all of them in one
  /// iteration.
  void call_and_answer() {
    std::array<rdma::Sge, kPieces> pieces;
    for (std::uint32_t i = 0; i < kPieces; ++i) pieces[i] = memory.piece(2 * kPieceBytes * i, kPieceBytes);
    const rpcrdma::WriteItem item{.pieces = pieces};
    std::vector<std::uint32_t> xids;
    for (std::uint32_t i = 0; i < kCalls; ++i)
      xids.push_back(submit({.payload = null_call(), .writes = {&item, 1}, .max_reply_bytes = 64}).value());
    settle();
    ASSERT_EQ(peer->inbox.size(), kCalls);
    ASSERT_EQ(engine->counters().waits_send_queue, 0u);
    log.clear();
    for (const std::uint32_t xid : xids) peer->send(RawCall{.xid = xid, .credits = 64}.with(accepted(xid)));
    engine->poll(now_ns += 1000);
  }
  void expect_all_fenced() {
    settle(2000);
    EXPECT_EQ(log.count(OpKind::Invalidate), kCalls * kPieces) << "each once";
    ASSERT_EQ(finished.size(), kCalls);
    for (const Finished& call : finished) EXPECT_EQ(call.status, rpcrdma::CallStatus::Ok);
    // Only the last invalidation of each call is signaled.
    for (std::uint32_t i = 0; i < kCalls; ++i) EXPECT_GT(invalidated_at_completion[i], i);
    EXPECT_EQ(requester->outstanding(), 0u);
  }

  CallerMemory memory;
  std::vector<std::size_t> invalidated_at_completion;
};

TEST(RequesterRoom, V1_140_invalidations_that_fit_no_more_beside_others_are_posted_in_the_same_turn) {
  ManyWindows lab(2 * SendStage::kMaxWrs);
  lab.call_and_answer();
  EXPECT_EQ(lab.log.count(OpKind::Invalidate), kCalls * kPieces);
  EXPECT_EQ(lab.engine->counters().waits_send_queue, 0u);
  lab.expect_all_fenced();
}

TEST(RequesterRoom, V1_140_calls_whose_invalidations_find_no_room_in_the_send_queue_end_when_there_is_some) {
  ManyWindows lab(SendStage::kMaxWrs);
  lab.call_and_answer();
  EXPECT_EQ(lab.log.count(OpKind::Invalidate), kAtOnce * kPieces) << "all of a call's, or none";
  EXPECT_GT(lab.engine->counters().waits_send_queue, 0u);
  EXPECT_TRUE(lab.finished.empty());
  lab.expect_all_fenced();
  // The windows of all calls are usable again.
  lab.finished.clear();
  lab.invalidated_at_completion.clear();
  lab.peer->inbox.clear();
  lab.submit_null();
  lab.settle();
  EXPECT_EQ(lab.peer->inbox.size(), 1u);
}

}  // namespace
}  // namespace sluice::conformance
