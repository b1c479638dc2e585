// SPDX-License-Identifier: Apache-2.0
//
// Tests of type 2 windows by libibverbs, without the driver of Sluice, over one port.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "cli/card_check/loop.h"
#include "cli/card_check/probes.h"
#include "cli/card_check/stopwatch.h"

namespace sluice::card_check {
namespace {

constexpr unsigned kRead = IBV_ACCESS_REMOTE_READ;
constexpr std::size_t kTarget = 1u << 16;

ibv_send_wr invalidation_of(std::uint64_t wr_id, ibv_wr_opcode opcode, std::uint32_t rkey) {
  ibv_send_wr wr = request_of(wr_id, opcode);
  wr.invalidate_rkey = rkey;
  return wr;
}

class Windows : public testing::Test {
 protected:
  /// Creates queue pairs and a window. Returns false if the provider has no windows that can be bound.
  bool make(LoopConfig config = {}) {
    config.windows = true;
    try {
      loop_ = std::make_unique<Loop>(config);
    } catch (const LoopError&) {
      return false;  // memory for windows cannot be registered
    }
    window_ = loop_->allocate_window();
    if (window_ == nullptr) return false;
    rkey_ = loop_->bind(window_, 0, 4096, kRead);
    return rkey_ != 0;
  }

  std::unique_ptr<Loop> loop_;
  ibv_mw* window_ = nullptr;
  std::uint32_t rkey_ = 0;
};

constexpr const char* kNoWindows = "the device has no windows that can be bound";

TEST_F(Windows, accesses_outside_of_a_window_are_refused) {
  if (!make()) GTEST_SKIP() << kNoWindows;
  EXPECT_TRUE(holds_window_bounds()) << "A peer can read memory beside a window, within its region.";
}

TEST_F(Windows, the_time_of_a_bind_is_measured) {
  if (!make()) GTEST_SKIP() << kNoWindows;
  ibv_mw* const another = loop_->allocate_window();
  ASSERT_NE(another, nullptr);
  const Stopwatch watch("bind");
  EXPECT_NE(loop_->bind(another, 0, 4096, kRead), 0u);
}

TEST_F(Windows, an_rkey_is_refused_after_its_window_was_bound_again) {
  if (!make()) GTEST_SKIP() << kNoWindows;
  const std::uint32_t old = rkey_;
  ASSERT_EQ(read_status(*loop_, 1, 0, 64, old), IBV_WC_SUCCESS);
  ASSERT_EQ(loop_->post(loop_->left(), invalidation_of(2, IBV_WR_LOCAL_INV, old)), 0);
  ASSERT_EQ(loop_->await(2).status, IBV_WC_SUCCESS);
  const std::uint32_t fresh = loop_->bind(window_, 0, 4096, kRead);
  ASSERT_NE(fresh, 0u);
  EXPECT_EQ(read_status(*loop_, 3, 0, 64, fresh), IBV_WC_SUCCESS);
  EXPECT_EQ(read_status(*loop_, 4, 0, 64, old), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(Windows, a_window_is_not_valid_on_another_queue_pair) {
  if (!make()) GTEST_SKIP() << kNoWindows;
  // The RDMA Read arrives on a queue pair to which the window is not bound.
  ibv_sge into = loop_->sge(kTarget, 64);
  ASSERT_EQ(loop_->post(loop_->left(), read_of(1, {&into, 1}, loop_->address(0), rkey_)), 0);
  EXPECT_EQ(loop_->await(1).status, IBV_WC_REM_ACCESS_ERR);
}

/// Ends a window by a Send with Invalidate of the peer, and returns the rkey that its completion has.
std::uint32_t invalidated_by_peer(Loop& loop, std::uint32_t rkey) {
  EXPECT_EQ(loop.receive(loop.left(), 2, loop.sge(kTarget, 64)), 0);
  EXPECT_EQ(loop.post(loop.right(), invalidation_of(1, IBV_WR_SEND_WITH_INV, rkey)), 0);
  EXPECT_EQ(loop.await(1).status, IBV_WC_SUCCESS);
  const Done done = loop.await(2);
  EXPECT_EQ(done.status, IBV_WC_SUCCESS);
  return done.invalidated;
}

bool invalidates() {
  const Context context = open_subject();
  return (attributes_of(context.get()).device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
}

TEST_F(Windows, classic_polling_names_the_rkey_that_a_peer_has_ended) {
  if (!make()) GTEST_SKIP() << kNoWindows;
  if (!invalidates()) GTEST_SKIP() << "the device does not report Send with Invalidate";
  EXPECT_EQ(invalidated_by_peer(*loop_, rkey_), rkey_);
}

TEST_F(Windows, extended_polling_names_the_rkey_that_a_peer_has_ended) {
  if (!make()) GTEST_SKIP() << kNoWindows;
  if (!invalidates()) GTEST_SKIP() << "the device does not report Send with Invalidate";
  if (!make({.extended_polling = true})) GTEST_SKIP() << "the provider has no extended polling";
  EXPECT_EQ(invalidated_by_peer(*loop_, rkey_), rkey_)
      << "Sluice polls this provider by the classic interface unless the table of providers says otherwise.";
}

}  // namespace
}  // namespace sluice::card_check
