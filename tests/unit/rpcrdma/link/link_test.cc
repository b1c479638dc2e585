// SPDX-License-Identifier: Apache-2.0
//
// A link on a queue pair that only counts: room in the stage and the send queue, the start of the clocks, and
// internal errors.
#include "dataplane/rpcrdma/link/link.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "dataplane/base/cache_line.h"
#include "dataplane/rpcrdma/link/link_context.h"
#include "dataplane/rpcrdma/link/version_rules.h"
#include "tests/unit/base/counted_invariants.h"
#include "tests/unit/rpcrdma/link/counting_queue_pair.h"

namespace sluice::rpcrdma {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

class LinkTest : public ::testing::Test, private LinkOwner {
 protected:
  void open(const ConnectionConfig& config = {}) {
    auto made = std::make_unique<CountingQueuePair>(capacity.send_depth);
    qp = made.get();
    link.open(std::move(made), config, PeerAddress::from_ipv4(10, 0, 0, 1));
  }
  void stage(std::size_t work_requests) {
    for (std::size_t i = 0; i < work_requests; ++i)
      ASSERT_TRUE(link.stage().begin(rdma::SendOpcode::Send, i, rdma::kSignaled));
  }
  Counters& counters() { return context.counters.of(0); }

  LinkContext context;
  const ConnectionCapacity capacity{.call_slots = 4, .receive_bytes = 4096};
  std::vector<std::byte> receives = std::vector<std::byte>(capacity.receives() * buffer_stride(4096));
  Link link{context, *this, 0, capacity, {receives, {}}};
  CountingQueuePair* qp = nullptr;
  int closed = 0;

 private:
  void on_link_closed() noexcept override { ++closed; }
};

// --- Receive buffers

TEST_F(LinkTest, receive_buffers_do_not_overlap_and_begin_in_different_cache_sets) {
  constexpr std::size_t kSets = 64;  // of a level 1 cache whose ways are as large as a page
  open();
  std::vector<bool> set_used(kSets);
  for (std::uint16_t i = 0; i < capacity.receives(); ++i) {
    const std::span<std::byte> buffer = link.receive_buffer(i);
    EXPECT_EQ(buffer.size(), 4096u);
    EXPECT_LE(buffer.data() + buffer.size(), receives.data() + receives.size());
    if (i > 0) {
      EXPECT_GE(buffer.data(), link.receive_buffer(i - 1).data() + 4096);
    }
    const auto set = reinterpret_cast<std::uintptr_t>(buffer.data()) / kCacheLine % kSets;
    EXPECT_FALSE(set_used[set]) << i;
    set_used[set] = true;
  }
}

TEST(BufferStride, is_an_odd_number_of_cache_lines_and_holds_the_buffer) {
  for (const std::size_t bytes : {1u, 64u, 65u, 1024u, 4096u, 8192u, 65536u, 65600u}) {
    const std::size_t stride = buffer_stride(bytes);
    EXPECT_GE(stride, bytes);
    EXPECT_LE(stride, bytes + 2 * kCacheLine);
    EXPECT_EQ(stride % (2 * kCacheLine), kCacheLine) << bytes;
  }
}

// --- Version

TEST_F(LinkTest, the_rules_and_the_shortcut_are_those_of_the_version) {
  open({.credit_grant = 4, .max_version = 2});
  link.begin(VersionState::AwaitingFirstMessage);
  EXPECT_EQ(&link.rules(), &kVersion1Rules);
  EXPECT_EQ(link.shortcut(), Shortcut::None);
  link.transition(VersionState::Version2);
  EXPECT_EQ(&link.rules(), &kVersion2Rules);
  EXPECT_EQ(link.shortcut(), Shortcut::None);  // until the intake finds the connection settled

  link.begin(VersionState::AwaitingAnswer);
  EXPECT_EQ(&link.rules(), &kVersion2Rules);
  link.transition(VersionState::Version1);
  EXPECT_EQ(&link.rules(), &kVersion1Rules);
  EXPECT_EQ(link.shortcut(), Shortcut::CallsAndReplies);
}

// --- Room in the stage and in the send queue

TEST_F(LinkTest, what_is_staged_is_handed_over_when_the_stage_has_no_room_for_more) {
  open();
  stage(SendStage::kMaxWrs - 2);
  EXPECT_TRUE(link.has_room(2));
  EXPECT_EQ(qp->bursts, 0u) << "a burst is one call of the driver";
  EXPECT_TRUE(link.has_room(3));
  EXPECT_EQ(qp->sent, SendStage::kMaxWrs - 2);
  EXPECT_TRUE(link.stage().empty());
}

TEST_F(LinkTest, room_in_the_send_queue_is_for_what_is_staged_as_well) {
  open();
  qp->room = 5;
  stage(3);
  EXPECT_TRUE(link.stage_fits(2));
  EXPECT_FALSE(link.stage_fits(3));
  EXPECT_FALSE(link.has_room(3)) << "handing it over makes no room in the send queue";
  EXPECT_TRUE(link.has_room(2));
  EXPECT_FALSE(link.has_room(3));
  qp->room = 3;  // one work request has completed
  EXPECT_TRUE(link.has_room(3));
}

TEST_F(LinkTest, the_driver_is_asked_for_room_only_when_what_was_known_does_not_do) {
  open();
  EXPECT_TRUE(link.has_room(1));
  const std::size_t asked = qp->asked;
  for (std::size_t left = capacity.send_depth; left > 100; left -= 100) {
    stage(100);
    ASSERT_TRUE(link.stage_fits());
    link.flush_stage();
  }
  EXPECT_EQ(qp->asked, asked);
  EXPECT_EQ(qp->sent, 1000u);
  stage(25);
  EXPECT_FALSE(link.stage_fits());
}

/// Binding a window uses entries of the send queue while a Send is staged.
TEST_F(LinkTest, room_that_others_have_taken_is_not_taken_for_free) {
  open();
  EXPECT_TRUE(link.has_room(1));
  stage(1);
  link.forget_send_room();
  link.flush_stage();
  qp->room = 5;
  EXPECT_TRUE(link.has_room(5));
  EXPECT_FALSE(link.has_room(6));
}

TEST_F(LinkTest, who_finds_no_room_is_asked_again_when_a_work_request_completes) {
  open();
  stage(1);
  link.flush();
  link.wait_for_send_room();
  EXPECT_EQ(counters().waits_send_queue, 1u);
  EXPECT_FALSE(link.retry_due());
  link.notify_waiting_senders();
  EXPECT_TRUE(link.retry_due());
}

TEST_F(LinkTest, who_waits_while_nothing_is_out_is_asked_again_in_the_next_turn) {
  open();
  link.wait_for_send_room();
  EXPECT_EQ(counters().waits_send_queue, 1u);
  EXPECT_TRUE(link.retry_due());
  EXPECT_FALSE(context.transmit.iteration_end.empty());
}

TEST_F(LinkTest, the_next_connection_knows_nothing_of_the_room_of_the_last_one) {
  open();
  EXPECT_TRUE(link.has_room(100));
  stage(1);
  link.close(CloseReason::LocalClose);
  EXPECT_EQ(qp->sent, 1u) << "it completes as flushed";
  link.release_queue_pair();
  open();
  qp->room = 10;
  EXPECT_FALSE(link.has_room(11));
  EXPECT_FALSE(link.retry_due());
}

// --- Capacity

TEST(ConnectionCapacity, a_connection_that_serves_no_calls_has_slots_for_the_errors_that_answer_them) {
  for (const std::uint32_t call_slots : {0u, 1u, 2u, 3u}) {
    const ConnectionCapacity capacity{.call_slots = call_slots, .requests = 7};
    EXPECT_EQ(capacity.slots(), call_slots == 3 ? 3u : 2u);
    EXPECT_EQ(capacity.receives(), capacity.slots() + 7 + 2) << "and two beyond both";
  }
}

// --- Clocks

/// The duration of the connection setup does not count as silence, because no message can be sent during it.
TEST_F(LinkTest, silence_counts_from_when_the_connection_is_established) {
  context.transmit.now_ns = 5 * kSecond;
  open({.probe_after_ns = kSecond});
  EXPECT_EQ(link.last_post_ns(), 5 * kSecond);
  context.transmit.now_ns = 100 * kSecond;
  link.established();
  EXPECT_EQ(link.last_post_ns(), 100 * kSecond);
  link.probe_if_silent();
  context.transmit.now_ns += kSecond - 1;
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u);
  context.transmit.now_ns += 1;
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 1u);
}

TEST_F(LinkTest, a_peer_is_probed_when_it_has_been_silent_and_the_queue_pair_is_up) {
  open({.probe_after_ns = kSecond});
  link.established();
  context.transmit.now_ns = kSecond;
  stage(SendStage::kMaxWrs);
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u) << "a full send queue asks as well";
  link.flush();
  link.note_alive();
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u);
  context.transmit.now_ns *= 2;
  qp->to_error();
  link.probe_if_silent();
  EXPECT_EQ(counters().probes_sent, 0u);
}

// --- Internal errors

TEST_F(LinkTest, V2_016_a_version_that_changes_is_counted_and_ends_the_connection) {
  open({.max_version = 2});
  link.begin(VersionState::AwaitingFirstMessage);
  const CountedInvariants invariants;
  link.transition(VersionState::Version1);
  EXPECT_TRUE(link.is_open());
  link.transition(VersionState::Version2);
  EXPECT_EQ(invariants.failed(Invariant::connection_state), 1u);
  EXPECT_EQ(link.close_reason(), CloseReason::InternalError);
  EXPECT_EQ(closed, 1);
}

}  // namespace
}  // namespace sluice::rpcrdma
